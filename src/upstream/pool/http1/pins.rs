//! The clients whose stale reads use a certain HTTP/1.1 connection.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The clients that have a connection. Cheap to clone: clones share the clients. Bounded by the
/// number of connections.
#[derive(Clone, Default)]
pub(super) struct Pins(Arc<Mutex<HashSet<u64>>>);

/// Belongs to the one connection that a client's stale reads use. Dropping it, with the connection,
/// lets the client's next read choose another.
pub(super) struct PinGuard {
    pin: u64,
    pins: Pins,
}

impl Pins {
    /// Returns the guard for a client that has no connection yet.
    pub(super) fn acquire(&self, pin: u64) -> Option<PinGuard> {
        let is_new = self.0.lock().insert(pin);
        is_new.then(|| PinGuard { pin, pins: self.clone() })
    }
}

impl PinGuard {
    /// Returns the client.
    pub(super) fn pin(&self) -> u64 {
        self.pin
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.pins.0.lock().remove(&self.pin);
    }
}
