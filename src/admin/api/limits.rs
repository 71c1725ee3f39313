//! The limits of Weir: what is used of each, how often it was met, and the setting.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional};
use crate::admin::api::moment::Moment;
use crate::admin::figures::Figures;

/// Returns the content of `/api/limits`.
pub(super) fn content(moment: &Moment) -> Map<String, Value> {
    items(limits(moment).into_iter().flatten().collect())
}

/// Returns a limit by its name, its unit and its setting; `None` if there is nothing to say about
/// it. `times_met` counts how often it was met.
fn limit(
    [name, unit, setting]: [&str; 3],
    used: Option<f64>,
    limit: Option<f64>,
    times_met: Option<f64>,
) -> Option<Value> {
    let is_met = times_met.is_some_and(|times| times > 0.0);
    (used.is_some() || limit.is_some() || is_met).then(|| {
        object([
            ("name", name.into()),
            ("unit", unit.into()),
            ("used", optional(used)),
            ("limit", optional(limit)),
            ("timesMet", times_met.map_or(Value::Null, number)),
            ("setting", setting.into()),
        ])
    })
}

/// Returns the limits; one whose use or limit is not known shows none.
fn limits(moment: &Moment) -> [Option<Value>; 10] {
    let Moment { figures, caches, all_caches, process, .. } = moment;
    let Figures { server, overload, flow, .. } = figures;
    let [refusals, resource_refusals] = all_caches.refusals;
    let [held, held_max] = server.held;
    let [gzip, gzip_max] = figures.gzip;
    let largest = caches.iter().map(|cache| cache.figures.bytes as f64).reduce(f64::max);
    [
        limit(
            ["all caches", "bytes", "cache.totalBytesMax"],
            Some(all_caches.bytes),
            Some(all_caches.bytes_max),
            Some(refusals),
        ),
        limit(
            ["the largest cache", "bytes", "cache.resourceBytesMax"],
            largest,
            Some(all_caches.resource_bytes_max),
            Some(resource_refusals),
        ),
        limit(
            ["compressed lists", "bytes", "cache.totalBytesMax"],
            Some(gzip),
            Some(gzip_max),
            None,
        ),
        limit(
            [
                "responses that clients have not read",
                "bytes",
                "an eighth of the memory limit, at most 256 MiB",
            ],
            Some(held),
            Some(held_max),
            Some(server.responses_stalled),
        ),
        limit(
            ["memory of this process", "bytes", "the memory limit of the container"],
            process.resident,
            overload.memory_max,
            None,
        ),
        limit(
            ["file descriptors", "files", "the limit of open files (ulimit -n)"],
            process.descriptors,
            process.descriptors_max,
            None,
        ),
        limit(
            ["client connections", "connections", "server.connectionsPerAddressMax"],
            server.connections,
            None,
            Some(server.connections_refused),
        ),
        limit(
            ["requests that wait for a cold cache", "requests", "cache.forwardBudget"],
            all_caches.forwards,
            None,
            Some(all_caches.forwards_exhausted),
        ),
        limit(
            ["seats of the API servers", "seats", "flowControl.seatsPerServer"],
            flow.seats,
            flow.seats_max,
            Some(flow.rejected),
        ),
        limit(
            ["requests refused by Weir's own overload", "stage", "flowControl.mode"],
            overload.stage,
            Some(4.0),
            Some(overload.refused),
        ),
    ]
}
