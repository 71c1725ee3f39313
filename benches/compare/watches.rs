//! The watches: so many on so many connections, opened at a revision so that nothing but changes comes.
//!
//! Most are read by a crowd, a runtime whose threads give way to all others: else lag would be how long this client needs for the other watches.

use std::ops::Range;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::changes::Watchable;
use crate::client::{Ask, Connection, JSON, PROTOBUF, Protocol, cache};
use crate::events::Reader;
use crate::pods;
use crate::server::{Server, UPSTREAM};

/// A row.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    pub(crate) what: Watchable,
    pub(crate) accept: &'static str,
    pub(crate) watches: usize,
    pub(crate) connections: usize,
    pub(crate) protocol: Protocol,
    /// Changes a second.
    pub(crate) rate: f64,
    /// Each watch is of one of so many nodes, or of all pods.
    pub(crate) nodes: Option<usize>,
    /// Whether the upstream is watched by as many too.
    pub(crate) upstream: bool,
    /// Whether a server's memory grows by these watches alone: beside a full cache, they take what it had freed.
    pub(crate) memory: bool,
}

/// So many watches of a row tell when events come; the others only count.
const SAMPLES: usize = 20;

/// A cache that is not there yet, in the worst case.
const READY: Duration = Duration::from_secs(120);

/// For a look, each has a fifth of its watches and connections.
pub(crate) fn rows(quick: bool) -> Vec<Watched> {
    let row = |name, watches, connections| Watched {
        name,
        what: Watchable::Pods,
        accept: JSON,
        watches,
        connections,
        protocol: Protocol::Http2,
        rate: 20.0,
        nodes: None,
        upstream: true,
        memory: false,
    };
    let memory =
        |row: Watched| Watched { what: Watchable::ConfigMaps, rate: 2.0, memory: true, ..row };
    let by_node =
        |row: Watched, nodes| Watched { accept: PROTOBUF, rate: 100.0, nodes: Some(nodes), ..row };
    let mut rows = vec![
        row("watch", 1_000, 20),
        Watched { accept: PROTOBUF, ..row("watch-protobuf", 1_000, 20) },
        row("watch-own-connection", 1_000, 1_000),
        // Each event for 20 watches, and for one.
        by_node(row("watch-by-node", 2_000, 40), pods::NODES),
        by_node(row("watch-by-node-few", 2_000, 40), 2_000),
        memory(row("watch-memory", 1_000, 20)),
        memory(row("watch-memory-own-connection", 1_000, 1_000)),
        Watched { protocol: Protocol::Http1, ..memory(row("watch-memory-http1", 1_000, 1_000)) },
        Watched { rate: 1.0, upstream: false, memory: true, ..row("watch-held", 20_000, 400) },
    ];
    if quick {
        for row in &mut rows {
            row.watches /= 5;
            row.connections /= 5;
        }
    }
    rows
}

impl Watched {
    fn ask(&self, server: &Server, from: &str, index: usize) -> Ask {
        let selector = self
            .nodes
            .map(|nodes| format!("&fieldSelector=spec.nodeName%3D{}", pods::node(index % nodes)));
        let accept = if self.accept == PROTOBUF {
            "application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            self.accept
        };
        let path = self.what.watch(from, &selector.unwrap_or_default());
        Ask::get(server, &path, accept, false)
    }

    /// Waits until its cache answers a watch; not, if it has none of the kind.
    pub(crate) async fn ready(&self, server: &Server, from: &str) -> bool {
        let deadline = Instant::now() + READY;
        loop {
            // Its own connection, with which it ends.
            let connection = Connection::open(server, self.protocol).await;
            let response = connection.send(&self.ask(server, from, 0)).await;
            if response.status() == StatusCode::NOT_FOUND && server.name != UPSTREAM {
                return false;
            }
            assert!(response.status().is_success(), "{}: {}", self.name, response.status());
            let told = cache(response.headers());
            if told.as_ref().is_none_or(|it| it.as_bytes().starts_with(b"hit")) {
                return true;
            }
            assert!(Instant::now() < deadline, "{} of {}: {told:?}", self.name, server.name);
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Opens them, connection by connection. [`SAMPLES`] of them, evenly among the others, are on connections of their own, of this runtime.
    pub(crate) async fn open(
        &self,
        server: &Server,
        from: &str,
        epoch: Instant,
        crowd: &Handle,
    ) -> Vec<Part> {
        let each = self.watches / self.connections;
        let sampled = (self.connections / SAMPLES).max(1);
        let mut parts = Vec::new();
        for connection in 0..self.connections {
            let (first, end) = (connection * each, (connection + 1) * each);
            let samples = usize::from(connection.is_multiple_of(sampled));
            let part = |watches, runtime: Handle, samples| {
                let (row, server, from) = (self.clone(), server.clone(), from.to_owned());
                let open = row.part(server, from, watches, epoch, samples);
                async move { runtime.spawn(open).await.expect("it opens") }
            };
            parts.push(part(first..end - samples, crowd.clone(), false).await);
            parts.push(part(end - samples..end, Handle::current(), true).await);
        }
        parts
    }

    /// One watch of the upstream's own, of all, which tells when an event left it.
    pub(crate) async fn reference(&self, upstream: &Server, from: &str, epoch: Instant) -> Part {
        let one = Self { nodes: None, protocol: Protocol::Http2, ..self.clone() };
        one.part(upstream.clone(), from.to_owned(), 0..1, epoch, true).await
    }

    /// Some of them, on one connection.
    async fn part(
        self,
        server: Server,
        from: String,
        watches: Range<usize>,
        epoch: Instant,
        samples: bool,
    ) -> Part {
        let mut part = Part { connection: None, readers: Vec::new(), runtime: Handle::current() };
        if watches.is_empty() {
            return part;
        }
        let connection = Connection::open(&server, self.protocol).await;
        let asks: Vec<_> = watches.map(|it| self.ask(&server, &from, it)).collect();
        for response in join_all(asks.iter().map(|ask| connection.send(ask))).await {
            assert!(response.status().is_success(), "{}: {}", self.name, response.status());
            part.readers.push(Reader::new(response, self.accept == PROTOBUF, samples, epoch));
        }
        part.connection = Some(connection);
        part
    }
}

/// Watches on one connection, which must be kept as long as they are read.
pub(crate) struct Part {
    pub(crate) connection: Option<Connection>,
    pub(crate) readers: Vec<Reader>,
    /// Where the connection is, and where it should be read.
    pub(crate) runtime: Handle,
}
