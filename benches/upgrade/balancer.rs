//! A balancer of TCP connections that does what a Service does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    late: Duration,
}

#[derive(Default)]
struct Shared {
    /// The Weirs that get connections.
    ready: Mutex<Vec<SocketAddr>>,
    /// When each connection was opened.
    opened: Mutex<Vec<Instant>>,
    /// Connections that a Weir did not accept, or for which there was no Weir.
    refused: AtomicUsize,
}

impl Balancer {
    /// Starts to listen. `late` is the time after which it learns of a change.
    pub(crate) async fn start(late: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, late }
    }

    /// Gives connections to a Weir while its `/readyz` passes.
    pub(crate) fn add(&self, weir: SocketAddr, admin: SocketAddr) {
        let (shared, late) = (Arc::clone(&self.shared), self.late);
        tokio::spawn(async move {
            while !is_ready(admin).await {
                sleep(PROBE_INTERVAL).await;
            }
            sleep(late).await;
            shared.ready.lock().push(weir);
            while is_ready(admin).await {
                sleep(PROBE_INTERVAL).await;
            }
            sleep(late).await;
            shared.ready.lock().retain(|other| *other != weir);
        });
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.opened.lock().len()
    }

    /// Returns how long after `start` each later connection was opened.
    pub(crate) fn opened_since(&self, start: Instant) -> Vec<Duration> {
        let opened = self.shared.opened.lock();
        opened.iter().filter_map(|at| at.checked_duration_since(start)).collect()
    }

    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// The number of Weirs that get connections.
    pub(crate) fn ready(&self) -> usize {
        self.shared.ready.lock().len()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let number = {
            let mut opened = shared.opened.lock();
            opened.push(Instant::now());
            opened.len()
        };
        tokio::spawn(async move {
            let weir = fastrand::choice(shared.ready.lock().iter().copied());
            let Some(Ok(mut weir)) = connect(weir, number).await else {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                return;
            };
            drop(client.set_nodelay(true));
            drop(copy_bidirectional(&mut client, &mut weir).await);
        });
    }
}

/// Connects from one of many addresses, since Weir limits connections by address.
async fn connect(weir: Option<SocketAddr>, number: usize) -> Option<std::io::Result<TcpStream>> {
    let weir = weir?;
    let host = 1 + u8::try_from(number % ADDRESSES).unwrap_or(0);
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::from((IpAddr::from(Ipv4Addr::new(127, 0, 1, host)), 0))).ok()?;
    let stream = socket.connect(weir).await;
    if let Ok(stream) = &stream {
        drop(stream.set_nodelay(true));
    }
    Some(stream)
}

/// Whether `/readyz` passes.
pub(crate) async fn is_ready(admin: SocketAddr) -> bool {
    let answer = async {
        let mut tcp = TcpStream::connect(admin).await.ok()?;
        let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        tcp.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        tcp.read_to_string(&mut text).await.ok()?;
        Some(text.starts_with("HTTP/1.1 200"))
    };
    timeout(PROBE_TIMEOUT, answer).await.ok().flatten().unwrap_or(false)
}

const PROBE_INTERVAL: Duration = Duration::from_millis(500);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const ADDRESSES: usize = 200;
