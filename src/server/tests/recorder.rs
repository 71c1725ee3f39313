//! A fake upstream on raw sockets. It parses each connection strictly by RFC 9112, records the
//! requests, and answers each whole request with the same bytes. Bytes that were smuggled behind a
//! request appear as another request.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// The number of its connection.
    pub(super) connection: usize,
    /// The request line and the headers.
    pub(super) head: String,
    /// The body, without its chunk framing.
    pub(super) body: String,
    /// Whether the request arrived whole.
    pub(super) whole: bool,
}

impl Recorded {
    pub(super) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the values of a header.
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }
}

/// Records the requests that arrive.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Recorded>>>,
    /// The numbers of the connections that have ended.
    ended: Arc<Mutex<Vec<usize>>>,
}

impl Recorder {
    /// Starts a recorder that answers every request with `answer`.
    pub(super) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, ended) = (Arc::default(), Arc::default());
        let recorder = Self { address, seen, ended };
        let (seen, ended) = (Arc::clone(&recorder.seen), Arc::clone(&recorder.ended));
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((tcp, _)) = listener.accept().await {
                let (seen, ended) = (Arc::clone(&seen), Arc::clone(&ended));
                tokio::spawn(async move {
                    serve(tcp, connection, answer, &seen).await;
                    ended.lock().push(connection);
                });
                connection += 1;
            }
        });
        recorder
    }

    /// Returns all recorded requests.
    pub(super) fn seen(&self) -> Vec<Recorded> {
        self.seen.lock().clone()
    }

    /// Returns the recorded requests that arrived whole.
    pub(super) fn whole(&self) -> Vec<Recorded> {
        self.seen().into_iter().filter(|request| request.whole).collect()
    }

    pub(super) fn has_ended(&self, connection: usize) -> bool {
        self.ended.lock().contains(&connection)
    }
}

async fn serve(mut tcp: TcpStream, connection: usize, answer: &str, seen: &Mutex<Vec<Recorded>>) {
    loop {
        let (head, headed) = read_until(&mut tcp, "\r\n\r\n").await;
        if head.is_empty() {
            return;
        }
        let mut request = Recorded { connection, head, body: String::new(), whole: false };
        if headed {
            request.whole = read_body(&mut tcp, &mut request).await;
        }
        let whole = request.whole;
        seen.lock().push(request);
        if !whole || tcp.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads through `end`. Returns the text, and whether `end` arrived.
async fn read_until(tcp: &mut TcpStream, end: &str) -> (String, bool) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        match tcp.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => return (String::from_utf8_lossy(&bytes).into_owned(), false),
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), true)
}

async fn read_body(tcp: &mut TcpStream, request: &mut Recorded) -> bool {
    let (chunked, lengths) =
        (request.values("transfer-encoding").len(), request.values("content-length"));
    assert!(chunked + lengths.len() <= 1, "ambiguous: {}", request.head);
    let length = lengths.first().map_or(0, |length| length.parse().unwrap());
    if chunked == 0 {
        let mut body = vec![0; length];
        let whole = tcp.read_exact(&mut body).await.is_ok();
        request.body = String::from_utf8(body).unwrap();
        return whole;
    }
    loop {
        let (size, true) = read_until(tcp, "\r\n").await else { return false };
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        if tcp.read_exact(&mut chunk).await.is_err() {
            return false;
        }
        if size == 0 {
            return true;
        }
        chunk.truncate(size);
        request.body.push_str(&String::from_utf8(chunk).unwrap());
    }
}
