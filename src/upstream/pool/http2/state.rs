//! The connections of a group: those that accept requests, those that drain, and the clients whose
//! reads use one of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Draining};
use crate::upstream::pool::limits::Http2Limits;

/// The connections of a group.
#[derive(Default)]
pub(super) struct State {
    /// The connections that accept requests, the oldest first.
    usable: Vec<Arc<Connection>>,
    /// The connections that accept no requests, and still carry some. The one that has drained
    /// longest comes first.
    draining: Vec<Draining>,
    /// The connections that the stale reads of clients use. Bounded by [`PINS_MAX`].
    pins: HashMap<u64, Weak<Connection>>,
    /// No connection is opened in place of a worn one before this time.
    worn_until: Option<Instant>,
}

/// Whether another connection may be opened.
pub(super) enum Admission {
    Refused,
    Admitted,
    /// The connection that has drained longest was closed for it.
    InPlaceOfDraining,
}

impl State {
    /// Adds a connection that accepts requests.
    pub(super) fn add(&mut self, connection: Arc<Connection>) {
        self.usable.push(connection);
    }

    /// Lets the connections drain that accept no more requests, or have other credentials. Calls
    /// `replaced` for each of the latter.
    pub(super) fn drain_unusable(&mut self, tls_generation: u64, replaced: impl Fn()) {
        let Self { usable, draining, .. } = self;
        usable.retain(|connection| {
            let is_replaced = connection.tls_generation != tls_generation;
            if is_replaced {
                replaced();
            }
            let is_usable = !is_replaced && !connection.is_closed();
            if !is_usable {
                draining.push(Draining::new(connection));
            }
            is_usable
        });
    }

    /// Closes the connections without a stream, and lets the others drain.
    pub(super) fn retire(&mut self) {
        for connection in self.usable.drain(..) {
            if connection.in_use() == 0 {
                connection.closing().cancel();
            }
            self.draining.push(Draining::new(&connection));
        }
    }

    /// Lets a connection drain, unless it does already.
    pub(super) fn drain(&mut self, connection: &Weak<Connection>) {
        let Self { usable, draining, .. } = self;
        usable.retain(|other| {
            let is_it = Arc::as_ptr(other) == connection.as_ptr();
            if is_it {
                draining.push(Draining::new(other));
            }
            !is_it
        });
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, connection: &Weak<Connection>) {
        self.usable.retain(|other| Arc::as_ptr(other) != connection.as_ptr());
        self.draining.retain(|other| !other.is(connection));
    }

    /// Returns a connection that `is_free`: the oldest with fewer than `resets_max` recent resets,
    /// or else the one with the fewest.
    pub(super) fn least_worn(
        &self,
        resets_max: usize,
        now: Instant,
        is_free: impl Fn(&Connection) -> bool,
    ) -> Option<Arc<Connection>> {
        let mut least: Option<(usize, &Arc<Connection>)> = None;
        for connection in self.usable.iter().filter(|connection| is_free(connection)) {
            let resets = connection.recent_resets(now);
            if resets < resets_max {
                return Some(Arc::clone(connection));
            }
            if least.is_none_or(|(fewest, _)| resets < fewest) {
                least = Some((resets, connection));
            }
        }
        least.map(|(_, connection)| Arc::clone(connection))
    }

    /// Returns whether a connection may be opened now because a worn one had to be used. At most
    /// one is in [`REPLACE_INTERVAL`], so that an upstream that accepts no connections is not asked
    /// with every request.
    pub(super) fn may_replace_worn(&mut self, now: Instant) -> bool {
        if self.worn_until.is_some_and(|until| now < until) {
            return false;
        }
        self.worn_until = Some(now + REPLACE_INTERVAL);
        true
    }

    /// Returns whether another connection may be opened. Those that are silent take no place of
    /// new ones. At the limit of open connections, closes the one that has drained longest.
    pub(super) fn admit_connection(&self, limits: Http2Limits) -> Admission {
        let answering = self.usable.iter().filter(|connection| !connection.is_silent()).count();
        if answering >= limits.connections_max {
            return Admission::Refused;
        }
        if self.usable.len() + self.draining.len() < limits.open_max() {
            return Admission::Admitted;
        }
        let Some(oldest) = self.draining.first() else { return Admission::Refused };
        oldest.close();
        Admission::InPlaceOfDraining
    }

    /// Returns the connection that the reads with this pin use, if it still accepts requests.
    pub(super) fn pinned(&self, pin: u64) -> Option<Arc<Connection>> {
        let connection = self.pins.get(&pin)?.upgrade()?;
        self.usable.iter().any(|usable| Arc::ptr_eq(usable, &connection)).then_some(connection)
    }

    /// Lets later reads with this pin use the connection.
    pub(super) fn pin(&mut self, pin: u64, connection: &Arc<Connection>) {
        if self.pins.len() >= PINS_MAX && !self.pins.contains_key(&pin) {
            self.pins.retain(|_, connection| connection.strong_count() > 0);
            if self.pins.len() >= PINS_MAX {
                self.pins.clear();
            }
        }
        self.pins.insert(pin, Arc::downgrade(connection));
    }

    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self, now: Instant) -> (usize, usize) {
        self.usable.iter().fold((0, 0), |(resets, in_use), connection| {
            (resets + connection.recent_resets(now), in_use + connection.in_use())
        })
    }
}

/// The most clients whose connection is remembered: at about 60 bytes each, a megabyte. Beyond it
/// all are forgotten, and the next reads use the oldest connection with a free stream, which is
/// mostly the same.
const PINS_MAX: usize = 16 << 10;
/// How often a connection is opened because a worn one had to be used.
const REPLACE_INTERVAL: Duration = Duration::from_millis(100);
