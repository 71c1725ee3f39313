//! HTTP/1.1 clients of the bench, which count a body and do not keep it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::name;
use crate::token::token;

pub(crate) const POD: &str = "/api/v1/namespaces/default/pods/pod-00042?resourceVersion=0";
pub(crate) const LIST: &str = "/api/v1/pods?resourceVersion=0";
pub(crate) const LIST_FORWARDED: &str = "/api/v1/pods";
pub(crate) const POD_FORWARDED: &str = "/api/v1/namespaces/default/pods/pod-00042";
/// The bytes that the kernel holds for a client that has not read them. Without this limit, the
/// kernel holds up to 32 MiB for each. Clients of other machines have memory of their own for that;
/// here 200 of them would fill the one that Weir's connections use, and the kernel would drop
/// everybody's segments.
const RECEIVED_BYTES_MAX: u32 = 256 << 10;
/// A request that is sent later than this after it was due counts from then.
const TIMER: Duration = Duration::from_millis(2);
/// Slow requests whose due times are this far apart are separate groups.
const APART: Duration = Duration::from_millis(100);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/node";

/// A connection of one user.
pub(crate) struct Client {
    tcp: TcpStream,
    token: String,
    buffer: Vec<u8>,
}

/// A response.
pub(crate) struct Got {
    pub(crate) code: u16,
    pub(crate) bytes: usize,
}

impl Client {
    pub(crate) async fn open(user: usize, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(RECEIVED_BYTES_MAX).expect("a size");
        let tcp = socket.connect(address).await.expect("it listens");
        tcp.set_nodelay(true).expect("a socket");
        Self { tcp, token: token(&name(user)), buffer: vec![0; 256 << 10] }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Got {
        self.ask("GET", path, "").await;
        self.read().await
    }

    /// Renews the lease, as a node does.
    pub(crate) async fn renew(&mut self, number: usize) -> Got {
        let body = format!("{{\"spec\":{{\"leaseTransitions\":{number}}}}}");
        self.ask("PATCH", LEASE, &body).await;
        self.read().await
    }

    /// Sends a request without reading the response.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) {
        let Self { token, .. } = self;
        let content = match body.len() {
            0 => String::new(),
            length => format!(
                "content-type: application/merge-patch+json\r\ncontent-length: {length}\r\n"
            ),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{content}\r\n{body}"
        );
        self.tcp.write_all(request.as_bytes()).await.expect("it is taken");
    }

    async fn read(&mut self) -> Got {
        let mut filled = 0;
        let head = loop {
            let rest = self.buffer.get_mut(filled..).expect("a head is short");
            let read = self.tcp.read(rest).await.expect("it answers");
            assert!(read > 0, "weir closed the connection");
            filled += read;
            let got = self.buffer.get(..filled).expect("it was read");
            if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(self.buffer.get(..head).expect("a head")).to_lowercase();
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut bytes = filled - head;
        match length.map(|length| length.trim().parse::<usize>().expect("a length")) {
            Some(length) => {
                while bytes < length {
                    bytes += self.more().await.len();
                }
            }
            // Chunked: the last chunk is empty.
            None => {
                let mut end = self.buffer.get(head..filled).expect("a body").to_vec();
                while !end.ends_with(b"0\r\n\r\n") {
                    let more = self.more().await;
                    bytes += more.len();
                    let kept = more.len().saturating_sub(16);
                    end.extend_from_slice(more.get(kept..).expect("an end"));
                    end = end.split_off(end.len().saturating_sub(16));
                }
            }
        }
        Got { code, bytes }
    }

    async fn more(&mut self) -> &[u8] {
        let read = self.tcp.read(&mut self.buffer).await.expect("it answers");
        assert!(read > 0, "weir closed the connection");
        self.buffer.get(..read).expect("it was read")
    }
}

/// The request that a client sends at a steady rate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Steady {
    Get(&'static str),
    Renew,
}

/// The latencies of a client, and how many requests failed.
#[derive(Default)]
pub(crate) struct Latencies {
    times: Vec<Duration>,
    failed: usize,
    /// When the requests were due, since the first, how long they took, and for how much of that
    /// the client had not sent them.
    each: Vec<(Duration, Duration, Duration)>,
}

impl Latencies {
    pub(crate) fn at(&self, of_hundred: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let place = (times.len() * of_hundred / 100).min(times.len().saturating_sub(1));
        times.get(place).copied().unwrap_or_default().as_secs_f64() * 1e3
    }

    /// Returns when requests took longer than `least`, as text: those that follow each other within
    /// a tenth of a second are one group.
    pub(crate) fn slow(&self, least: Duration) -> String {
        let mut slow: Vec<_> = self.each.iter().filter(|(_, taken, _)| *taken > least).collect();
        slow.sort_unstable();
        let mut groups: Vec<Vec<_>> = Vec::new();
        for one in slow {
            match groups.last_mut().filter(|group| {
                group.last().is_some_and(|(last, ..): &&(Duration, _, _)| one.0 < *last + APART)
            }) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        let texts = groups.iter().map(|group| {
            let first = group.first().map_or(0.0, |(due, ..)| due.as_secs_f64());
            let most = group.iter().map(|(_, taken, _)| taken.as_millis()).max().unwrap_or(0);
            let late = group.iter().map(|(.., late)| late.as_millis()).max().unwrap_or(0);
            let count = group.len();
            format!("{count} at {first:.2} s, up to {most} ms (sent up to {late} ms late)")
        });
        texts.collect::<Vec<_>>().join("; ")
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, failed) = (self.times.len(), self.failed);
        let (p50, p99) = (self.at(50), self.at(99));
        write!(f, "{count} answers, {failed} failed, p50 {p50:.2} ms, p99 {p99:.2} ms")
    }
}

/// Sends requests of a user at a steady rate until `ended` is set. A time begins when its request
/// was due. As in Go's client, a request does not wait for the one before it: it uses an idle
/// connection, or opens another.
pub(crate) async fn steady(
    user: usize,
    address: SocketAddr,
    what: Steady,
    every: Duration,
    ended: Arc<AtomicBool>,
) -> Latencies {
    let idle = Arc::new(Mutex::new(vec![Client::open(user, address).await]));
    let began = Instant::now();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut answers = JoinSet::new();
    while !ended.load(Ordering::Relaxed) {
        let due: Instant = ticks.tick().await;
        let sent = Instant::now();
        let (idle, number) = (Arc::clone(&idle), answers.len());
        answers.spawn(async move {
            let free = idle.lock().pop();
            let mut client = match free {
                Some(client) => client,
                None => Client::open(user, address).await,
            };
            let got = match what {
                Steady::Get(path) => client.get(path).await,
                Steady::Renew => client.renew(number).await,
            };
            let late = sent.saturating_duration_since(due);
            // The runtime's timer has a resolution of a millisecond, and so has the kernel's wait.
            let taken = if late < TIMER { sent.elapsed() } else { due.elapsed() };
            idle.lock().push(client);
            (due.saturating_duration_since(began), taken, late, got.code != 200)
        });
    }
    let mut latencies = Latencies::default();
    for (due, taken, late, failed) in answers.join_all().await {
        latencies.times.push(taken);
        latencies.each.push((due, taken, late));
        latencies.failed += usize::from(failed);
    }
    latencies
}
