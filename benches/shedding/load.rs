//! Clients over HTTP/1.1: one that sends at a steady rate, and others that send the next request
//! when one is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// The pause after a refusal. It is shorter than the Retry-After, to press harder.
const BACK_OFF: Duration = Duration::from_millis(200);

/// A connection.
pub(crate) struct Connection {
    tcp: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.expect("weir listens");
        tcp.set_nodelay(true).expect("a socket");
        Self { tcp, buffer: Vec::with_capacity(64 << 10) }
    }

    /// Sends a GET, and reads the response to its end. Returns its status.
    pub(crate) async fn get(&mut self, path: &str, token: &str) -> u16 {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        self.tcp.write_all(request.as_bytes()).await.expect("the request is sent");
        self.buffer.clear();
        let body = loop {
            let read = self.tcp.read_buf(&mut self.buffer).await.expect("a response");
            assert!(read > 0, "the connection ended");
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = self.buffer.get(..body).unwrap_or_default();
        let head = std::str::from_utf8(head).expect("a head is ASCII").to_ascii_lowercase();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        match length.map(|text| text.trim().parse::<usize>().expect("a length")) {
            Some(length) => {
                let mut rest = length - (self.buffer.len() - body);
                while rest > 0 {
                    self.buffer.clear();
                    rest -= self.tcp.read_buf(&mut self.buffer).await.expect("a body");
                }
            }
            // Chunked. There is no pipelined response after it.
            None => {
                while !self.buffer.ends_with(b"0\r\n\r\n") {
                    let kept = self.buffer.len().saturating_sub(5);
                    self.buffer.drain(..kept);
                    self.tcp.read_buf(&mut self.buffer).await.expect("a body");
                }
            }
        }
        code
    }
}

/// The results of a client at a steady rate.
pub(crate) struct Latencies {
    sorted: Vec<f64>,
    pub(crate) refused: usize,
}

impl Latencies {
    /// Returns a percentile in milliseconds.
    pub(crate) fn at(&self, percent: f64) -> f64 {
        let place = (self.sorted.len().saturating_sub(1) as f64 * percent / 100.0).round();
        self.sorted.get(place as usize).copied().unwrap_or(f64::NAN)
    }
}

/// Sends `rate` requests a second for a while. Each begins when it is due.
pub(crate) async fn steady(
    address: SocketAddr,
    path: &'static str,
    token: &str,
    rate: f64,
    time: Duration,
) -> Latencies {
    let idle = Arc::new(Mutex::new(Vec::<Connection>::new()));
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    while start.elapsed() < time {
        let due = ticks.tick().await;
        let (idle, token) = (Arc::clone(&idle), token.to_owned());
        tasks.spawn(async move {
            let connection = idle.lock().pop();
            let mut connection = match connection {
                Some(connection) => connection,
                None => Connection::open(address).await,
            };
            let code = connection.get(path, &token).await;
            let taken = due.elapsed().as_secs_f64() * 1e3;
            idle.lock().push(connection);
            (taken, code)
        });
    }
    let answers = tasks.join_all().await;
    let refused = answers.iter().filter(|(_, code)| *code != 200).count();
    let mut sorted: Vec<f64> = answers.into_iter().map(|(taken, _)| taken).collect();
    sorted.sort_by(f64::total_cmp);
    Latencies { sorted, refused }
}

/// Clients that send the next request when one is answered, until it is dropped.
pub(crate) struct Crowd {
    /// Requests answered with 200, by client.
    pub(crate) served: Vec<Arc<AtomicUsize>>,
    pub(crate) refused: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Crowd {
    /// Begins with `at_once` requests at once for each token.
    pub(crate) fn start(
        address: SocketAddr,
        path: &'static str,
        tokens: &[String],
        at_once: usize,
    ) -> Self {
        let served: Vec<Arc<AtomicUsize>> = tokens.iter().map(|_| Arc::default()).collect();
        let refused = Arc::<AtomicUsize>::default();
        let mut tasks = JoinSet::new();
        for (token, served) in tokens.iter().zip(&served) {
            for _ in 0..at_once {
                let (token, served, refused) =
                    (token.clone(), Arc::clone(served), Arc::clone(&refused));
                tasks.spawn(async move {
                    let mut connection = Connection::open(address).await;
                    loop {
                        if connection.get(path, &token).await == 200 {
                            served.fetch_add(1, Ordering::Relaxed);
                        } else {
                            refused.fetch_add(1, Ordering::Relaxed);
                            sleep(BACK_OFF).await;
                        }
                    }
                });
            }
        }
        Self { served, refused, _tasks: tasks }
    }

    /// Returns the number of served requests of each client.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.served.iter().map(|served| served.load(Ordering::Relaxed)).collect()
    }
}
