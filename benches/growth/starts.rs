//! Many clients that read their initial events for minutes, each through a link of 1 Mbit/s, and
//! one beside them that reads at once. Every client must get all objects and all later events.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde_json::json;
use socket2::SockRef;
use tokio::time::Instant;
use weir::api::resource::Representation;

use crate::curve::{Curve, Law, Series};
use crate::frames::{CHANGED, Kind};
use crate::ingest::{DONE, read_until_done, watch_one};
use crate::memory::{peak, resident};
use crate::source::{COLLECTION, Source};
use crate::testbed::block_on;
use crate::weir_process::Weir;

const CLIENTS: [usize; 2] = [250, 1_000];
const OBJECTS: usize = 5_000;
const OBJECT_BYTES: usize = 4_000;
const BYTES_PER_S: usize = 125_000;
/// How long objects change: until all initial events are read.
const TIME: Duration = Duration::from_secs(165);
const EVENTS_PER_S: usize = 10;
/// The events of the time in which the clients begin.
const BEGIN_EVENTS_MAX: usize = 2 * EVENTS_PER_S;
/// One of this number of events is of the object that the fast client watches.
const EVENTS_PER_WATCHED: u64 = 2;
const TICK: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(400);

pub(crate) fn grow() -> Curve {
    let mut points: [Vec<(f64, f64)>; 5] = Default::default();
    for count in CLIENTS {
        for (points, value) in points.iter_mut().zip(measure(count)) {
            points.push((count as f64, value));
        }
    }
    let names = [
        ("memory of a client at the most, bytes", Some(Law::Constant)),
        ("CPU of a client, ms", None),
        ("lag of the fast one, p50, ms", None),
        ("p99, ms", None),
        ("the longest, ms", None),
    ];
    let series = names.into_iter().zip(points);
    Curve {
        title: "Clients that take minutes for their initial events of 20 MB",
        x: "clients",
        y: "as named",
        series: series.map(|((name, law), points)| Series::new(name, law, points)).collect(),
    }
}

/// Returns the values in the order of their names.
fn measure(count: usize) -> [f64; 5] {
    block_on(async {
        let (source, kubeconfig) = Source::start(OBJECTS, OBJECT_BYTES, false).await;
        let weir = Weir::start(&kubeconfig, json!({"cache": {"verify": "off"}})).await;
        let mut watch = watch_one(weir.address, Representation::Protobuf).await;
        let pid = weir.pid().to_string();
        let (memory, cpu, address) = (resident(&pid), weir.cpu(), weir.address);
        let (first, opened) = (source.resource_version(), tokio::sync::oneshot::channel());
        let clients = tokio::task::spawn_blocking(move || {
            let clients = (0..count).map(|_| Client::open(address)).collect();
            opened.0.send(()).expect("the bench waits");
            read_all(clients)
        });
        opened.1.await.expect("all are opened");
        let writer = Arc::clone(&source);
        let sent = tokio::task::spawn_blocking(move || {
            let event = |number: u64| match number.is_multiple_of(EVENTS_PER_WATCHED) {
                true => (Kind::Modified, 0),
                false => (Kind::Modified, number % OBJECTS as u64),
            };
            writer.send(EVENTS_PER_S, TIME, event, DONE)
        });
        let mut lags = read_until_done(&mut watch, source.epoch()).await;
        let events = sent.await.expect("the writer ends");
        let read = clients.await.expect("the clients end");
        assert!(source.resource_version() >= first + events as u64);
        // The first events may be in the initial state of the clients that were opened last.
        let all = OBJECTS + events;
        let complete = read.iter().filter(|read| (all - BEGIN_EVENTS_MAX..=all).contains(read));
        assert_eq!(complete.count(), count, "clients that have all objects and events");
        lags.sort_by(f64::total_cmp);
        let lag = |percent: usize| {
            lags.get((lags.len() * percent / 100).min(lags.len() - 1)).copied().unwrap_or(f64::NAN)
        };
        let clients = count as f64;
        [
            (peak(&pid) - memory) / clients,
            (weir.cpu() - cpu).as_secs_f64() * 1e3 / clients,
            lag(50),
            lag(99),
            lag(100),
        ]
    })
}

/// A client of HTTP/1.1 that reads a watch, and counts what it has.
struct Client {
    stream: TcpStream,
    /// The end of what was read, which may have the begin of [`CHANGED`].
    rest: Vec<u8>,
    read: usize,
    bytes: usize,
    is_done: bool,
}

impl Client {
    fn open(weir: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(weir).expect("Weir listens");
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=3600";
        let head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: application/vnd.kubernetes.protobuf";
        write!(stream, "GET {COLLECTION}?{query} {head}\r\n\r\n").expect("a request");
        stream.set_nonblocking(true).expect("a socket");
        // Else the kernel reads megabytes ahead.
        SockRef::from(&stream).set_recv_buffer_size(1 << 16).expect("a socket");
        Self { stream, rest: Vec::new(), read: 0, bytes: 0, is_done: false }
    }

    /// Reads up to `allowed` bytes in all.
    fn read(&mut self, allowed: usize, buffer: &mut [u8]) {
        while self.bytes < allowed && !self.is_done {
            let most = buffer.len().min(allowed - self.bytes);
            let Some(part) = buffer.get_mut(..most) else { return };
            match self.stream.read(part) {
                Ok(0) => {
                    let head = self.rest.get(..300.min(self.rest.len())).unwrap_or_default();
                    let text = String::from_utf8_lossy(head);
                    unreachable!("the watch ended after {} objects and events: {text}", self.read);
                }
                Ok(length) => {
                    self.bytes += length;
                    self.count(part.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => unreachable!("{error} after {} objects and events", self.read),
            }
        }
    }

    fn count(&mut self, part: &[u8]) {
        self.rest.extend_from_slice(part);
        let last = format!("{CHANGED}{DONE}");
        self.is_done = memmem::find(&self.rest, last.as_bytes()).is_some();
        // The last one has the longer text, and is counted with the others.
        self.read += memmem::find_iter(&self.rest, CHANGED.as_bytes()).count();
        let kept = memmem::rfind(&self.rest, CHANGED.as_bytes()).unwrap_or_default();
        let from = kept.max(self.rest.len().saturating_sub(last.len()));
        self.rest.drain(..from);
        // It is counted again with the next part if it is whole.
        self.read -= usize::from(!self.is_done && self.rest.starts_with(CHANGED.as_bytes()));
    }
}

/// Reads all clients at their rate until each has the last event. Returns the objects and events
/// that each has read.
fn read_all(mut clients: Vec<Client>) -> Vec<usize> {
    let (begun, mut buffer) = (Instant::now(), vec![0; 1 << 16]);
    while clients.iter().any(|client| !client.is_done) {
        assert!(begun.elapsed() < TIMEOUT, "not all clients have all events");
        let allowed = (begun.elapsed().as_secs_f64() * BYTES_PER_S as f64) as usize;
        for client in &mut clients {
            client.read(allowed, &mut buffer);
        }
        std::thread::park_timeout(TICK);
    }
    clients.iter().map(|client| client.read).collect()
}
