//! The running caches, with their metrics.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional, time};
use crate::admin::api::moment::Moment;
use crate::admin::api::relists::{CacheLabels, cache_labels};
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
    let metrics = Metrics::from_moment(moment);
    let mut described: Vec<_> = caches.iter().map(|cache| metrics.describe(cache)).collect();
    if let Some(sort) = sort {
        let column = |cache: &Value| cache.get(sort).and_then(Value::as_f64);
        described.sort_by(|one, other| {
            column(other).partial_cmp(&column(one)).unwrap_or(Ordering::Equal)
        });
    }
    described.truncate(limit.unwrap_or(usize::MAX));
    items(described)
}

/// The metrics of all caches, each read once.
struct Metrics<'a> {
    moment: &'a Moment,
    gauges: [HashMap<CacheLabels, f64>; GAUGES.len()],
    bytes_max: Option<f64>,
}

impl<'a> Metrics<'a> {
    fn from_moment(moment: &'a Moment) -> Self {
        let numbers = &moment.numbers;
        let each = |name| numbers.each(name);
        let gauge =
            |name| each(name).map(|(labels, value)| (cache_labels(labels), value)).collect();
        let bytes_max = numbers.find("weir_cache_bytes_limit", &[]).filter(|most| *most > 0.0);
        Self { moment, gauges: GAUGES.map(gauge), bytes_max }
    }

    fn describe(&self, cache: &CacheDescription) -> Value {
        let CacheDescription { group, version, resource, namespace, .. } = cache;
        let names = [group, version, resource].map(Clone::clone);
        let key: CacheLabels = [
            group.clone(),
            version.clone(),
            resource.clone(),
            namespace.clone(),
            cache.representation.into(),
        ];
        let [objects, bytes, watchers, behind, progress, over_budget, events, oldest, lag] =
            self.gauges.each_ref().map(|gauge| gauge.get(&key).copied());
        let now = self.moment.time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let age = |at: Option<f64>| {
            optional(at.filter(|at| *at > 0.0).map(|at| (now.as_secs_f64() - at).max(0.0).round()))
        };
        let [relists, relists_of_hour] =
            self.moment.relists.each_ref().map(|window| window.get(&key).copied().unwrap_or(0.0));
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
            ("budgetShare", optional(bytes.zip(self.bytes_max).map(|(bytes, most)| bytes / most))),
            ("watchers", optional(watchers)),
            ("watchersBehind", optional(behind)),
            ("progressAgeSeconds", age(progress)),
            ("lagSeconds", optional(lag)),
            ("historyEvents", number(events.unwrap_or_default())),
            ("historySeconds", age(oldest)),
            ("relists", number(relists)),
            ("relistsPerHour", number(relists_of_hour)),
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
    let key = |row: &KeyDifference| {
        let (held, upstream) = (version(row.held), version(row.upstream));
        object([("key", row.key.as_str().into()), ("cache", held), ("upstream", upstream)])
    };
    object([
        ("time", time(difference.at)),
        ("wrong", difference.wrong.as_str().into()),
        ("count", number(difference.count as f64)),
        ("objects", difference.keys.iter().map(key).collect()),
    ])
}

/// The gauges of a cache that are shown.
const GAUGES: [&str; 9] = [
    "weir_cache_objects",
    "weir_cache_bytes",
    "weir_cache_watchers",
    "weir_watchers_behind",
    "weir_reflector_last_progress_timestamp_seconds",
    "weir_cache_over_budget",
    "weir_cache_history_events",
    "weir_cache_history_oldest_timestamp_seconds",
    "weir_cache_delivery_delay_max_seconds",
];
