//! The figures of a phase, as lines of text.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::crowd::Seen;
use crate::scrape::metrics_of;
use crate::testbed::{Testbed, is_next_page, is_proof};

/// Prints what the watchers saw and what reached the API server since the start of a phase.
pub(crate) async fn print(title: &str, testbed: &Testbed, seen: &Seen, wrong_events: u64) {
    let args = &testbed.args;
    println!("\n{title}: {} watchers, {} tokens", args.watchers, args.tokens);
    println!(
        "  watchers: {} watches ended; resumed {}; responses {:?}, {} forwarded, {} attempts without a response, \
         longest Retry-After {} s; {} lists after a 410; {} events lost or repeated",
        seen.ended,
        percentiles(seen.resumed.clone()),
        seen.codes,
        seen.forwarded,
        seen.broken,
        seen.retry_after_max,
        seen.relists,
        wrong_events,
    );
    print_upstream(testbed);
    let pid = testbed.weir().pid();
    let resident = resident(pid);
    println!(
        "  Weir: CPU {:.1} s since its start, resident {resident:.0} MiB",
        testbed.weir().cpu().as_secs_f64()
    );
    print_metrics(testbed.admin).await;
}

/// Prints the metrics of Weir that say how a herd was received.
pub(crate) async fn print_metrics(admin: SocketAddr) {
    for line in metrics_of(admin, &SHOWN).await {
        println!("  {line}");
    }
}

/// Prints the requests that the simulator counted.
pub(crate) fn print_upstream(testbed: &Testbed) {
    let mut by_resource: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((verb, resource), count) in testbed.upstream.requests().counts() {
        let of_one = by_resource.entry(resource).or_default();
        of_one.push(format!("{verb} {count}"));
    }
    let parts: Vec<_> = by_resource
        .into_iter()
        .map(|(resource, counts)| {
            let resource = if resource.is_empty() { "(no resource)".to_owned() } else { resource };
            format!("{resource}: {}", counts.join(", "))
        })
        .collect();
    println!("  API server: {}", parts.join("; "));
    let requests = |is_counted: fn(&str) -> bool| testbed.recent_for_caches(is_counted);
    println!(
        "  of these, for each cache: proofs {:?}, next pages {:?}",
        requests(is_proof),
        requests(is_next_page)
    );
}

/// Formats the median, the 99th percentile and the maximum.
pub(crate) fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |of_hundred: usize| {
        let index = (times.len() * of_hundred / 100).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default().as_secs_f64()
    };
    format!("{}: p50 {:.2} s, p99 {:.2} s, all {:.2} s", times.len(), at(50), at(99), at(100))
}

/// Returns the resident memory of a process in MiB.
fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("weir runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}

/// The metrics that say how a herd was received.
const SHOWN: [&str; 8] = [
    "weir_history_backfills_total",
    "weir_forward_budget_exhausted_total",
    "weir_token_reviews_total",
    "weir_token_reviews_limited_total",
    "weir_access_reviews_total",
    "weir_authorization_unavailable_total",
    "weir_watch_recheck_interval_seconds",
    "weir_herd_appointments_total",
];
