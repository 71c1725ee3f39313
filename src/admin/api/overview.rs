//! The first look: the verdict, what Weir saves, and how it is.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::admin::api::json::{number, object, optional, time};
use crate::admin::api::moment::Moment;
use crate::admin::api::verdict::{Facts, Verdict};
use crate::admin::totals::Totals;
use crate::cache::registry::{CacheDescription, Registry};
use crate::flow::doctor::{
    Finding, SECONDS_PER_BYTE, SECONDS_PER_EVENT, SECONDS_PER_REQUEST, Weight,
};
use crate::server::FlowControl;
use crate::telemetry::events::{EventKind, Events};

/// Returns the content of `/api/overview`.
pub(super) fn content(
    moment: &Moment,
    (caches, events): (&Registry, &Events),
    clients: Option<&FlowControl>,
) -> Map<String, Value> {
    let numbers = &moment.numbers;
    let [short, long] = &moment.rates;
    let build = numbers.each("weir_build_info").next();
    let config = numbers.each("weir_config_info").next();
    let descriptions = caches.descriptions();
    let findings = clients.map(FlowControl::findings).unwrap_or_default();
    let facts = facts(moment, caches, &descriptions, events, &findings);
    let read = numbers.find("weir_config_last_reload_success_timestamp_seconds", &[]);
    let read = read.map(|at| std::time::UNIX_EPOCH + Duration::from_secs_f64(at.max(0.0)));
    let fields = [
        ("version", build.map_or("", |(labels, _)| labels.get("version")).into()),
        ("verdict", Verdict::of(&facts).describe()),
        ("rates", object([("10s", rates(short)), ("1m", rates(long))])),
        ("totals", totals(&moment.totals)),
        (
            "watches",
            object([
                ("open", number(numbers.sum("weir_watchers", &[]))),
                ("behind", optional(numbers.find("weir_watchers_behind", &[]))),
                ("delaySeconds", optional(facts.delay)),
            ]),
        ),
        ("caches", number(numbers.sum("weir_caches", &[]))),
        ("countsClients", clients.is_some().into()),
        ("saved", saved(long)),
        (
            "memory",
            object([
                ("usedBytes", optional(numbers.find("process_resident_memory_bytes", &[]))),
                ("usedRatio", optional(numbers.find("weir_overload_used_ratio", &MEMORY))),
            ]),
        ),
        (
            "upstream",
            object([
                ("isUsable", caches.availability().is_usable().into()),
                ("version", optional_text(caches.upstream_version())),
                ("connections", number(numbers.sum("weir_upstream_connections", &[]))),
                ("medianSeconds", optional(facts.upstream_seconds)),
            ]),
        ),
        (
            "configuration",
            object([
                ("hash", config.map_or("", |(labels, _)| labels.get("hash")).into()),
                ("read", read.map_or(Value::Null, time)),
                ("pendingFields", number(numbers.sum("weir_config_pending_fields", &[]))),
            ]),
        ),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn facts(
    moment: &Moment,
    caches: &Registry,
    descriptions: &[CacheDescription],
    events: &Events,
    findings: &[Finding],
) -> Facts {
    let numbers = &moment.numbers;
    let [_, minute] = &moment.rates;
    let latest = events.since(0);
    let rewind = latest.iter().find(|event| event.kind == EventKind::Rewind);
    let rewound = rewind.map(|event| moment.time.duration_since(event.last).unwrap_or_default());
    let latencies =
        numbers.buckets("weir_upstream_request_duration_seconds", &[("traffic_class", "request")]);
    Facts {
        failing: moment.failing.clone(),
        away: caches.availability().away_since().map(|since| since.elapsed()),
        rewound,
        not_following: descriptions.iter().filter_map(|it| not_following(it, moment)).collect(),
        over_budget: numbers.sum("weir_cache_over_budget", &[]) as usize,
        overload_stage: numbers.sum("weir_overload_stage", &[("by", "acted-on")]) as u8,
        error_share: (minute.requests > 0.0).then(|| minute.errors / minute.requests),
        delay: minute.delays.quantile(0.99),
        critical_finding: findings.iter().find(|it| it.weight == Weight::Critical).map(describe),
        warnings: findings.iter().filter(|it| it.weight == Weight::Warning).count(),
        caches: descriptions.len(),
        upstream_seconds: latencies.quantile(0.5),
    }
}

/// Returns a finding in a few words.
fn describe(finding: &Finding) -> String {
    let Finding { rule, user, agent, resource, .. } = finding;
    let client = [&**user, agent].into_iter().find(|name| !name.is_empty());
    let client = client.unwrap_or("a client without a user agent");
    format!("{client} {} ({resource})", rule.title())
}

/// Returns the name of a cache that has failed, and not followed the upstream for a while, with
/// the cause.
fn not_following(cache: &CacheDescription, moment: &Moment) -> Option<(String, String)> {
    let failure = cache.failure.as_ref()?;
    let lasts = moment.time.duration_since(failure.at).unwrap_or_default() < FAILED_FOR;
    (lasts && matches!(cache.state, "backing-off" | "reviewing")).then(|| {
        let name = if cache.namespace.is_empty() {
            cache.resource.to_string()
        } else {
            format!("{} in {}", cache.resource, cache.namespace)
        };
        (name, failure.cause.to_string())
    })
}

fn rates(rates: &Totals) -> Value {
    object([
        ("requestsPerSecond", number(rates.requests)),
        ("hitsPerSecond", number(rates.hits)),
        ("forwardedPerSecond", number(rates.forwards)),
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
        ("errors", number(totals.errors)),
        ("watchEvents", number(totals.watch_events)),
        ("upstreamRequests", number(totals.upstream_requests)),
    ])
}

/// Estimates what the upstream would have had to do beside what it does.
fn saved(minute: &Totals) -> Value {
    let own = (minute.upstream_requests - minute.forwards).max(0.0);
    let bytes = minute.watch_bytes + minute.cached_bytes - minute.upstream_bytes;
    let cores = minute.cached_bytes * SECONDS_PER_BYTE
        + minute.cached_gets * SECONDS_PER_REQUEST
        + minute.watch_events * SECONDS_PER_EVENT;
    object([
        ("requestsPerSecond", number((minute.hits - own).max(0.0))),
        ("bytesPerSecond", number(bytes.max(0.0))),
        ("cores", number(cores)),
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

/// A failure counts while the reflector retries, which it does every minute or more often.
const FAILED_FOR: Duration = Duration::from_secs(120);
const MEMORY: [(&str, &str); 1] = [("resource", "memory")];
