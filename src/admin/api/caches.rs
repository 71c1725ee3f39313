//! The running caches.

use std::cmp::Ordering;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional, time};
use crate::admin::api::moment::Moment;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::page_comparison::KeyDifference;
use crate::cache::registry::{CacheDescription, CacheDifference, LastFailure};

/// Returns the content of `/api/caches`: at most `limit` caches, in the order of a numeric field
/// or of their names.
pub(super) fn content(
    moment: &Moment,
    limit: Option<usize>,
    sort: Option<&str>,
) -> Map<String, Value> {
    let mut described: Vec<_> = moment.caches.iter().map(|cache| describe(cache, moment)).collect();
    if let Some(sort) = sort {
        let column = |cache: &Value| cache.get(sort).and_then(Value::as_f64);
        described.sort_by(|one, other| {
            column(other).partial_cmp(&column(one)).unwrap_or(Ordering::Equal)
        });
    }
    described.truncate(limit.unwrap_or(usize::MAX));
    items(described)
}

fn describe(cache: &CacheDescription, moment: &Moment) -> Value {
    let CacheDescription { group, version, resource, figures, .. } = cache;
    let age = |at: Option<SystemTime>| {
        let age = at.map(|at| moment.time.duration_since(at).unwrap_or_default());
        optional(age.map(|age| age.as_secs_f64().round()))
    };
    let bytes = figures.bytes as f64;
    let bytes_max = Some(moment.all_caches.resource_bytes_max).filter(|most| *most > 0.0);
    let [_, minute] = &moment.rates;
    let names = [group, version, resource].map(Clone::clone);
    let [hits, delivered] = minute.resources.get(&names).copied().unwrap_or_default();
    object([
        ("group", (&**group).into()),
        ("version", (&**version).into()),
        ("resource", (&**resource).into()),
        ("namespace", (&*cache.namespace).into()),
        ("representation", cache.representation.into()),
        ("state", cache.state.into()),
        ("stateSince", time(cache.since)),
        ("warm", cache.is_warm.into()),
        ("overBudget", cache.is_over_budget.into()),
        ("objects", figures.objects.into()),
        ("bytes", figures.bytes.into()),
        ("budgetShare", optional(bytes_max.map(|bytes_max| bytes / bytes_max))),
        ("watchers", figures.watchers.into()),
        ("watchersBehind", figures.watchers_behind.into()),
        ("progressAgeSeconds", age(figures.last_progress)),
        ("lagSeconds", number(figures.lag)),
        ("historyEvents", figures.history_events.into()),
        ("historySeconds", age(figures.history_oldest)),
        ("relists", figures.relists.into()),
        ("relistsPerHour", figures.relists_of_hour.into()),
        // Both count the resource in all its caches.
        ("hitsPerSecond", number(hits)),
        ("eventsPerSecond", number(delivered)),
        ("quarantined", cache.is_quarantined.into()),
        ("lastCheck", cache.checks.checked.map_or(Value::Null, time)),
        ("lastDifference", cache.checks.difference.as_ref().map_or(Value::Null, difference)),
        ("lastFailure", cache.failure.as_ref().map_or(Value::Null, describe_failure)),
    ])
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
