//! The first look: the verdict, what Weir saves, and how it is.

use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::admin::api::json::{fields, number, object, optional, time};
use crate::admin::api::moment::Moment;
use crate::admin::api::verdict::{Facts, Verdict};
use crate::admin::figures::ConfigurationFigures;
use crate::admin::totals::Totals;
use crate::cache::registry::{CacheDescription, Registry};
use crate::flow::doctor::{SECONDS_PER_BYTE, SECONDS_PER_EVENT, SECONDS_PER_REQUEST};

/// Returns the content of `/api/overview`. `since` is when the case of the verdict was first seen.
pub(super) fn content(
    moment: &Moment,
    caches: &Registry,
    (facts, verdict, since): &(Facts, Verdict, SystemTime),
    (version, counts_clients): (&str, bool),
) -> Map<String, Value> {
    let Moment { figures, caches: running, .. } = moment;
    let ConfigurationFigures { hash, read, pending } = &figures.configuration;
    let [short, long] = &moment.rates;
    let behind = running.iter().map(|cache| cache.figures.watchers_behind).reduce(Add::add);
    fields([
        ("version", version.into()),
        ("verdict", verdict.describe(*since)),
        ("rates", object([("10s", rates(short)), ("1m", rates(long))])),
        ("totals", totals(&moment.totals)),
        (
            "watches",
            object([
                ("open", number(figures.server.watches)),
                ("upstream", facts.following.into()),
                ("behind", behind.map_or(Value::Null, Value::from)),
                ("delaySeconds", optional(facts.delay)),
            ]),
        ),
        ("caches", running.len().into()),
        ("countsClients", counts_clients.into()),
        ("slowestCache", slowest(running)),
        ("saved", saved(long)),
        (
            "memory",
            object([
                ("usedBytes", optional(moment.process.resident)),
                ("usedRatio", number(figures.overload.memory_ratio)),
            ]),
        ),
        (
            "upstream",
            object([
                ("isUsable", caches.availability().is_usable().into()),
                ("version", optional_text(caches.upstream_version())),
                ("connections", number(figures.upstream.connections)),
                ("medianSeconds", optional(facts.upstream_seconds)),
            ]),
        ),
        ("certificates", certificates(&figures.certificates)),
        (
            "configuration",
            object([
                ("hash", hash.as_str().into()),
                ("read", read.map_or(Value::Null, time)),
                ("pendingFields", (*pending).into()),
            ]),
        ),
    ])
}

fn rates(rates: &Totals) -> Value {
    object([
        ("requestsPerSecond", number(rates.requests)),
        ("hitsPerSecond", number(rates.hits)),
        ("forwardedPerSecond", number(rates.forwards)),
        ("refusedPerSecond", number(rates.refusals)),
        ("errorsPerSecond", number(rates.errors)),
        ("hitShare", optional(rates.hit_share())),
        ("eventsPerSecond", number(rates.watch_events)),
        ("watchBytesPerSecond", number(rates.watch_bytes)),
        ("upstreamRequestsPerSecond", number(rates.upstream_requests)),
        ("upstreamBytesPerSecond", number(rates.upstream_bytes)),
    ])
}

fn totals(totals: &Totals) -> Value {
    object([
        ("requests", number(totals.requests)),
        ("hits", number(totals.hits)),
        ("forwarded", number(totals.forwards)),
        ("refused", number(totals.refusals)),
        ("errors", number(totals.errors)),
        ("watchEvents", number(totals.watch_events)),
        ("upstreamRequests", number(totals.upstream_requests)),
    ])
}

/// Returns the cache whose events were latest in the last minutes; null without any.
fn slowest(caches: &[CacheDescription]) -> Value {
    let lag = |cache: &&CacheDescription| cache.figures.lag;
    let slowest = caches.iter().max_by(|one, other| lag(one).total_cmp(&lag(other)));
    slowest.map_or(Value::Null, |cache| {
        object([
            ("resource", (&*cache.resource).into()),
            ("namespace", (&*cache.namespace).into()),
            ("lagSeconds", number(cache.figures.lag)),
        ])
    })
}

/// Returns when the certificates expire, by their use, the first one first.
fn certificates(expiries: &[(&'static str, i64)]) -> Value {
    let mut expiries = expiries.to_vec();
    expiries.sort_by_key(|(_, at)| *at);
    let describe = |(usage, at): (&str, i64)| {
        let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or(0));
        object([("use", usage.into()), ("expires", time(at))])
    };
    expiries.into_iter().map(describe).collect()
}

/// Estimates the work that the upstream is spared. The cost of the caches is subtracted: of their
/// lists by bytes, of their watches by events. A forwarded request costs the same with Weir as
/// without.
fn saved(minute: &Totals) -> Value {
    let upstream_own = (minute.upstream_requests - minute.forwards).max(0.0);
    let bytes = minute.watch_bytes + minute.cached_bytes - minute.reflector_bytes;
    let listed = (minute.reflector_bytes - minute.reflector_event_bytes).max(0.0);
    let cores = (minute.cached_bytes - listed) * SECONDS_PER_BYTE
        + (minute.cached_gets - upstream_own) * SECONDS_PER_REQUEST
        + (minute.watch_events - minute.reflector_events) * SECONDS_PER_EVENT;
    object([
        ("requestsPerSecond", number((minute.hits - upstream_own).max(0.0))),
        ("bytesPerSecond", number(bytes.max(0.0))),
        ("cores", number(cores.max(0.0))),
        ("isEstimate", true.into()),
        (
            "coefficients",
            object([
                ("secondsPerMegabyte", number(1e6 * SECONDS_PER_BYTE)),
                ("secondsPerGet", number(SECONDS_PER_REQUEST)),
                ("secondsPerEvent", number(SECONDS_PER_EVENT)),
            ]),
        ),
    ])
}

fn optional_text(text: Option<String>) -> Value {
    text.map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caches_cost_the_upstream_is_subtracted_and_what_is_forwarded_is_not() {
        let minute = Totals {
            hits: 10.0,
            forwards: 5.0,
            upstream_requests: 7.0,
            cached_gets: 4.0,
            cached_bytes: 3e6,
            watch_bytes: 2e6,
            watch_events: 100.0,
            // The forwarded answers are large, and no matter.
            upstream_bytes: 9e9,
            reflector_bytes: 1.5e6,
            reflector_events: 40.0,
            reflector_event_bytes: 0.5e6,
            ..Totals::default()
        };
        let saved_all = saved(&minute);
        assert_eq!(saved_all["requestsPerSecond"], 8);
        assert_eq!(saved_all["bytesPerSecond"], 3_500_000);
        let cores = 2e6 * SECONDS_PER_BYTE + 2.0 * SECONDS_PER_REQUEST + 60.0 * SECONDS_PER_EVENT;
        assert_eq!(saved_all["cores"], number(cores));
        // A cache that nobody reads costs more than it saves.
        let unused =
            saved(&Totals { reflector_events: 9.0, reflector_bytes: 1e6, ..Totals::default() });
        assert_eq!((&unused["cores"], &unused["bytesPerSecond"]), (&0.into(), &0.into()));
    }
}
