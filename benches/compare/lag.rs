//! Measures the lag at half saturation, with 1,000 watches over 20 connections. At this rate of
//! changes the server, this client and the upstream together use half of the machine's processors.
//! The rate is computed from their CPU time at a low rate, which is measured first.
//!
//! The CPU time of an etcd on the same machine is not considered.

use std::thread::available_parallelism;

use crate::results::Results;
use crate::server::Server;
use crate::usage::Usage;
use crate::watch_cost::{MeasureOptions, measure};
use crate::watches::WatchRow;

pub(crate) const ROW: &str = "watch-lag";
/// The row that measures the CPU time at a low rate.
const CALIBRATION: &str = "watch-lag-calibration";

/// The highest rate. Beyond it, writes to the API server are the bottleneck, not deliveries.
const RATE_MAX: f64 = 400.0;

pub(crate) async fn compare(
    like: &WatchRow,
    upstream: &Server,
    servers: &[&Server],
    options: &MeasureOptions,
    results: &mut Results,
) {
    for server in servers {
        let calibration = WatchRow { name: CALIBRATION, rate: 20.0, ..like.clone() };
        let short = MeasureOptions { changing: options.changing / 3, ..options.clone() };
        if !measure(&calibration, upstream, server, &short, results).await {
            continue;
        }
        let local = matches!(upstream.usage, Usage::Process(_));
        let rate = half_saturation_rate(results, server.name, local).unwrap_or(20.0);
        let row = WatchRow { name: ROW, rate: rate.min(RATE_MAX), ..like.clone() };
        measure(&row, upstream, server, options, results).await;
        results.set(ROW, server.name, "rate", row.rate);
        for (of_event, of_all) in [("event_cpu_ms", "cpu_s"), ("event_waited_ms", "waited_s")] {
            let value = |name| results.get(ROW, server.name, name);
            let each =
                value(of_all).zip(value("events")).map(|(total, events)| total * 1e3 / events);
            results.set(ROW, server.name, of_event, each.unwrap_or(f64::NAN));
        }
    }
}

/// Returns the rate of half saturation in changes per second.
fn half_saturation_rate(results: &Results, server: &str, upstream: bool) -> Option<f64> {
    let value = |name| results.get(CALIBRATION, server, name);
    let upstream = if upstream { value("upstream_cpu_s")? } else { 0.0 };
    let each = (value("cpu_s")? + value("client_cpu_s")? + upstream) / value("events")?;
    Some(processors() / 2.0 / each)
}

/// Returns the highest allowed p99 in milliseconds: one and a half times the time that all
/// processors need for all deliveries of an event, plus one.
pub(crate) fn allowed(results: &Results, server: &str) -> Option<f64> {
    let value = |name| results.get(ROW, server, name);
    let delivery = value("cpu_s")? / value("deliveries")?;
    Some(1.5e3 * value("watches")? * delivery / processors() + 1.0)
}

pub(crate) fn processors() -> f64 {
    available_parallelism().map_or(1, usize::from) as f64
}
