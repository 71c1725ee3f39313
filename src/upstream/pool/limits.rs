//! The limits of the pools.

use std::time::Duration;

use crate::upstream::send_options::TrafficClass;

/// The longest wait for a stream or connection while every allowed one is in use.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Upgraded connections at once: one for each `kubectl exec` or `port-forward`, far more than a
/// person or a controller opens.
pub(super) const UPGRADES_MAX: usize = 1024;
/// Lists of whole collections at once: more than the reflectors of all caches start.
pub(super) const LISTS_MAX: usize = 64;
/// Connections of their own for requests in a row to one API server, at once: more than the short
/// watches of all caches.
pub(super) const SINGLES_MAX: usize = 128;
/// The largest response head. kube-apiserver accepts request heads of 1 MiB, and may return as
/// much.
pub(super) const HEADERS_MAX_BYTES: u32 = 1024 * 1024;
/// The largest head of a response to a reflector's list, which has few headers. An HTTP/1.1
/// connection reads twice as many bytes at once.
pub(super) const LIST_HEADERS_MAX_BYTES: u32 = 32 * 1024;
/// Requests over HTTP/1.1 at once. Each has a connection. kube-apiserver by default runs 600
/// requests at once, those of all its clients.
pub(super) const HTTP1_REQUESTS_MAX: usize = 256;
/// Watches and other streams over HTTP/1.1 at once. Each has a connection.
pub(super) const HTTP1_STREAMS_MAX: usize = 1024;

/// Requests of several seats at once. Each has a connection, and takes several of the 600 seats of
/// kube-apiserver by default.
pub(super) const WIDE_MAX: usize = 256;

/// The limits of the HTTP/2 connections of a group.
#[derive(Clone, Copy)]
pub(super) struct Http2Limits {
    /// Streams at once on one connection, if the peer allows as many.
    pub(super) connection_streams_max: usize,
    /// Connections at once that accept requests.
    pub(super) connections_max: usize,
    /// A connection that has reset this number of streams lately is used only if no other can be.
    pub(super) resets_max: usize,
    /// Whether the body of a response follows its head without a pause.
    pub(super) awaits_bodies: bool,
}

/// The limits for ordinary requests. kube-apiserver allows 100 streams on a connection; the
/// difference is for streams that are being reset. 16 connections carry 1,440 requests, more than
/// twice as many as kube-apiserver runs at once.
pub(super) const HTTP2_REQUESTS: Http2Limits = Http2Limits {
    connection_streams_max: 90,
    connections_max: 16,
    resets_max: 200,
    awaits_bodies: true,
};
/// The limits for watches and other streams. Every cancelled stream is a reset, so that more resets
/// are ordinary than for requests.
pub(super) const HTTP2_STREAMS: Http2Limits = Http2Limits {
    connection_streams_max: 64,
    connections_max: 64,
    resets_max: 1000,
    awaits_bodies: false,
};

impl Http2Limits {
    /// Returns how many streams all connections carry at once, with those that drain.
    pub(super) const fn streams_max(self) -> usize {
        self.connection_streams_max * self.connections_max
    }

    /// Returns how many connections are open at once, with those that drain. An API server with
    /// `--goaway-chance=0.02` leaves about two draining connections for each that accepts watches.
    pub(super) const fn open_max(self) -> usize {
        self.connections_max * 4
    }

    /// Returns how many streams can be reset within
    /// [`RECENT`](crate::upstream::recent_count::RECENT) before all connections are worn.
    const fn resets_max(self) -> usize {
        self.resets_max * self.connections_max
    }
}

/// Requests at once whose credential is not known to be good, each with an HTTP/1.1 connection. The
/// upstream answers most of them at once.
pub(super) const UNPROVEN_REQUESTS_MAX: usize = 128;
/// Watches and other streams at once whose credential is not known to be good: those of anonymous
/// clients, and of all clients while the upstream answers no token review.
pub(super) const UNPROVEN_STREAMS_MAX: usize = 512;

/// Returns how many exchanges of a class can be in progress at once.
pub(super) fn streams_max(class: TrafficClass, http2: bool, unproven: bool) -> usize {
    match (class, http2) {
        (TrafficClass::Request, _) if unproven => UNPROVEN_REQUESTS_MAX,
        (TrafficClass::Stream, _) if unproven => UNPROVEN_STREAMS_MAX,
        (TrafficClass::Request, true) => HTTP2_REQUESTS.streams_max(),
        (TrafficClass::Request, false) => HTTP1_REQUESTS_MAX,
        (TrafficClass::Stream, true) => HTTP2_STREAMS.streams_max(),
        (TrafficClass::Stream, false) => HTTP1_STREAMS_MAX,
        (TrafficClass::Upgrade, _) => UPGRADES_MAX,
        (TrafficClass::List, _) => LISTS_MAX,
    }
}

/// Returns how many HTTP/2 streams of a class can be reset within
/// [`RECENT`](crate::upstream::recent_count::RECENT) before all connections are worn.
pub(super) fn resets_max(class: TrafficClass) -> usize {
    match class {
        TrafficClass::Stream => HTTP2_STREAMS.resets_max(),
        _ => HTTP2_REQUESTS.resets_max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HTTP1_SEATS_MAX, SEATS_MAX};

    /// Beyond that the pool would be the queue of forwarded requests, which is not fair.
    #[test]
    fn seats_are_at_most_eight_of_ten_places() {
        for (seats, http2) in [(SEATS_MAX, true), (HTTP1_SEATS_MAX, false)] {
            let places = streams_max(TrafficClass::Request, http2, false) as u64;
            assert!(seats * 10 <= places * 8, "{seats} of {places}");
        }
    }
}
