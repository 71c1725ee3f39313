//! The cost of a population to Weir and kube-apiserver.

use std::collections::BTreeMap;
use std::time::Instant;

use super::testbed::Testbed;
use crate::support::sum_metric;

/// The counters of both processes at one time.
pub(super) struct Sample {
    at: Instant,
    /// Requests that reached kube-apiserver, by verb and resource.
    requests: BTreeMap<String, f64>,
    /// CPU seconds of kube-apiserver, and of Weir.
    cpu: [f64; 2],
}

impl Sample {
    pub(super) fn take(testbed: &Testbed) -> Self {
        let metrics = testbed.plane.get("/metrics").expect("metrics");
        let cpu = [sum_metric(&metrics, CPU, &[]), testbed.weir().cpu().as_secs_f64()];
        Self { at: Instant::now(), requests: requests(&metrics), cpu }
    }

    /// Prints the costs since this sample, in a second or, of something that happens once, in all.
    pub(super) fn print_since(&self, testbed: &Testbed, once: bool) {
        let metrics = testbed.plane.get("/metrics").expect("metrics");
        let seconds = self.at.elapsed().as_secs_f64();
        let divisor = if once { 1.0 } else { seconds };
        let cpu = [sum_metric(&metrics, CPU, &[]), testbed.weir().cpu().as_secs_f64()];
        let [api, weir] = [0, 1].map(|which| since(cpu[which], self.cpu[which]) / divisor);
        let memory = [sum_metric(&metrics, MEMORY, &[]), testbed.weir().metric(MEMORY, &[])];
        let [api_memory, weir_memory] = memory.map(|bytes| bytes / MEBIBYTE);
        let unit = if once { "CPU s" } else { "cores" };
        eprintln!(
            "  {seconds:.0} s; Weir {weir:.3} {unit}, {weir_memory:.0} MiB; kube-apiserver {api:.3} {unit}, \
             {api_memory:.0} MiB"
        );
        let after = requests(&metrics);
        let more = after.iter().map(|(name, count)| {
            let before = self.requests.get(name).copied().unwrap_or(0.0);
            (name, since(*count, before) / divisor)
        });
        let more: Vec<_> = more
            .filter(|(_, count)| *count > 0.0)
            .map(|(name, count)| format!("{name} {count:.*}", if once { 0 } else { 2 }))
            .collect();
        eprintln!(
            "  at kube-apiserver{}: {}",
            if once { "" } else { ", a second" },
            more.join(", ")
        );
    }
}

/// Prints what was seen of changes.
pub(super) fn print_lags(what: &str, mut lags: Vec<f64>) {
    lags.sort_by(f64::total_cmp);
    let at = |percent: usize| lags.get(lags.len().saturating_sub(1) * percent / 100);
    let [p50, p99] = [50, 99].map(|percent| at(percent).copied().unwrap_or(f64::NAN));
    eprintln!("  {what}: {} events, p50 {p50:.1} ms, p99 {p99:.1} ms", lags.len());
}

/// Returns the growth of a counter, which a restart sets to zero.
fn since(after: f64, before: f64) -> f64 {
    if after < before { after } else { after - before }
}

/// Returns the requests by verb and resource. Watches count with their start.
fn requests(metrics: &str) -> BTreeMap<String, f64> {
    let mut requests = BTreeMap::new();
    for line in metrics.lines() {
        let is_open = line.starts_with("apiserver_longrunning_requests{");
        if !is_open && !line.starts_with("apiserver_request_total{") {
            continue;
        }
        let label = |name: &str| line.split_once(&format!("{name}=\""))?.1.split('"').next();
        let Some(resource) = label("resource").filter(|resource| RESOURCES.contains(resource))
        else {
            continue;
        };
        let Some((_, count)) = line.rsplit_once(' ') else { continue };
        let name = format!("{} {resource}", label("verb").unwrap_or_default());
        *requests.entry(name).or_default() += count.parse().unwrap_or(0.0);
    }
    requests
}

const CPU: &str = "process_cpu_seconds_total";
const MEMORY: &str = "process_resident_memory_bytes";
const MEBIBYTE: f64 = 1024.0 * 1024.0;
const RESOURCES: [&str; 7] =
    ["subjectaccessreviews", "tokenreviews", "leases", "pods", "nodes", "secrets", "configmaps"];
