//! The live line of the demo: the requests of clients, and how few of them reached the upstream.
//! The figures are those of the server, so every Weir has them.

use std::fmt;

use crate::server::{RequestCount, ServerFigures};

/// The totals since the start, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    requests: u64,
    hits: u64,
    watches: u64,
    events: u64,
    upstream: u64,
}

impl Figures {
    /// Sums over all resources; `upstream` is the simulator's own count of requests.
    pub(super) fn new(server: &ServerFigures, upstream: u64) -> Self {
        Self {
            requests: requests(server, |_| true),
            hits: requests(server, |request| &*request.cache_status == "hit"),
            watches: server.watches as u64,
            events: events(server),
            upstream,
        }
    }
}

/// Returns the number of requests of a kind.
pub(super) fn requests(server: &ServerFigures, counts: impl Fn(&RequestCount) -> bool) -> u64 {
    let requests = server.requests.iter().filter(|request| counts(request));
    requests.map(|request| request.count as u64).sum()
}

/// Returns the number of events that were sent to watches.
pub(super) fn events(server: &ServerFigures) -> u64 {
    server.watch_events.iter().map(|(_, count)| *count as u64).sum()
}

/// The line, which fits in 80 columns while the figures have at most six digits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, hits, watches, events, upstream } = self;
        write!(
            f,
            "clients: {requests} requests, {hits} cached; {watches} watches, {events} events | upstream: {upstream}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_summed() {
        let request = |status: &str, count| RequestCount {
            cache_status: status.into(),
            count,
            ..RequestCount::default()
        };
        let server = ServerFigures {
            requests: vec![request("hit", 3.0), request("hit", 2.0), request("forward", 1.0)],
            watches: 7.0,
            ..ServerFigures::default()
        };
        let figures = Figures::new(&server, 4);
        assert_eq!(figures, Figures { requests: 6, hits: 5, watches: 7, events: 0, upstream: 4 });
        assert!(figures.to_string().len() < 80, "{figures}");
    }
}
