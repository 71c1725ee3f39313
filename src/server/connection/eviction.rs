//! Connections that may be closed to make room for others from their address: those that have
//! proved no user and have no open request (`docs/decisions/limits-by-user.md`).
//!
//! Without this, a client that opens connections and sends nothing would lock out everybody behind
//! the same address. The oldest goes first: a client with a credential proves it within a few round
//! trips.
//!
//! The owner of the queue has the lock. A connection notices its end at its next read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::server::connection::activity::ConnActivity;

/// Whether one connection may be closed, and whether it is.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    /// Whether the connection is kept: it has proved a user, or was upgraded.
    is_kept: AtomicBool,
    /// Whether its bytes are relayed both ways, for which the API server has no time-out.
    is_spliced: AtomicBool,
    /// Written under the lock of the queue.
    is_evicted: AtomicBool,
    /// The task that reads from the connection.
    reader: AtomicWaker,
    /// Set once HTTP is served. A connection in its handshake has no open request.
    activity: OnceLock<ConnActivity>,
}

/// The connections of one address that have proved no user, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unproven {
    /// The number of those that are counted.
    pub(super) count: usize,
    /// May have connections that are kept or gone.
    queue: VecDeque<Weak<Eviction>>,
}

impl Eviction {
    pub(crate) fn serve(&self, activity: &ConnActivity) {
        self.activity.get_or_init(|| activity.clone());
    }

    /// Keeps the connection, whatever its activity.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Keeps the connection, also while its client reads nothing.
    pub(crate) fn splice(&self) {
        self.keep();
        self.is_spliced.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_spliced(&self) -> bool {
        self.is_spliced.load(Ordering::Relaxed)
    }

    /// Completes when the connection is to be closed. Only the task that reads may call this.
    pub(crate) fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_kept.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.reader.register(context.waker());
        if self.is_evicted() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Wakes the task that reads, after the connection was evicted.
    pub(super) fn wake(&self) {
        self.reader.wake();
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed) || self.is_evicted()
    }

    fn is_idle(&self) -> bool {
        self.activity.get().is_none_or(ConnActivity::is_idle)
    }
}

impl Unproven {
    pub(super) fn push(&mut self, connection: &Arc<Eviction>) {
        if self.queue.len() >= 2 * self.count + QUEUE_MIN {
            self.queue.retain(|candidate| {
                candidate.upgrade().is_some_and(|candidate| !candidate.is_over())
            });
        }
        self.count += 1;
        self.queue.push_back(Arc::downgrade(connection));
    }

    /// Evicts the oldest of the idle connections, which is counted no more. Looks at no more than
    /// [`BUSY_MAX`] that are busy.
    pub(super) fn evict(&mut self) -> Option<Arc<Eviction>> {
        let mut busy = 0;
        while busy < BUSY_MAX.min(self.count) {
            let connection = self.queue.pop_front()?;
            let Some(candidate) = connection.upgrade().filter(|candidate| !candidate.is_over())
            else {
                continue;
            };
            if candidate.is_idle() {
                candidate.is_evicted.store(true, Ordering::Release);
                self.count -= 1;
                return Some(candidate);
            }
            self.queue.push_back(connection);
            busy += 1;
        }
        None
    }
}

/// Below this length the queue is not searched for connections that are kept or gone.
const QUEUE_MIN: usize = 16;
/// Many busy connections of one address are no flood of silent ones.
const BUSY_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn evicted(connection: &Eviction) -> bool {
        connection.poll_evicted(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_idle_one_makes_room() {
        let mut unproven = Unproven::default();
        let connections: Vec<Arc<Eviction>> = (0..5).map(|_| Arc::default()).collect();
        connections.iter().for_each(|connection| unproven.push(connection));
        let (busy, activity) = (&connections[0], ConnActivity::new());
        busy.serve(&activity);
        let request = activity.begin_request();
        connections[1].keep();
        unproven.count -= 1;
        assert!(unproven.evict().is_some_and(|candidate| Arc::ptr_eq(&candidate, &connections[2])));
        assert_eq!(
            connections.iter().map(|candidate| evicted(candidate)).collect::<Vec<_>>(),
            [false, false, true, false, false]
        );
        assert!(unproven.evict().is_some_and(|candidate| Arc::ptr_eq(&candidate, &connections[3])));
        assert!(unproven.evict().is_some_and(|candidate| Arc::ptr_eq(&candidate, &connections[4])));
        assert!(unproven.evict().is_none(), "the last one is busy");
        drop(request);
        assert!(unproven.evict().is_some_and(|candidate| Arc::ptr_eq(&candidate, busy)));
        assert_eq!(unproven.count, 0);
    }

    #[test]
    fn the_queue_does_not_grow_with_connections_that_are_gone() {
        let mut unproven = Unproven::default();
        for _ in 0..1000 {
            unproven.push(&Arc::default());
            unproven.count -= 1;
        }
        assert!(unproven.queue.len() <= QUEUE_MIN + 1);
    }
}
