//! What watches cost: a row's watches of one server are opened, the upstream's objects change at a steady rate, and deliveries, their CPU
//! time, their lag and memory are taken.
//!
//! Lag is taken at the client: from just before a change is sent, and from when a watch of the upstream alone, beside the others, read the
//! event. The second is what a server adds, with what it takes to read the event here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::changes::Writer;
use crate::client::Connection;
use crate::events::Seen;
use crate::results::{Results, percentile};
use crate::server::Server;
use crate::usage::own_cpu;
use crate::watches::{Part, Watched};

/// How a row is measured.
#[derive(Clone)]
pub(crate) struct Manner {
    /// Where those watches are read that are only there to be many.
    pub(crate) crowd: Handle,
    /// How long there are changes.
    pub(crate) changing: Duration,
    /// How long it is before and after them until all is quiet.
    pub(crate) quiet: Duration,
}

/// Deliveries that do not come for so long don't come.
const MISSING: Duration = Duration::from_secs(20);

/// Watches that are read, until it ends.
struct Held {
    connections: Vec<Connection>,
    tasks: Vec<JoinHandle<()>>,
    seen: Arc<Seen>,
}

impl Held {
    fn read(parts: Vec<Part>) -> Self {
        let (seen, mut connections, mut tasks) = (Arc::default(), Vec::new(), Vec::new());
        for part in parts {
            let readers = part.readers.into_iter();
            tasks.extend(readers.map(|it| part.runtime.spawn(it.run(Arc::clone(&seen)))));
            connections.extend(part.connection);
        }
        Self { connections, tasks, seen }
    }

    /// Until so many are delivered, if it is known how many; what is delivered then.
    async fn delivered(&self, expected: Option<usize>, quiet: Duration) -> usize {
        let deadline = Instant::now() + expected.map_or(quiet, |_| MISSING);
        while Instant::now() < deadline && expected.is_none_or(|it| self.seen.deliveries() < it) {
            sleep(Duration::from_millis(10)).await;
        }
        self.seen.deliveries()
    }

    /// What was seen, and how many ended before.
    async fn end(self) -> (Arc<Seen>, usize) {
        let ended = self.tasks.iter().filter(|task| task.is_finished()).count();
        self.tasks.iter().for_each(JoinHandle::abort);
        join_all(self.tasks).await;
        drop(self.connections);
        (self.seen, ended)
    }
}

/// Opens the watches of one server, changes objects for a while, and closes them. Whether it serves such watches.
pub(crate) async fn measure(
    row: &Watched,
    upstream: &Server,
    server: &Server,
    manner: &Manner,
    results: &mut Results,
) -> bool {
    let writer = Writer::new(upstream, row.what).await;
    let from = writer.latest().await;
    if !row.ready(server, &from).await {
        return false;
    }
    sleep(manner.quiet).await;
    let probe_cost = server.usage.cost().await;
    let before = server.usage.used().await;
    let opening = Instant::now();
    let parts = row.open(server, &from, writer.epoch(), &manner.crowd).await;
    let opened = opening.elapsed();
    sleep(manner.quiet).await;
    let idle = server.usage.used().await;
    let reference = row.reference(upstream, &from, writer.epoch()).await;
    let (reference, held) = (Held::read(vec![reference]), Held::read(parts));

    let (upstream_before, own_before) = (upstream.usage.used().await, own_cpu());
    let start = server.usage.used().await;
    let events = writer.write(row.rate, manner.changing).await;
    let all = row.nodes.is_none().then_some(events * row.watches);
    let deliveries = held.delivered(all, manner.quiet).await;
    let end = server.usage.used().await;
    let (upstream_end, own_end) = (upstream.usage.used().await, own_cpu());
    reference.delivered(Some(events), manner.quiet).await;
    let ((reference, _), (seen, ended)) = (reference.end().await, held.end().await);

    let watches = row.watches as f64;
    let (lag, added) = seen.lags(&reference);
    let mut set = |what, value| results.set(row.name, server.name, what, value);
    set("watches", watches);
    set("open_s", opened.as_secs_f64());
    if row.memory {
        set("memory_per_watch_idle_bytes", (idle.resident - before.resident) / watches);
        set("memory_per_watch_bytes", (end.resident - before.resident) / watches);
    }
    set("resident_bytes", end.resident);
    set("events", events as f64);
    set("deliveries", deliveries as f64);
    set("ended", ended as f64);
    set("missing", all.map_or(f64::NAN, |all| all as f64 - deliveries as f64));
    set("cpu_s", end.told(end.cpu - start.cpu - probe_cost));
    set("waited_s", end.waited - start.waited);
    set("seconds", manner.changing.as_secs_f64());
    set("upstream_cpu_s", upstream_end.cpu - upstream_before.cpu);
    set("client_cpu_s", own_end - own_before);
    for (name, values) in [("lag", &lag), ("added_lag", &added)] {
        for percent in [50, 99] {
            results.set(
                row.name,
                server.name,
                &format!("{name}_p{percent}_ms"),
                percentile(values, percent),
            );
        }
    }
    // Let it put everything away.
    sleep(manner.quiet).await;
    true
}
