//! The rows of watches: a number of watches on a number of connections. They start after the
//! current revision, so that they receive only changes.
//!
//! Most of them are read by background threads with a lower priority. Otherwise the measured lag
//! would be the time that this client needs for the other watches.

use std::ops::Range;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::changes::Watchable;
use crate::client::{Connection, JSON, PROTOBUF, PreparedRequest, Protocol, cache};
use crate::events::Reader;
use crate::pods;
use crate::server::{Server, UPSTREAM};

/// A row of watches.
#[derive(Clone)]
pub(crate) struct WatchRow {
    pub(crate) name: &'static str,
    pub(crate) resource: Watchable,
    pub(crate) accept: &'static str,
    pub(crate) watches: usize,
    pub(crate) connections: usize,
    pub(crate) protocol: Protocol,
    /// Changes per second.
    pub(crate) rate: f64,
    /// The number of nodes: each watch selects the pods of one node. `None` if each watch is of all
    /// pods.
    pub(crate) nodes: Option<usize>,
    /// Whether the upstream is measured too.
    pub(crate) upstream: bool,
    /// Whether memory per watch is measured. A large cache frees memory when it is filled, which
    /// watches reuse.
    pub(crate) memory: bool,
}

/// The number of watches whose arrival times are recorded. The others only count events.
const SAMPLES: usize = 20;

/// The time to wait for a cache that is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns all rows. Each has only a fifth of its watches and connections if `quick` is set.
pub(crate) fn rows(quick: bool) -> Vec<WatchRow> {
    let row = |name, watches, connections| WatchRow {
        name,
        resource: Watchable::Pods,
        accept: JSON,
        watches,
        connections,
        protocol: Protocol::Http2,
        rate: 20.0,
        nodes: None,
        upstream: true,
        memory: false,
    };
    let memory = |row: WatchRow| WatchRow {
        resource: Watchable::ConfigMaps,
        rate: 2.0,
        memory: true,
        ..row
    };
    let by_node = |row: WatchRow, nodes| WatchRow {
        accept: PROTOBUF,
        rate: 100.0,
        nodes: Some(nodes),
        ..row
    };
    let mut rows = vec![
        row("watch", 1_000, 20),
        WatchRow { accept: PROTOBUF, ..row("watch-protobuf", 1_000, 20) },
        row("watch-own-connection", 1_000, 1_000),
        // Each event matches 20 watches in the first row and one in the second.
        by_node(row("watch-by-node", 2_000, 40), pods::NODES),
        by_node(row("watch-by-node-few", 2_000, 40), 2_000),
        memory(row("watch-memory", 1_000, 20)),
        memory(row("watch-memory-own-connection", 1_000, 1_000)),
        WatchRow { protocol: Protocol::Http1, ..memory(row("watch-memory-http1", 1_000, 1_000)) },
        WatchRow { rate: 1.0, upstream: false, memory: true, ..row("watch-held", 20_000, 400) },
    ];
    if quick {
        for row in &mut rows {
            row.watches /= 5;
            row.connections /= 5;
        }
    }
    rows
}

impl WatchRow {
    fn request(&self, server: &Server, from: &str, index: usize) -> PreparedRequest {
        let selector = self
            .nodes
            .map(|nodes| format!("&fieldSelector=spec.nodeName%3D{}", pods::node(index % nodes)));
        let accept = if self.accept == PROTOBUF {
            "application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            self.accept
        };
        let path = self.resource.watch(from, &selector.unwrap_or_default());
        PreparedRequest::get(server, &path, accept, false)
    }

    /// Waits until the server's cache answers a watch. Returns whether the server supports such
    /// watches.
    pub(crate) async fn ready(&self, server: &Server, from: &str) -> bool {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            // A separate connection, whose end closes the watch.
            let connection = Connection::open(server, self.protocol).await;
            let response = connection.send(&self.request(server, from, 0)).await;
            if response.status() == StatusCode::NOT_FOUND && server.name != UPSTREAM {
                return false;
            }
            assert!(response.status().is_success(), "{}: {}", self.name, response.status());
            let cache_status = cache(response.headers());
            if cache_status.as_ref().is_none_or(|status| status.as_bytes().starts_with(b"hit")) {
                return true;
            }
            assert!(
                Instant::now() < deadline,
                "{} of {}: {cache_status:?}",
                self.name,
                server.name
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Opens all watches, connection by connection. [`SAMPLES`] of them, spread evenly among the
    /// others, have separate connections on this runtime.
    pub(crate) async fn open(
        &self,
        server: &Server,
        from: &str,
        epoch: Instant,
        background: &Handle,
    ) -> Vec<ConnectionWatches> {
        let each = self.watches / self.connections;
        let sampled = (self.connections / SAMPLES).max(1);
        let mut parts = Vec::new();
        for connection in 0..self.connections {
            let (first, end) = (connection * each, (connection + 1) * each);
            let samples = usize::from(connection.is_multiple_of(sampled));
            let part = |watches, runtime: Handle, samples| {
                let (row, server, from) = (self.clone(), server.clone(), from.to_owned());
                let open = row.open_on_one_connection(server, from, watches, epoch, samples);
                async move { runtime.spawn(open).await.expect("the watches open") }
            };
            parts.push(part(first..end - samples, background.clone(), false).await);
            parts.push(part(end - samples..end, Handle::current(), true).await);
        }
        parts
    }

    /// Opens a watch of all objects at the upstream itself. It records when the upstream has sent
    /// an event.
    pub(crate) async fn reference(
        &self,
        upstream: &Server,
        from: &str,
        epoch: Instant,
    ) -> ConnectionWatches {
        let one = Self { nodes: None, protocol: Protocol::Http2, ..self.clone() };
        one.open_on_one_connection(upstream.clone(), from.to_owned(), 0..1, epoch, true).await
    }

    /// Opens the watches with these indexes on one connection.
    async fn open_on_one_connection(
        self,
        server: Server,
        from: String,
        watches: Range<usize>,
        epoch: Instant,
        samples: bool,
    ) -> ConnectionWatches {
        let mut part =
            ConnectionWatches { connection: None, readers: Vec::new(), runtime: Handle::current() };
        if watches.is_empty() {
            return part;
        }
        let connection = Connection::open(&server, self.protocol).await;
        let requests: Vec<_> = watches.map(|number| self.request(&server, &from, number)).collect();
        for response in join_all(requests.iter().map(|request| connection.send(request))).await {
            assert!(response.status().is_success(), "{}: {}", self.name, response.status());
            part.readers.push(Reader::new(response, self.accept == PROTOBUF, samples, epoch));
        }
        part.connection = Some(connection);
        part
    }
}

/// Watches on one connection. The connection must be kept while they are read.
pub(crate) struct ConnectionWatches {
    pub(crate) connection: Option<Connection>,
    pub(crate) readers: Vec<Reader>,
    /// The runtime of the connection, on which the readers should run too.
    pub(crate) runtime: Handle,
}
