//! The open and the cancelled requests of each client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tokio::time::Instant;

use crate::server::connection::client_id::ClientId;
use crate::upstream::TrafficClass;
use crate::upstream::recent_count::RecentCount;

/// A kind of request. Each has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Requests,
    Streams,
    Upgrades,
    UnprovenRequests,
    UnprovenStreams,
}

impl Kind {
    pub(super) fn new(class: TrafficClass, unproven: bool) -> Self {
        match class {
            TrafficClass::Request | TrafficClass::List if unproven => Self::UnprovenRequests,
            TrafficClass::Request | TrafficClass::List => Self::Requests,
            TrafficClass::Stream if unproven => Self::UnprovenStreams,
            TrafficClass::Stream => Self::Streams,
            TrafficClass::Upgrade => Self::Upgrades,
        }
    }

    /// Returns its name in the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "forwarded requests",
            Self::Streams => "forwarded streams",
            Self::Upgrades => "upgrades",
            Self::UnprovenRequests => "forwarded requests without a proven credential",
            Self::UnprovenStreams => "forwarded streams without a proven credential",
        }
    }
}

/// The clients that have requests open, or cancelled some lately.
#[derive(Debug, Default)]
pub(super) struct Table {
    open: HashMap<(ClientId, Kind), usize>,
    cancelled: HashMap<(ClientId, Kind), RecentCount>,
    /// The size of `cancelled` at which clients are removed that cancelled nothing lately.
    sweep_at: usize,
}

impl Table {
    /// Returns the number of open requests.
    pub(super) fn open(&self, id: ClientId, kind: Kind) -> usize {
        self.open.get(&(id, kind)).copied().unwrap_or_default()
    }

    /// Counts an open request. The table is bounded by their number.
    pub(super) fn add_open(&mut self, id: ClientId, kind: Kind) {
        *self.open.entry((id, kind)).or_default() += 1;
    }

    /// Counts the end of an open request.
    pub(super) fn remove_open(&mut self, id: ClientId, kind: Kind) {
        if let Entry::Occupied(mut open) = self.open.entry((id, kind)) {
            if *open.get() > 1 {
                *open.get_mut() -= 1;
            } else {
                open.remove();
            }
        }
    }

    /// Returns the number of requests that were cancelled lately.
    pub(super) fn cancelled(&mut self, id: ClientId, kind: Kind, now: Instant) -> usize {
        self.cancelled.get_mut(&(id, kind)).map_or(0, |count| count.get(now))
    }

    /// Counts a cancelled request. The table is bounded by the requests that are cancelled within
    /// half a minute.
    pub(super) fn add_cancelled(&mut self, id: ClientId, kind: Kind, now: Instant) {
        if self.cancelled.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.cancelled.retain(|_, count| count.get(now) > 0);
            self.sweep_at = self.cancelled.len() * 2;
        }
        self.cancelled.entry((id, kind)).or_insert_with(|| RecentCount::new(now)).add(now);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.cancelled.len()
    }
}

/// Below this size the table is not searched for clients to remove.
const SWEEP_MIN: usize = 1024;
