//! The metrics of one resource: its requests, watches and lists.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use prometheus::{Histogram, IntCounter, IntGauge};
use tokio::time::Instant;

use crate::api::request_info::RequestScope;
use crate::cache::core::store::ScanIndex;
use crate::server::metrics::families::{ResourceFamilies, WaitCause};
use crate::telemetry::metrics::GaugeGuard;

crate::api::labels! {
    /// The cache status of a response: its origin.
    pub(crate) enum CacheStatus {
        /// A cache.
        Hit = "hit",
        /// The upstream.
        Forward = "forward",
        /// An error of Weir's own.
        Error = "error",
    }
}

/// The metrics of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    pub(super) families: Arc<ResourceFamilies>,
    labels: [Box<str>; 3],
    /// The handles of cache hits with status 200, for get, list and watch of each scope.
    hits: [[OnceLock<RequestHandles>; SCOPES]; 3],
    watch: OnceLock<WatchHandles>,
    dropped: OnceLock<IntCounter>,
    /// The objects that were scanned and returned, by [`ScanIndex`].
    lists: [OnceLock<[IntCounter; 2]>; 4],
}

/// A request whose response is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) verb: &'static str,
    pub(crate) scope: RequestScope,
    pub(crate) cache_status: CacheStatus,
    /// Why it has this cache status; empty for a hit.
    pub(crate) reason: &'static str,
    pub(crate) code: u16,
    /// The time from the request's head to the response's.
    pub(crate) duration: Duration,
    /// The length of the response's body, if that is known and short.
    pub(crate) bytes: Option<u64>,
}

crate::api::labels! {
    /// The outcome of a watch that a cache was to serve.
    pub(crate) enum WatchOutcome {
        /// The cache serves it.
        Served = "served",
        /// It was answered with 410.
        Expired = "expired",
        /// The cache cannot serve it.
        Forwarded = "forwarded",
    }
}

#[derive(Debug)]
struct RequestHandles {
    count: IntCounter,
    duration: Histogram,
    bytes: IntCounter,
}

#[derive(Debug)]
struct WatchHandles {
    watchers: IntGauge,
    events: IntCounter,
    bytes: IntCounter,
}

impl ResourceMetrics {
    pub(super) fn new(families: &Arc<ResourceFamilies>, labels: [&str; 3]) -> Self {
        Self {
            families: Arc::clone(families),
            labels: labels.map(Box::from),
            hits: Default::default(),
            watch: OnceLock::new(),
            dropped: OnceLock::new(),
            lists: Default::default(),
        }
    }

    /// Counts a request when the head of its response is known. Returns the counter of the
    /// response's bytes, if these are to be counted while they are sent.
    pub(crate) fn request(&self, request: &AnsweredRequest) -> Option<IntCounter> {
        let is_hit = request.cache_status == CacheStatus::Hit && request.code == 200;
        let resolved;
        let handles = match self.hit(request).filter(|_| is_hit) {
            Some(hit) => hit.get_or_init(|| self.resolve(request)),
            None => {
                resolved = self.resolve(request);
                &resolved
            }
        };
        handles.count.inc();
        handles.duration.observe(request.duration.as_secs_f64());
        match request.bytes {
            Some(bytes) => {
                handles.bytes.inc_by(bytes);
                None
            }
            None => Some(handles.bytes.clone()),
        }
    }

    /// Observes for how long Weir had a forwarded request, without the API server.
    pub(crate) fn forward_overhead(&self, overhead: Duration) {
        self.families.forward_overhead.observe(overhead.as_secs_f64());
    }

    /// Counts a watch as open until the guard is dropped.
    pub fn watcher(&self) -> GaugeGuard {
        GaugeGuard::new(self.watch().watchers.clone())
    }

    /// Returns the low bits of the number of open watches.
    pub(crate) fn open_watchers(&self) -> u8 {
        let [low, ..] = self.watch().watchers.get().to_le_bytes();
        low
    }

    /// Counts a watch that a cache was to serve. `start` is a fixed word.
    pub(crate) fn watch_started(&self, start: &'static str, outcome: WatchOutcome) {
        let [group, version, resource] = &self.labels;
        let labels = [group, version, resource, start, outcome.as_str()];
        self.families.watch_starts.with_label_values(&labels).inc();
    }

    /// Counts events and bytes that were sent to a watch.
    pub fn delivered(&self, events: usize, bytes: usize) {
        let watch = self.watch();
        watch.events.inc_by(events as u64);
        watch.bytes.inc_by(bytes as u64);
    }

    /// Counts bytes that were left out of a response for a client that does without.
    #[inline]
    pub(crate) fn dropped(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let dropped = self.dropped.get_or_init(|| {
            let labels = self.labels.each_ref().map(|label| &**label);
            self.families.dropped_bytes.with_label_values(&labels)
        });
        dropped.inc_by(bytes as u64);
    }

    /// Counts the end of a watch.
    pub fn watcher_ended(&self, cause: &'static str) {
        let [group, version, resource] = &self.labels;
        let ended = &self.families.watchers_ended;
        ended.with_label_values(&[group, version, resource, cause]).inc();
    }

    /// Counts the objects that were read for a list, and those that it has.
    pub(crate) fn listed(&self, index: ScanIndex, scanned: usize, returned: usize) {
        let [name, field, namespace, none] = &self.lists;
        let (handles, label) = match index {
            ScanIndex::Name => (name, "name"),
            ScanIndex::Field => (field, "field"),
            ScanIndex::Namespace => (namespace, "namespace"),
            ScanIndex::None => (none, "none"),
        };
        let [scanned_total, returned_total] = handles.get_or_init(|| {
            let [group, version, resource] = &self.labels;
            [&self.families.list_scanned, &self.families.list_returned]
                .map(|family| family.with_label_values(&[group, version, resource, label]))
        });
        scanned_total.inc_by(scanned as u64);
        returned_total.inc_by(returned as u64);
    }

    /// Counts a list that broke off because its client was too slow.
    pub fn list_outrun(&self) {
        self.families.lists_outrun.inc();
    }

    /// Waits for `done`, and observes for how long, unless it is done at once. The caller pins it,
    /// since a second place for a large future would double the size of all that wait for it.
    /// Returns also whether it was not done at once.
    pub(crate) async fn wait<F: Future>(
        &self,
        cause: WaitCause,
        mut done: Pin<&mut F>,
    ) -> (F::Output, bool) {
        let polled = poll_fn(|context| Poll::Ready(done.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return (output, false);
        }
        let since = Instant::now();
        let output = done.await;
        self.families.waits.get(cause).observe(since.elapsed().as_secs_f64());
        (output, true)
    }

    fn hit(&self, request: &AnsweredRequest) -> Option<&OnceLock<RequestHandles>> {
        let [get, list, watch] = &self.hits;
        let by_scope = match request.verb {
            "get" => get,
            "list" => list,
            "watch" => watch,
            _ => return None,
        };
        let [resource, namespace, cluster] = by_scope;
        match request.scope {
            RequestScope::Resource => Some(resource),
            RequestScope::Namespace => Some(namespace),
            RequestScope::Cluster => Some(cluster),
            RequestScope::None => None,
        }
    }

    fn resolve(&self, request: &AnsweredRequest) -> RequestHandles {
        let AnsweredRequest { verb, reason, .. } = request;
        let [group, version, resource] = &self.labels;
        let status = request.cache_status.as_str();
        let families = &self.families;
        let code = code_label(request.code);
        let labels: [&str; 7] = [verb, group, version, resource, status, reason, &code];
        RequestHandles {
            count: families.requests.with_label_values(&labels),
            duration: families.duration.with_label_values(&[verb, request.scope.as_str(), status]),
            bytes: self.response_bytes(verb, status),
        }
    }

    fn watch(&self) -> &WatchHandles {
        self.watch.get_or_init(|| {
            let labels = self.labels.each_ref().map(|label| &**label);
            WatchHandles {
                watchers: self.families.watchers.with_label_values(&labels),
                events: self.families.watch_events.with_label_values(&labels),
                bytes: self.response_bytes("watch", CacheStatus::Hit.as_str()),
            }
        })
    }

    fn response_bytes(&self, verb: &str, status: &str) -> IntCounter {
        let [group, version, resource] = &self.labels;
        let labels = [verb, group, version, resource, status];
        self.families.response_bytes.with_label_values(&labels)
    }
}

/// Returns the label value of a status code: `other` for one that no standard has. A server
/// behind the API server's proxy may send any number.
fn code_label(code: u16) -> Cow<'static, str> {
    let standard = StatusCode::from_u16(code).ok().filter(|code| code.canonical_reason().is_some());
    standard.map_or(Cow::Borrowed("other"), |code| Cow::Owned(code.as_str().to_owned()))
}

/// The scopes of requests with a resource.
const SCOPES: usize = 3;
