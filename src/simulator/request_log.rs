//! The log of received requests: counts for the demo's screen, and the last requests for tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;

use super::flights::{Flight, Flights};
use super::request::Request;

/// The number of requests in the log; more than any test looks back.
const RECENT_MAX: usize = 2048;

/// A received request.
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
    /// The resource with its subresource, such as `pods/log`; empty for non-resource paths.
    pub resource: String,
    /// The authenticated user; empty if there is none.
    pub user: String,
    /// The headers without `Authorization`.
    pub headers: HeaderMap,
    /// The number of its connection, in the order in which they were accepted.
    pub connection: u64,
    /// The number of the API server that received it.
    pub server: usize,
}

/// A watch that has not ended.
#[derive(Clone, Debug)]
pub struct OpenWatch {
    /// The decoded path.
    pub path: String,
    /// The raw query.
    pub query: String,
    /// The `Accept` header.
    pub accept: String,
    /// The `User-Agent` header.
    pub user_agent: String,
}

/// The requests since the start, or since the last [`reset`](Self::reset).
#[derive(Debug, Default)]
pub struct RequestLog {
    counts: Mutex<BTreeMap<(String, String), u64>>,
    recent: Mutex<VecDeque<LoggedRequest>>,
    open: Mutex<BTreeMap<u64, OpenWatch>>,
    watches_begun: AtomicU64,
    watches_expired: AtomicU64,
    connections: AtomicU64,
    pub(super) flights: Flights,
}

impl RequestLog {
    /// Returns the number of requests by verb and resource.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.counts.lock().clone()
    }

    /// Returns the number of requests of a verb and a resource.
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        let key = (verb.to_owned(), resource.to_owned());
        self.counts.lock().get(&key).copied().unwrap_or(0)
    }

    /// Returns the number of requests.
    pub fn total(&self) -> u64 {
        self.counts.lock().values().sum()
    }

    /// Returns the last requests, the newest last.
    pub fn recent(&self) -> Vec<LoggedRequest> {
        self.recent.lock().iter().cloned().collect()
    }

    /// Returns the number of open watches.
    pub fn watches_open(&self) -> u64 {
        self.open.lock().len() as u64
    }

    /// Returns the open watches, in the order in which they were opened.
    pub fn open_watches(&self) -> Vec<OpenWatch> {
        self.open.lock().values().cloned().collect()
    }

    /// Returns the number of watches that ended because the history did not reach back to their
    /// resourceVersions.
    pub fn watches_expired(&self) -> u64 {
        self.watches_expired.load(Ordering::Relaxed)
    }

    /// Returns the number of connections accepted since the start.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns all received requests in order, if
    /// [`records_requests`](super::SimulatorOptions::records_requests) is set.
    pub fn flights(&self) -> Vec<Flight> {
        self.flights.record()
    }

    /// Clears the log.
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

    /// Returns the number of a connection that was accepted.
    pub(super) fn connection_opened(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an open watch, and returns its number.
    pub(super) fn watch_opened(&self, request: &Request) -> u64 {
        let header = |name| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let number = self.watches_begun.fetch_add(1, Ordering::Relaxed);
        let watch = OpenWatch {
            path: request.path.clone(),
            query: request.raw_query.clone(),
            accept: header(http::header::ACCEPT),
            user_agent: header(http::header::USER_AGENT),
        };
        self.open.lock().insert(number, watch);
        number
    }

    pub(super) fn watch_expired(&self) {
        self.watches_expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_closed(&self, number: u64) {
        self.open.lock().remove(&number);
    }
}
