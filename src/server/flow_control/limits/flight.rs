//! A forwarded request on its way: it notes where its seats are, and what the API server answers.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;

use super::ServerLimits;
use crate::api::retry_after::parse_retry_after;
use crate::server::flow_control::queue::Queue;
use crate::server::http::headers::{PRIORITY_LEVEL_UID, SHED_HEADER};
use crate::upstream::send_options::AttemptObserver;

/// A forwarded request, from the first attempt to send it until its seats are free.
pub(crate) struct Flight {
    limits: Arc<ServerLimits>,
    queue: Arc<Queue>,
    target: FlightTarget,
    /// The key of the server of the last attempt.
    server: Mutex<Option<u64>>,
}

/// The properties of a request that are known before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct FlightTarget {
    /// The name of its priority level.
    pub(crate) level: Arc<str>,
    pub(crate) seats: u64,
    /// Whether kube-apiserver itself answers it, without an aggregated API server.
    pub(crate) is_of_core: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// One priority level there has too much to do.
    OfLevel,
    /// The server has.
    OfServer,
}

impl Flight {
    /// Follows a request, if the limits adapt to answers.
    pub(in crate::server::flow_control) fn new(
        limits: &Arc<ServerLimits>,
        queue: &Arc<Queue>,
        target: FlightTarget,
    ) -> Option<Arc<Self>> {
        let (limits, queue) = (Arc::clone(limits), Arc::clone(queue));
        let heeds_refusals = limits.heeds_refusals;
        heeds_refusals.then(|| Arc::new(Self { limits, queue, target, server: Mutex::default() }))
    }

    fn give_back(&self, server: u64) {
        self.limits.update(server, |_, limited| {
            limited.in_use = limited.in_use.saturating_sub(self.target.seats);
        });
    }
}

impl AttemptObserver for Flight {
    fn began(&self, server: u64) {
        let before = self.server.lock().replace(server);
        if let Some(before) = before {
            self.give_back(before);
        }
        self.limits.update(server, |_, limited| limited.in_use += self.target.seats);
    }

    fn answered(&self, status: StatusCode, headers: &HeaderMap) {
        let server = *self.server.lock();
        let refusal = refusal(status, headers, self.target.is_of_core);
        let (Some(server), Some(refusal)) = (server, refusal) else { return };
        let retry_after = parse_retry_after(headers);
        let is_of_level = refusal == Refusal::OfLevel;
        let level =
            is_of_level.then(|| (&self.target.level, self.queue.part_in_use(&self.target.level)));
        let allotment = self.limits.refused(server, level, retry_after);
        self.queue.set_allotment(&allotment);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let server = self.server.lock().take();
        if let Some(server) = server {
            self.give_back(server);
        }
    }
}

/// Returns the meaning of a response for the load of its API server.
///
/// kube-apiserver's filters write plain text: priority and fairness with the uid of the level, the
/// limit of requests in flight without. A `Status` is an answer about the request itself: an
/// eviction that a disruption budget does not allow, a watch cache that is being filled, a rate
/// limit of events. One that shuts down closes the connection, and has not too much to do.
/// A Weir in front of the API server names its reason in a header; limits of one client are none.
fn refusal(status: StatusCode, headers: &HeaderMap, is_of_core: bool) -> Option<Refusal> {
    let is = |name, start: &[u8]| {
        let value = headers.get(name).map(HeaderValue::as_bytes);
        value.is_some_and(|value| value.starts_with(start))
    };
    if status != StatusCode::TOO_MANY_REQUESTS || !is_of_core || is(CONNECTION, b"close") {
        return None;
    }
    if let Some(shed) = headers.get(SHED_HEADER) {
        return LOAD_REASONS.iter().any(|reason| shed == reason).then_some(Refusal::OfLevel);
    }
    let has_level = headers.contains_key(PRIORITY_LEVEL_UID);
    let refusal = if has_level { Refusal::OfLevel } else { Refusal::OfServer };
    is(CONTENT_TYPE, b"text/plain").then_some(refusal)
}

/// The reasons of another Weir that are about its load, or that of its API server.
const LOAD_REASONS: [&str; 4] = ["concurrency-limit", "overload", "queue-full", "time-out"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_filters_of_the_api_server_say_that_it_has_too_much_to_do() {
        let read = |status: u16, headers: &[(&str, &str)], is_of_core| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let name: http::HeaderName = name.parse().unwrap();
                map.insert(name, HeaderValue::from_str(value).unwrap());
            }
            refusal(StatusCode::from_u16(status).unwrap(), &map, is_of_core)
        };
        let text = ("content-type", "text/plain; charset=utf-8");
        let json = ("content-type", "application/json");
        let level = ("x-kubernetes-pf-prioritylevel-uid", "7");
        let (of_level, of_server) = (Some(Refusal::OfLevel), Some(Refusal::OfServer));
        for (status, headers, is_of_core, expected) in [
            (429, &[text, level][..], true, of_level),
            (429, &[text], true, of_server),
            // An aggregated API server's.
            (429, &[text, level], false, None),
            // An eviction, a watch cache that is being filled, a rate limit of events.
            (429, &[json, level], true, None),
            // One that shuts down.
            (429, &[text, level, ("connection", "close")], true, None),
            // Another Weir's.
            (429, &[json, level, ("x-weir-shed", "time-out")], true, of_level),
            (429, &[json, level, ("x-weir-shed", "watches")], true, None),
            (503, &[text, level], true, None),
            (200, &[text, level], true, None),
        ] {
            assert_eq!(read(status, headers, is_of_core), expected, "{status} {headers:?}");
        }
    }
}
