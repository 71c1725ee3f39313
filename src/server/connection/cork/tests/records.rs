//! The records of HTTP/2 over TLS, of which one write of the socket takes those of a poll.

use std::io::Read as _;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::server::connection::eviction::Eviction;
use crate::server::connection::permitted_io::PermittedIo;
use crate::upstream::testing::Ca;

type Tls = TlsStream<PermittedIo<Socket, ()>>;

/// A frame with its head.
const FRAME_BYTES: usize = (16 << 10) + 9;
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const NOTHING: fn(&Socket) = |_| {};

/// Returns a cork over TLS over `socket`, and the client.
async fn connect(socket: &Socket) -> (Cork<Tls>, ClientConnection) {
    let (ca, mut roots) = (Ca::new(), RootCertStore::empty());
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let acceptor = TlsAcceptor::from(ca.server(&["localhost"], &[]));
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let (eviction, limits) = (Arc::new(Eviction::default()), (STALL_TIMEOUT, NOTHING));
    let permitted = PermittedIo::new(socket.clone(), (), eviction, limits);
    let mut accept = pin!(acceptor.accept(permitted));
    let mut tls = loop {
        exchange(socket, &mut client);
        if let Poll::Ready(accepted) = futures_util::poll!(accept.as_mut()) {
            break accepted.unwrap();
        }
    };
    tls.get_mut().1.set_buffer_limit(Some(RECORDS_BYTES_MAX));
    exchange(socket, &mut client);
    let cork = Cork::new(tls, ConnActivity::new(), 1 << 20);
    cork.set_tls_writer(write_records);
    (cork, client)
}

/// Passes on what each side has sent. Returns what the client can read.
fn exchange(socket: &Socket, client: &mut ClientConnection) -> Vec<u8> {
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    let written = std::mem::take(&mut socket.0.lock().written);
    let mut records = &written[..];
    while !records.is_empty() {
        client.read_tls(&mut records).unwrap();
        let readable = client.process_new_packets().unwrap().plaintext_bytes_to_read();
        let mut plaintext = vec![0; readable];
        client.reader().read_exact(&mut plaintext).unwrap();
        read.extend(plaintext);
    }
    while client.wants_write() {
        client.write_tls(&mut sent).unwrap();
    }
    socket.change(|state| state.incoming.extend(sent));
    read
}

#[tokio::test]
async fn one_write_takes_the_records_of_four_frames() {
    let socket = Socket::default();
    let (cork, mut client) = connect(&socket).await;
    let frames: Vec<_> = (0..10_u8).map(|number| vec![number; FRAME_BYTES]).collect();
    let before = socket.0.lock().writes;
    let poll = async {
        write(cork.clone(), &frames).await.unwrap();
        assert_eq!(socket.0.lock().writes - before, 2, "the last two frames wait");
        std::future::pending::<()>().await
    };
    let mut driven = pin!(drive(&cork, poll));
    assert!(futures_util::poll!(driven.as_mut()).is_pending());
    assert_eq!(socket.0.lock().writes - before, 3);
    assert!(exchange(&socket, &mut client) == frames.concat());
}

/// Writes of all sizes while the socket takes little: what waits in the cork, what TLS keeps and
/// what fills it stays in order.
#[tokio::test]
async fn a_full_socket_stops_writes_over_tls_and_loses_nothing() {
    let cases: [&[usize]; 3] = [&[FRAME_BYTES], &[300], &[300, 20_000, 7]];
    for lengths in cases {
        for shared in [false, true] {
            let socket = Socket::default();
            let (cork, mut client) = connect(&socket).await;
            cork.set_shared(shared);
            socket.change(|state| state.space = Some(0));
            let pieces = lengths.iter().cycle().zip(0..250_u8);
            let pieces: Vec<_> = pieces.map(|(length, byte)| vec![byte; *length]).collect();
            let expected = pieces.concat();
            let (driver, taken) = begin_writes(cork, pieces).await;
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken > 0, "{lengths:?}, shared: {shared}");
            assert!(taken <= BUFFER_BYTES_MAX + RECORDS_BYTES_MAX, "{taken} of {lengths:?}");
            let mut read = Vec::new();
            while read.len() < expected.len() {
                socket.change(|state| state.space = Some(7_777));
                tokio::task::yield_now().await;
                read.extend(exchange(&socket, &mut client));
            }
            assert!(read == expected, "{lengths:?}, shared: {shared}");
            driver.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_records_stalls() {
    let socket = Socket::default();
    let (mut cork, _client) = connect(&socket).await;
    socket.change(|state| state.space = Some(0));
    let writer = cork.clone();
    let driven = drive(&cork, async move {
        write(writer, &[vec![0; 300]]).await.unwrap();
        std::future::pending::<()>().await
    });
    assert_eq!(driven.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(cork.shutdown().await.is_err(), "what is kept is not lost silently");
}
