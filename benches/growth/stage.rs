//! A whole Weir before a simulator in this process, with 5,000 pods that can be changed at a steady rate.

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

pub(crate) struct Stage {
    upstream: Arc<Upstream>,
    weir: Weir,
    epoch: Instant,
}

/// What Weir spent on changes.
pub(crate) struct Spent {
    pub(crate) cpu_us: f64,
    pub(crate) events: f64,
    pub(crate) deliveries: f64,
    /// In milliseconds, from the change until it was read, sorted.
    pub(crate) lags: Vec<f64>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let pods = tokio::task::spawn_blocking(Pods::json).await.expect("a pod");
        let upstream = Upstream::start(pods, PODS).await;
        let weir = Weir::start(&upstream.kubeconfig(), json!({})).await;
        warm(weir.address).await;
        Self { upstream: Arc::new(upstream), weir, epoch: Instant::now() }
    }

    /// Watches of all pods, from now on.
    pub(crate) async fn watch(&self, count: usize) -> Watches {
        let from = self.upstream.resource_version();
        Watches::open(self.weir.address, count, from, self.epoch).await
    }

    /// Weir's, in bytes.
    pub(crate) fn resident(&self) -> f64 {
        resident(self.weir.proc().trim_start_matches("/proc/"))
    }

    /// Changes pods at a rate, for a time.
    pub(crate) async fn change(&self, rate: usize, time: Duration, watches: &Watches) -> Spent {
        watches.seen.lags();
        let (before, seen) = (self.threads(), watches.seen.events());
        let (upstream, epoch) = (Arc::clone(&self.upstream), self.epoch);
        let events = tokio::task::spawn_blocking(move || write(&upstream, rate, time, epoch));
        let events = events.await.expect("it ends");
        // What is on its way.
        let mut deliveries = 0;
        loop {
            sleep(Duration::from_millis(300)).await;
            let now = watches.seen.events() - seen;
            if now == std::mem::replace(&mut deliveries, now) {
                break;
            }
        }
        let after = self.threads();
        let spent = after.iter().map(|(thread, cpu)| cpu - before.get(thread).unwrap_or(&0.0));
        let mut lags = watches.seen.lags();
        lags.sort_by(f64::total_cmp);
        let (events, deliveries) = (events as f64, deliveries as f64);
        Spent { cpu_us: spent.sum(), events, deliveries, lags }
    }

    /// The CPU time of each of Weir's threads, in microseconds. One that ends takes what it spent since the last look with it, which only those do
    /// that had nothing to do for seconds.
    fn threads(&self) -> HashMap<String, f64> {
        let threads = fs::read_dir(format!("{}/task", self.weir.proc())).expect("it runs");
        let one = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
            Some((thread.file_name().to_string_lossy().into_owned(), nanoseconds / 1e3))
        };
        threads.flatten().filter_map(one).collect()
    }
}

/// How many changes it made.
fn write(upstream: &Upstream, rate: usize, time: Duration, epoch: Instant) -> usize {
    let (start, mut written) = (Instant::now(), 0);
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as usize + 1;
        while written < due && start.elapsed() < time {
            // Neighbours are of different nodes.
            upstream.change(written * 37 % PODS, epoch.elapsed().as_micros());
            written += 1;
        }
        std::thread::park_timeout(Duration::from_micros(500));
    }
    written
}

/// A runtime for the client and the simulator.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
