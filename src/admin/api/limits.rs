//! The limits of Weir: what is used of each, how often it was met, and the setting.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object, optional};
use crate::admin::api::moment::Moment;
use crate::admin::numbers::Numbers;

/// Returns the content of `/api/limits`.
pub(super) fn content(moment: &Moment) -> Map<String, Value> {
    let known_limits = limits(&moment.numbers).into_iter().filter(Limit::is_known);
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

/// Returns the limits; one without a metric of its use or of its limit shows none.
#[expect(clippy::too_many_lines, reason = "a table")]
fn limits(numbers: &Numbers) -> Vec<Limit> {
    let find = |name: &str| numbers.find(name, &[]);
    let sum = |name: &str, labels: &[(&str, &str)]| Some(numbers.sum(name, labels));
    let refusals = |budget| sum("weir_cache_budget_refusals_total", &[("budget", budget)]);
    vec![
        Limit {
            name: "all caches",
            unit: "bytes",
            used: find("weir_cache_total_bytes"),
            limit: find("weir_cache_total_bytes_limit"),
            times_met: refusals("total"),
            setting: "cache.totalBytesMax",
        },
        Limit {
            name: "the largest cache",
            unit: "bytes",
            used: numbers.largest("weir_cache_bytes"),
            limit: find("weir_cache_bytes_limit"),
            times_met: refusals("resource"),
            setting: "cache.resourceBytesMax",
        },
        Limit {
            name: "compressed lists",
            unit: "bytes",
            used: find("weir_gzip_segments_bytes"),
            limit: find("weir_gzip_segments_bytes_limit"),
            times_met: None,
            setting: "cache.totalBytesMax",
        },
        Limit {
            name: "responses that clients have not read",
            unit: "bytes",
            used: find("weir_response_memory_bytes"),
            limit: find("weir_response_memory_bytes_limit"),
            times_met: find("weir_responses_stalled_total"),
            setting: "an eighth of the memory limit, at most 256 MiB",
        },
        Limit {
            name: "memory of this process",
            unit: "bytes",
            used: find("process_resident_memory_bytes"),
            limit: find("weir_memory_limit_bytes"),
            times_met: None,
            setting: "the memory limit of the container",
        },
        Limit {
            name: "file descriptors",
            unit: "files",
            used: find("process_open_fds"),
            limit: find("process_max_fds"),
            times_met: None,
            setting: "the limit of open files (ulimit -n)",
        },
        Limit {
            name: "client connections",
            unit: "connections",
            used: find("weir_connections"),
            limit: None,
            times_met: sum("weir_connections_refused_total", &[]),
            setting: "server.connectionsPerAddressMax",
        },
        Limit {
            name: "requests that wait for a cold cache",
            unit: "requests",
            used: find("weir_forward_budget_requests"),
            limit: None,
            times_met: sum("weir_forward_budget_exhausted_total", &[]),
            setting: "cache.forwardBudget",
        },
        Limit {
            name: "seats of the API servers",
            unit: "seats",
            used: find("weir_flowcontrol_seats"),
            limit: numbers.find("weir_flowcontrol_upstream_limit_seats", &[("limit", "actual")]),
            times_met: sum("weir_flowcontrol_rejected_requests_total", &[]),
            setting: "flowControl.seatsPerServer",
        },
        Limit {
            name: "requests refused by Weir's own overload",
            unit: "stage",
            used: numbers.find("weir_overload_stage", &[("by", "acted-on")]),
            limit: Some(4.0),
            times_met: sum("weir_overload_refused_requests_total", &[("enforced", "true")]),
            setting: "flowControl.mode",
        },
    ]
}
