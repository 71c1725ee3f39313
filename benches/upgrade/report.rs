//! The figures, and their bounds.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::args::Args;
use crate::client::LEFT_IN_QUEUE;
use crate::objects::RESOURCES;
use crate::replicas::{REPLICAS, Replicas};
use crate::scrape::metrics_of;
use crate::seen::Seen;

/// The lists and watches of each resource at the API server.
pub(crate) type Costs = [[u64; 2]; RESOURCES.len()];

/// Prints the figures, and the metrics of the new Weirs.
pub(crate) async fn print(args: &Args, seen: &Seen, replicas: &Replicas, costs: &Costs) {
    print_figures(args, seen, replicas, costs);
    for (admin, cpu) in replicas.running() {
        println!("a new Weir: {:.1} s of CPU", cpu.as_secs_f64());
        metrics_of(admin, &SHOWN).await.iter().for_each(|line| println!("  {line}"));
    }
}

fn print_figures(args: &Args, seen: &Seen, replicas: &Replicas, costs: &Costs) {
    let upstream = args.upstream.as_deref().unwrap_or("a simulator");
    let [connections, refused] = replicas.connections();
    println!(
        "{} watchers, {} on a connection, {} readers, a writer; before {upstream}; warm caches: {}",
        args.watchers, args.per_connection, args.readers, args.warm
    );
    for end in &replicas.ends {
        let (code, took) = (end.code, end.took.as_secs_f64());
        println!("an old Weir ended {took:.1} s after SIGTERM, exit code {code:?}");
    }
    println!(
        "connections: {connections}, {refused} refused; {} in the busiest second",
        busiest(&replicas.opened())
    );
    let figures = seen.figures.lock();
    for (kind, times) in &figures.answered {
        println!("{kind:?}: {} answered, ms {}", times.len(), percentiles(times));
    }
    println!(
        "requests: {} failed, {} sent again on another connection",
        figures.failed.len(),
        figures.repeated
    );
    let left = LEFT_IN_QUEUE.load(Ordering::Relaxed);
    println!("requests that closed connections never took, sent again: {left}");
    figures.failed.iter().take(10).for_each(|failed| println!("  {failed}"));
    let events = seen.events.load(Ordering::Relaxed);
    let wrong = seen.wrong_events.load(Ordering::Relaxed);
    println!("events: {events} delivered, {wrong} lost or repeated");
    println!(
        "watches: ended {:?}; {} opened again, of which {} forwarded; {} attempts repeated",
        figures.ended,
        figures.resumed.len(),
        figures.forwarded,
        figures.retried
    );
    println!("  seconds without a watch: {}", percentiles(&figures.without));
    println!("  opened again in the busiest second: {}", busiest(&figures.resumed));
    println!("  lists again: {:?}", figures.lists);
    for (resource, [lists, watches]) in RESOURCES.iter().zip(costs) {
        println!("API server: {}: {lists} lists, {watches} watches", resource.plural);
    }
}

/// Returns the bounds that were exceeded.
pub(crate) fn exceeded(seen: &Seen, replicas: &Replicas, costs: &Costs) -> Vec<String> {
    let figures = seen.figures.lock();
    let [_, refused] = replicas.connections();
    let most = |which: usize| costs.iter().filter_map(|both| both.get(which)).max().copied();
    let bad_ends = replicas.ends.iter().filter(|end| end.code != Some(0)).count();
    let watchers = seen.watchers();
    let rows = [
        ("failed requests", figures.failed.len(), 0),
        ("requests left on closed connections", LEFT_IN_QUEUE.load(Ordering::Relaxed), LEFT_MAX),
        ("refused connections", refused, 0),
        ("events lost or repeated", seen.wrong_events.load(Ordering::Relaxed), 0),
        ("watchers that list again", figures.lists.values().sum(), watchers / 100),
        ("lists of a cache", to_usize(most(0)), REPLICAS),
        ("watches of a cache", to_usize(most(1)), REPLICAS * WATCHES),
        ("connections opened in one second", busiest(&replicas.opened()), RETURN_MAX),
        ("Weirs that did not end well", bad_ends, 0),
    ];
    let exceeded = rows.into_iter().filter(|(_, value, bound)| value > bound);
    exceeded.map(|(name, value, bound)| format!("{name}: {value}, bound {bound}")).collect()
}

/// Watches that a new Weir may begin for each cache: the one that it follows. The clients go on
/// from a resourceVersion, so that none needs what a list does not show
/// (`docs/decisions/filling-caches.md`).
const WATCHES: usize = 1;

/// Requests that may stay in the queue of the bench's own client while a connection ends
/// (`benches/upgrade/tracked_body.rs`): one in some 36,000 watches that came back did. More would
/// mean that something else loses them.
const LEFT_MAX: usize = 2;

/// Connections that may come back in one second, however many watches each has: the target counts
/// connections. Beside it the watches are printed.
const RETURN_MAX: usize = 50;

fn to_usize(count: Option<u64>) -> usize {
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

fn busiest(times: &[Duration]) -> usize {
    let mut seconds: BTreeMap<u64, usize> = BTreeMap::new();
    for time in times {
        *seconds.entry(time.as_secs()).or_default() += 1;
    }
    seconds.values().max().copied().unwrap_or(0)
}

fn percentiles(values: &[f64]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let at = |of_hundred: usize| {
        let index = (values.len() * of_hundred / 100).min(values.len().saturating_sub(1));
        values.get(index).copied().unwrap_or_default()
    };
    format!("p50 {:.2}, p99 {:.2}, all {:.2}", at(50), at(99), at(100))
}

/// The metrics that say how the watches were received.
const SHOWN: [&str; 4] = [
    "weir_history_backfills_total",
    "weir_forward_budget_exhausted_total",
    "weir_token_reviews_total",
    "weir_access_reviews_total",
];
