//! Lag at half saturation: 1,000 watches over 20 connections, at a rate at which the server watched, this client and the upstream take half of
//! the machine's processors together. What they take is measured first, at a low rate.
//!
//! An etcd beside them is not seen, and takes its share too.

use std::thread::available_parallelism;

use crate::fanned::{Manner, measure};
use crate::results::Results;
use crate::server::Server;
use crate::usage::Usage;
use crate::watches::Watched;

pub(crate) const ROW: &str = "watch-lag";
/// Where the rate is found.
const CALIBRATION: &str = "watch-lag-calibration";

/// No faster: an API server's writes are the limit then, not deliveries.
const RATE_MAX: f64 = 400.0;

pub(crate) async fn compare(
    like: &Watched,
    upstream: &Server,
    servers: &[&Server],
    manner: &Manner,
    results: &mut Results,
) {
    for server in servers {
        let calibration = Watched { name: CALIBRATION, rate: 20.0, ..like.clone() };
        let short = Manner { changing: manner.changing / 3, ..manner.clone() };
        if !measure(&calibration, upstream, server, &short, results).await {
            continue;
        }
        let local = matches!(upstream.usage, Usage::Process(_));
        let rate = half(results, server.name, local).unwrap_or(20.0);
        let row = Watched { name: ROW, rate: rate.min(RATE_MAX), ..like.clone() };
        measure(&row, upstream, server, manner, results).await;
        results.set(ROW, server.name, "rate", row.rate);
        for (of_event, of_all) in [("event_cpu_ms", "cpu_s"), ("event_waited_ms", "waited_s")] {
            let value = |name| results.get(ROW, server.name, name);
            let each = value(of_all).zip(value("events")).map(|(all, events)| all * 1e3 / events);
            results.set(ROW, server.name, of_event, each.unwrap_or(f64::NAN));
        }
    }
}

/// Changes a second.
fn half(results: &Results, server: &str, upstream: bool) -> Option<f64> {
    let value = |name| results.get(CALIBRATION, server, name);
    let upstream = if upstream { value("upstream_cpu_s")? } else { 0.0 };
    let each = (value("cpu_s")? + value("client_cpu_s")? + upstream) / value("events")?;
    Some(processors() / 2.0 / each)
}

/// What p99 may be, in milliseconds: half as long again as all deliveries of an event take all processors, and one more.
pub(crate) fn allowed(results: &Results, server: &str) -> Option<f64> {
    let value = |name| results.get(ROW, server, name);
    let delivery = value("cpu_s")? / value("deliveries")?;
    Some(1.5e3 * value("watches")? * delivery / processors() + 1.0)
}

pub(crate) fn processors() -> f64 {
    available_parallelism().map_or(1, usize::from) as f64
}
