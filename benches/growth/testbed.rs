//! A Weir process in front of an upstream in this process, with 5,000 pods that can be changed at a
//! steady rate.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::client::{Watches, warm};
use crate::memory::resident;
use crate::pods::Pods;
use crate::upstream::Upstream;
use crate::weir_process::Weir;

const PODS: usize = 5_000;

pub(crate) struct Testbed {
    upstream: Arc<Upstream>,
    weir: Weir,
    epoch: Instant,
}

/// The cost of a series of changes in Weir.
pub(crate) struct ChangeCost {
    pub(crate) cpu_us: f64,
    pub(crate) events: f64,
    pub(crate) deliveries: f64,
    /// Milliseconds from each change until the client reads it, sorted.
    pub(crate) lags: Vec<f64>,
}

impl Testbed {
    pub(crate) async fn start() -> Self {
        let pods = tokio::task::spawn_blocking(Pods::json).await.expect("a pod");
        let upstream = Upstream::start(pods, PODS).await;
        let weir = Weir::start(upstream.kubeconfig(), json!({})).await;
        warm(weir.address, "/api/v1/pods").await;
        Self { upstream: Arc::new(upstream), weir, epoch: Instant::now() }
    }

    /// Opens watches of all pods that start at the current revision.
    pub(crate) async fn watch(&self, count: usize) -> Watches {
        let from = self.upstream.resource_version();
        Watches::open(self.weir.address, count, from, self.epoch).await
    }

    /// Returns the resident memory of Weir in bytes.
    pub(crate) fn resident(&self) -> f64 {
        resident(self.weir.proc().trim_start_matches("/proc/"))
    }

    /// Changes `rate` pods per second for `time` and returns the cost.
    pub(crate) async fn change(
        &self,
        rate: usize,
        time: Duration,
        watches: &Watches,
    ) -> ChangeCost {
        watches.observations.lags();
        let (before, events_before) = (self.threads(), watches.observations.events());
        let (upstream, epoch) = (Arc::clone(&self.upstream), self.epoch);
        let events = tokio::task::spawn_blocking(move || write(&upstream, rate, time, epoch));
        let events = events.await.expect("the writer ends");
        // Waits until no more events arrive.
        let mut deliveries = 0;
        loop {
            sleep(Duration::from_millis(300)).await;
            let now = watches.observations.events() - events_before;
            if now == std::mem::replace(&mut deliveries, now) {
                break;
            }
        }
        let after = self.threads();
        let spent = after.iter().map(|(thread, cpu)| cpu - before.get(thread).unwrap_or(&0.0));
        let mut lags = watches.observations.lags();
        lags.sort_by(f64::total_cmp);
        let (events, deliveries) = (events as f64, deliveries as f64);
        ChangeCost { cpu_us: spent.sum(), events, deliveries, lags }
    }

    /// Returns the CPU time of each of Weir's threads in microseconds. The time of a thread that
    /// ends between two calls is lost; only threads that were idle for seconds end.
    fn threads(&self) -> HashMap<String, f64> {
        let threads = fs::read_dir(format!("{}/task", self.weir.proc())).expect("weir runs");
        let one = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
            Some((thread.file_name().to_string_lossy().into_owned(), nanoseconds / 1e3))
        };
        threads.flatten().filter_map(one).collect()
    }
}

/// Changes pods and returns the number of changes.
fn write(upstream: &Upstream, rate: usize, time: Duration, epoch: Instant) -> usize {
    let (start, mut written) = (Instant::now(), 0);
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as usize + 1;
        while written < due && start.elapsed() < time {
            // Consecutive changes are of pods on different nodes.
            upstream.change(written * 37 % PODS, epoch.elapsed().as_micros());
            written += 1;
        }
        std::thread::park_timeout(Duration::from_micros(500));
    }
    written
}

/// Runs a future on a runtime for the client and the simulator.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
