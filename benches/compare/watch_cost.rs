//! Measures the cost of watches. It opens a row's watches of one server and changes the upstream's
//! objects at a steady rate. It measures deliveries, their CPU time and lag, and memory.
//!
//! Lag is measured at the client, in two ways: from just before a change is sent, and from when an
//! additional watch of the upstream itself received the event. The second is the lag that the
//! server adds, including the time to read the event here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::changes::Writer;
use crate::client::Connection;
use crate::events::Observations;
use crate::results::{Results, percentile};
use crate::server::Server;
use crate::usage::own_cpu;
use crate::watches::{ConnectionWatches, WatchRow};

/// How rows of watches are measured.
#[derive(Clone)]
pub(crate) struct MeasureOptions {
    /// The low-priority runtime that reads all watches except the sampled ones.
    pub(crate) background: Handle,
    /// The duration of the changes.
    pub(crate) changing: Duration,
    /// The pause before and after the changes, in which the servers become idle.
    pub(crate) quiet: Duration,
}

/// The time to wait for all deliveries. Later ones count as missing.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Open watches that tasks read.
struct OpenWatches {
    connections: Vec<Connection>,
    tasks: Vec<JoinHandle<()>>,
    observations: Arc<Observations>,
}

impl OpenWatches {
    fn start(parts: Vec<ConnectionWatches>) -> Self {
        let (observations, mut connections, mut tasks) = (Arc::default(), Vec::new(), Vec::new());
        for part in parts {
            let readers = part.readers.into_iter();
            tasks.extend(
                readers.map(|reader| part.runtime.spawn(reader.run(Arc::clone(&observations)))),
            );
            connections.extend(part.connection);
        }
        Self { connections, tasks, observations }
    }

    /// Waits for `expected` deliveries or [`DELIVERY_TIMEOUT`]; if the number is not known, waits
    /// for `quiet`. Returns the number of deliveries.
    async fn wait_for_deliveries(&self, expected: Option<usize>, quiet: Duration) -> usize {
        let deadline = Instant::now() + expected.map_or(quiet, |_| DELIVERY_TIMEOUT);
        while Instant::now() < deadline
            && expected.is_none_or(|expected| self.observations.deliveries() < expected)
        {
            sleep(Duration::from_millis(10)).await;
        }
        self.observations.deliveries()
    }

    /// Closes all watches. Returns their observations, and how many the server had ended before.
    async fn end(self) -> (Arc<Observations>, usize) {
        let ended = self.tasks.iter().filter(|task| task.is_finished()).count();
        self.tasks.iter().for_each(JoinHandle::abort);
        join_all(self.tasks).await;
        drop(self.connections);
        (self.observations, ended)
    }
}

/// Measures a row with one server. Returns whether the server supports such watches.
pub(crate) async fn measure(
    row: &WatchRow,
    upstream: &Server,
    server: &Server,
    options: &MeasureOptions,
    results: &mut Results,
) -> bool {
    let writer = Writer::new(upstream, row.resource).await;
    let from = writer.latest().await;
    if !row.ready(server, &from).await {
        return false;
    }
    sleep(options.quiet).await;
    let probe_cost = server.usage.sampling_cost().await;
    let before = server.usage.sample().await;
    let opening = Instant::now();
    let parts = row.open(server, &from, writer.epoch(), &options.background).await;
    let opened = opening.elapsed();
    sleep(options.quiet).await;
    let idle = server.usage.sample().await;
    let reference = row.reference(upstream, &from, writer.epoch()).await;
    let (reference, held) = (OpenWatches::start(vec![reference]), OpenWatches::start(parts));

    let (upstream_before, own_before) = (upstream.usage.sample().await, own_cpu());
    let start = server.usage.sample().await;
    let events = writer.write(row.rate, options.changing).await;
    let expected_deliveries = row.nodes.is_none().then_some(events * row.watches);
    let deliveries = held.wait_for_deliveries(expected_deliveries, options.quiet).await;
    let end = server.usage.sample().await;
    let (upstream_end, own_end) = (upstream.usage.sample().await, own_cpu());
    reference.wait_for_deliveries(Some(events), options.quiet).await;
    let ((reference, _), (observations, ended)) = (reference.end().await, held.end().await);

    let watches = row.watches as f64;
    let (lag, added) = observations.lags(&reference);
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
    set(
        "missing",
        expected_deliveries
            .map_or(f64::NAN, |expected_deliveries| expected_deliveries as f64 - deliveries as f64),
    );
    set("cpu_s", end.cpu_if_resolved(end.cpu - start.cpu - probe_cost));
    set("waited_s", end.waited - start.waited);
    set("seconds", options.changing.as_secs_f64());
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
    // Lets the server clean up after its watches.
    sleep(options.quiet).await;
    true
}
