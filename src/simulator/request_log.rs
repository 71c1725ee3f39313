//! What reached the simulator: counts for the demo's screen, and the last requests for tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;

/// Requests kept one by one; more than any test looks back.
const RECENT_MAX: usize = 2048;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// The HTTP method.
    pub method: String,
    /// The decoded path.
    pub path: String,
    /// The raw query.
    pub query: String,
    /// The verb, such as `list`; the lower-case method for non-resource paths.
    pub verb: String,
    /// The resource with its subresource, as `pods/log`; empty for non-resource paths.
    pub resource: String,
    /// The user whom the credential names; empty if it names nobody.
    pub user: String,
    /// The headers but `Authorization`.
    pub headers: HeaderMap,
}

/// The requests since the start, or since the last [`reset`](Self::reset).
#[derive(Debug, Default)]
pub struct RequestLog {
    counts: Mutex<BTreeMap<(String, String), u64>>,
    recent: Mutex<VecDeque<LoggedRequest>>,
    watches_open: AtomicU64,
    connections: AtomicU64,
}

impl RequestLog {
    /// How many requests came, by verb and resource.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.counts.lock().clone()
    }

    /// How many requests of a verb and resource came.
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        let key = (verb.to_owned(), resource.to_owned());
        self.counts.lock().get(&key).copied().unwrap_or(0)
    }

    /// How many requests came.
    pub fn total(&self) -> u64 {
        self.counts.lock().values().sum()
    }

    /// The last requests, the newest last.
    pub fn recent(&self) -> Vec<LoggedRequest> {
        self.recent.lock().iter().cloned().collect()
    }

    /// The watches that are open now.
    pub fn watches_open(&self) -> u64 {
        self.watches_open.load(Ordering::Relaxed)
    }

    /// The connections accepted since the start.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Forgets all requests.
    pub fn reset(&self) {
        self.counts.lock().clear();
        self.recent.lock().clear();
    }

    pub(super) fn add(&self, request: LoggedRequest) {
        let key = (request.verb.clone(), request.resource.clone());
        *self.counts.lock().entry(key).or_default() += 1;
        let mut recent = self.recent.lock();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(request);
    }

    pub(super) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_opened(&self) {
        self.watches_open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_closed(&self) {
        self.watches_open.fetch_sub(1, Ordering::Relaxed);
    }
}
