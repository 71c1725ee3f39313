//! The requests that the API servers have received: from when to when each was in flight. The limit
//! on requests in flight needs their number, and a checker reads the record.
//!
//! One lock, never held across an await.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A request that an API server has received.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The authenticated user; empty if there is none.
    pub user: String,
    /// The `User-Agent` header; empty if there is none.
    pub user_agent: String,
    /// The `Audit-ID` header that it came with; empty if there was none.
    pub audit_id: String,
    /// The verb, such as `list`; the lower-case method for non-resource paths.
    pub verb: String,
    /// The decoded path.
    pub path: String,
    /// The number of the API server.
    pub server: usize,
    /// When it was received.
    pub began: Instant,
    /// When its answer was ready, or its client was gone; `None` while it is in flight.
    pub ended: Option<Instant>,
    /// The status of its answer; `None` without one.
    pub status: Option<u16>,
}

/// The requests in flight, and the record of all.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The requests that count against the limit of each API server.
    in_flight: BTreeMap<usize, usize>,
    record: Vec<Flight>,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    flights: &'a Flights,
    server: usize,
    /// Whether it counts against the limit.
    counts: bool,
    /// Its place in the record.
    place: Option<usize>,
    /// The status of its answer.
    pub(super) status: Option<u16>,
}

impl Flights {
    /// Begins a request. Returns it, and whether more requests than `most` are in flight at its API
    /// server, if it counts against this limit.
    pub(super) fn begin(
        &self,
        flight: Flight,
        most: Option<usize>,
        is_recorded: bool,
    ) -> (InFlight<'_>, bool) {
        let mut inner = self.0.lock();
        let server = flight.server;
        let count = inner.in_flight.entry(server).or_default();
        *count += usize::from(most.is_some());
        let is_over = most.is_some_and(|most| *count > most);
        let place = is_recorded.then_some(inner.record.len());
        if is_recorded {
            inner.record.push(flight);
        }
        let begun = InFlight { flights: self, server, counts: most.is_some(), place, status: None };
        (begun, is_over)
    }

    pub(super) fn record(&self) -> Vec<Flight> {
        self.0.lock().record.clone()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut inner = self.flights.0.lock();
        if let Some(count) = inner.in_flight.get_mut(&self.server).filter(|_| self.counts) {
            *count = count.saturating_sub(1);
        }
        if let Some(flight) = self.place.and_then(|place| inner.record.get_mut(place)) {
            flight.ended = Some(Instant::now());
            flight.status = self.status;
        }
    }
}
