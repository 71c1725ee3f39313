//! The limits of Weir: what is used of each, how often it was met, and the setting.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional};
use crate::admin::api::moment::Moment;
use crate::admin::figures::Figures;

/// Returns the content of `/api/limits`.
pub(super) fn content(moment: &Moment) -> Map<String, Value> {
    let known_limits = limits(moment).into_iter().filter(Limit::is_known);
    items(known_limits.map(|limit| limit.describe()).collect())
}

/// A limit.
struct Limit {
    name: &'static str,
    unit: &'static str,
    used: Option<f64>,
    limit: Option<f64>,
    times_met: Option<f64>,
    setting: &'static str,
}

impl Limit {
    /// Whether there is anything to say about it.
    fn is_known(&self) -> bool {
        let has_met = self.times_met.is_some_and(|times| times > 0.0);
        self.used.is_some() || self.limit.is_some() || has_met
    }

    fn describe(&self) -> Value {
        object([
            ("name", self.name.into()),
            ("unit", self.unit.into()),
            ("used", optional(self.used)),
            ("limit", optional(self.limit)),
            ("timesMet", self.times_met.map_or(Value::Null, number)),
            ("setting", self.setting.into()),
        ])
    }
}

/// Returns the limits; one whose use or limit is not known shows none.
#[expect(clippy::too_many_lines, reason = "a table")]
fn limits(moment: &Moment) -> Vec<Limit> {
    let Moment { figures, caches, all_caches, process, .. } = moment;
    let Figures { server, overload, flow, .. } = figures;
    let [refusals, resource_refusals] = all_caches.refusals;
    let [held, held_max] = server.held;
    let [gzip, gzip_max] = figures.gzip;
    let largest = caches.iter().map(|cache| cache.figures.bytes as f64).reduce(f64::max);
    vec![
        Limit {
            name: "all caches",
            unit: "bytes",
            used: Some(all_caches.bytes),
            limit: Some(all_caches.bytes_max),
            times_met: Some(refusals),
            setting: "cache.totalBytesMax",
        },
        Limit {
            name: "the largest cache",
            unit: "bytes",
            used: largest,
            limit: Some(all_caches.resource_bytes_max),
            times_met: Some(resource_refusals),
            setting: "cache.resourceBytesMax",
        },
        Limit {
            name: "compressed lists",
            unit: "bytes",
            used: Some(gzip),
            limit: Some(gzip_max),
            times_met: None,
            setting: "cache.totalBytesMax",
        },
        Limit {
            name: "responses that clients have not read",
            unit: "bytes",
            used: Some(held),
            limit: Some(held_max),
            times_met: Some(server.responses_stalled),
            setting: "an eighth of the memory limit, at most 256 MiB",
        },
        Limit {
            name: "memory of this process",
            unit: "bytes",
            used: process.resident,
            limit: overload.memory_max,
            times_met: None,
            setting: "the memory limit of the container",
        },
        Limit {
            name: "file descriptors",
            unit: "files",
            used: process.descriptors,
            limit: process.descriptors_max,
            times_met: None,
            setting: "the limit of open files (ulimit -n)",
        },
        Limit {
            name: "client connections",
            unit: "connections",
            used: server.connections,
            limit: None,
            times_met: Some(server.connections_refused),
            setting: "server.connectionsPerAddressMax",
        },
        Limit {
            name: "requests that wait for a cold cache",
            unit: "requests",
            used: all_caches.forwards,
            limit: None,
            times_met: Some(all_caches.forwards_exhausted),
            setting: "cache.forwardBudget",
        },
        Limit {
            name: "seats of the API servers",
            unit: "seats",
            used: flow.seats,
            limit: flow.seats_max,
            times_met: Some(flow.rejected),
            setting: "flowControl.seatsPerServer",
        },
        Limit {
            name: "requests refused by Weir's own overload",
            unit: "stage",
            used: overload.stage,
            limit: Some(4.0),
            times_met: Some(overload.refused),
            setting: "flowControl.mode",
        },
    ]
}
