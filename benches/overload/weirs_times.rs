//! Times as Weir itself measures them: without the ways to and from a client, and without the time
//! for which a client waits for a processor.

use std::net::SocketAddr;

use crate::scrape::metrics_of;

/// A histogram of Weir's metrics.
pub(crate) struct WeirsTimes {
    /// The upper bound of each bucket in seconds, and how many times do not exceed it.
    buckets: Vec<(f64, f64)>,
}

impl WeirsTimes {
    /// Reads a histogram, of the series that have all `labels`.
    pub(crate) async fn read(admin: SocketAddr, name: &str, labels: &[&str]) -> Self {
        let lines = metrics_of(admin, &[&format!("{name}_bucket")]).await;
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in lines.iter().filter(|line| labels.iter().all(|label| line.contains(label))) {
            let Some((_, rest)) = line.split_once("le=\"") else { continue };
            let Some((bound, rest)) = rest.split_once('"') else { continue };
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            let count = rest.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0.0);
            match buckets.iter_mut().find(|(upper, _)| *upper == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self { buckets }
    }

    /// Returns what was added since `before`, as text: the buckets of p50, p99 and the longest.
    pub(crate) fn since(&self, before: &Self) -> String {
        let count_below = |bound: f64| {
            let bucket = before.buckets.iter().rev().find(|(upper, _)| *upper <= bound);
            bucket.map_or(0.0, |(_, count)| *count)
        };
        let added: Vec<_> = self
            .buckets
            .iter()
            .map(|(upper, count)| (*upper, count - count_below(*upper)))
            .collect();
        let total = added.last().map_or(0.0, |(_, count)| *count);
        let at = |part: f64| {
            let bucket = added.iter().find(|(_, count)| *count >= part * total);
            bucket.map_or(f64::NAN, |(bound, _)| bound * 1e3)
        };
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(at);
        format!("{total} times, p50 at most {p50} ms, p99 {p99} ms, all {most} ms")
    }
}
