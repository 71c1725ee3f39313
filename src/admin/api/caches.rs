//! The running caches, with their metrics.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional, time};
use crate::admin::api::moment::Moment;
use crate::admin::numbers::Labels;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::page_comparison::KeyDifference;
use crate::cache::registry::{CacheDescription, CacheDifference, LastFailure};

/// Returns the content of `/api/caches`: at most `limit` caches, in the order of a numeric field
/// or of their names.
pub(super) fn content(
    moment: &Moment,
    caches: &[CacheDescription],
    limit: Option<usize>,
    sort: Option<&str>,
) -> Map<String, Value> {
    let metrics = Metrics::of(moment);
    let mut described: Vec<_> = caches.iter().map(|cache| metrics.describe(cache)).collect();
    if let Some(sort) = sort {
        let of = |cache: &Value| cache.get(sort).and_then(Value::as_f64);
        described.sort_by(|one, other| of(other).partial_cmp(&of(one)).unwrap_or(Ordering::Equal));
    }
    described.truncate(limit.unwrap_or(usize::MAX));
    items(described)
}

/// The labels of a cache, as in its metrics.
type Key = [Box<str>; 5];

/// The metrics of all caches, each read once.
struct Metrics<'a> {
    moment: &'a Moment,
    gauges: [HashMap<Key, f64>; GAUGES.len()],
    relists: HashMap<Key, f64>,
}

impl<'a> Metrics<'a> {
    fn of(moment: &'a Moment) -> Self {
        let numbers = &moment.numbers;
        let gauge = |name| numbers.each(name).map(|(labels, value)| (key(labels), value)).collect();
        let mut relists = HashMap::new();
        for (labels, count) in numbers.each("weir_reflector_relists_total") {
            // The first list of a cache is none.
            if labels.get("cause") != "start" {
                *relists.entry(key(labels)).or_default() += count;
            }
        }
        Self { moment, gauges: GAUGES.map(gauge), relists }
    }

    fn describe(&self, cache: &CacheDescription) -> Value {
        let CacheDescription { group, version, resource, namespace, .. } = cache;
        let names = [group, version, resource].map(Clone::clone);
        let key: Key = [
            group.clone(),
            version.clone(),
            resource.clone(),
            namespace.clone(),
            cache.representation.into(),
        ];
        let [objects, bytes, watchers, behind, progress, over_budget, events, oldest] =
            self.gauges.each_ref().map(|gauge| gauge.get(&key).copied());
        let now = self.moment.time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let age = |at: Option<f64>| {
            optional(at.filter(|at| *at > 0.0).map(|at| (now.as_secs_f64() - at).max(0.0).round()))
        };
        let [_, minute] = &self.moment.rates;
        let [hits, delivered] = minute.resources.get(&names).copied().unwrap_or_default();
        object([
            ("group", (&**group).into()),
            ("version", (&**version).into()),
            ("resource", (&**resource).into()),
            ("namespace", (&**namespace).into()),
            ("representation", cache.representation.into()),
            ("state", cache.state.into()),
            ("stateSince", time(cache.since)),
            ("warm", cache.is_warm.into()),
            ("overBudget", (over_budget == Some(1.0)).into()),
            ("objects", optional(objects)),
            ("bytes", optional(bytes)),
            ("watchers", optional(watchers)),
            ("watchersBehind", optional(behind)),
            ("progressAgeSeconds", age(progress)),
            ("historyEvents", number(events.unwrap_or_default())),
            ("historySeconds", age(oldest)),
            ("relists", number(self.relists.get(&key).copied().unwrap_or(0.0))),
            // Both count the resource in all its caches.
            ("hitsPerSecond", number(hits)),
            ("eventsPerSecond", number(delivered)),
            ("quarantined", cache.is_quarantined.into()),
            ("lastCheck", cache.checks.checked.map_or(Value::Null, time)),
            ("lastDifference", cache.checks.difference.as_ref().map_or(Value::Null, difference)),
            ("lastFailure", cache.failure.as_ref().map_or(Value::Null, describe_failure)),
        ])
    }
}

pub(in crate::admin) fn describe_failure(failure: &LastFailure) -> Value {
    object([("time", time(failure.at)), ("cause", (&*failure.cause).into())])
}

/// Keys and resourceVersions, never values.
pub(in crate::admin) fn difference(difference: &CacheDifference) -> Value {
    let version = |version: Option<ResourceVersion>| {
        version.map_or(Value::Null, |version| version.to_string().into())
    };
    let key = |one: &KeyDifference| {
        let (held, upstream) = (version(one.held), version(one.upstream));
        object([("key", one.key.as_str().into()), ("cache", held), ("upstream", upstream)])
    };
    object([
        ("time", time(difference.at)),
        ("wrong", difference.wrong.as_str().into()),
        ("count", number(difference.count as f64)),
        ("objects", difference.keys.iter().map(key).collect()),
    ])
}

fn key(labels: Labels<'_>) -> Key {
    LABELS.map(|name| labels.get(name).into())
}

const LABELS: [&str; 5] = ["group", "version", "resource", "namespace", "representation"];
/// The gauges of a cache that are shown.
const GAUGES: [&str; 8] = [
    "weir_cache_objects",
    "weir_cache_bytes",
    "weir_cache_watchers",
    "weir_watchers_behind",
    "weir_reflector_last_progress_timestamp_seconds",
    "weir_cache_over_budget",
    "weir_cache_history_events",
    "weir_cache_history_oldest_timestamp_seconds",
];
