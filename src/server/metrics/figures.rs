//! The figures of the server, as values.

use crate::codec::held_bytes::HeldBytes;
use crate::server::metrics::ServerMetrics;
use crate::telemetry::metrics::{labelled, sum};

/// The counts of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// Requests.
    pub requests: Vec<RequestCount>,
    /// Events that were sent to watches, by group, version and resource.
    pub watch_events: Vec<([Box<str>; 3], f64)>,
    /// Bytes of responses, by verb and cache status.
    pub response_bytes: Vec<([Box<str>; 2], f64)>,
    /// Open watches that caches serve.
    pub watches: f64,
    /// Open connections of clients; `None` before the first one.
    pub connections: Option<f64>,
    /// Connections that were refused or closed because of a limit.
    pub connections_refused: f64,
    /// Responses that were dropped because their clients did not read them.
    pub responses_stalled: f64,
    /// Bytes that wait for clients, and their limit.
    pub held: [f64; 2],
    /// Bytes of discovery and OpenAPI documents in memory.
    pub documents: f64,
}

/// The number of requests that were alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestCount {
    /// The verb.
    pub verb: Box<str>,
    /// The group, version and name of the resource.
    pub resource: [Box<str>; 3],
    /// The cache status.
    pub cache_status: Box<str>,
    /// Why it has this cache status; empty for a hit.
    pub reason: Box<str>,
    /// The status code.
    pub code: Box<str>,
    /// The number of these requests.
    pub count: f64,
}

impl ServerMetrics {
    /// Returns what was counted.
    pub fn figures(&self) -> ServerFigures {
        let inner = &*self.inner;
        let families = &inner.resource_families;
        let labels = ["verb", "group", "version", "resource", "cache_status", "reason", "code"];
        let request = |(labels, count): ([Box<str>; 7], f64)| {
            let [verb, group, version, resource, cache_status, reason, code] = labels;
            let resource = [group, version, resource];
            RequestCount { verb, resource, cache_status, reason, code, count }
        };
        let held = |value: fn(&HeldBytes) -> usize| inner.held.get().map_or(0, value) as f64;
        ServerFigures {
            requests: labelled(&families.requests, labels).into_iter().map(request).collect(),
            watch_events: labelled(&families.watch_events, ["group", "version", "resource"]),
            response_bytes: labelled(&families.response_bytes, ["verb", "cache_status"]),
            watches: sum(&families.watchers).unwrap_or(0.0),
            connections: sum(&inner.families.connections),
            connections_refused: sum(&inner.families.connections_refused).unwrap_or(0.0),
            responses_stalled: inner.families.responses_stalled.get() as f64,
            held: [held(HeldBytes::bytes), held(HeldBytes::bytes_max)],
            documents: inner.families.documents_bytes.get() as f64,
        }
    }
}
