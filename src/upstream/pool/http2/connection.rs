//! One HTTP/2 connection, and the lease of one of its streams.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::group_streams::GroupStreams;
use super::handshake::Sender;
use super::liveness::Liveness;
use crate::upstream::recent_count::RecentCount;
use crate::upstream::send_options::ResetObserver;

/// A connection that accepts new streams, or still carries some.
pub(super) struct Connection {
    /// `None` when hyper accepts no more requests. The channel of the sender can keep a request
    /// that is sent at this moment; it gives the request back, unsent, when its last sender is
    /// dropped.
    sender: Mutex<Option<Sender>>,
    in_use: AtomicUsize,
    /// The streams that Weir reset lately. Its lock is taken while that of the pool's state is
    /// held.
    resets: Mutex<RecentCount>,
    /// The number of streams that the peer allows.
    peer_streams_max: Arc<AtomicUsize>,
    pub(super) tls_generation: u64,
    liveness: Arc<Liveness>,
    /// Whether the peer owes the whole body of a response, and not only its head.
    awaits_bodies: bool,
    /// Cancelled to close the connection, whatever it carries.
    closing: CancellationToken,
}

impl Connection {
    pub(super) fn new(
        sender: Sender,
        peer_streams_max: Arc<AtomicUsize>,
        tls_generation: u64,
        liveness: Arc<Liveness>,
        awaits_bodies: bool,
    ) -> Self {
        Self {
            sender: Mutex::new(Some(sender)),
            in_use: AtomicUsize::new(0),
            resets: Mutex::new(RecentCount::new(Instant::now())),
            peer_streams_max,
            tls_generation,
            liveness,
            awaits_bodies,
            closing: CancellationToken::new(),
        }
    }

    /// Returns whether it accepts no more streams.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.lock().as_ref().is_none_or(Sender::is_closed)
    }

    /// Drops its sender, because hyper accepts no more requests.
    pub(super) fn drop_sender(&self) {
        let sender = self.sender.lock().take();
        drop(sender);
    }

    /// Returns whether another stream fits, if Weir allows `streams_max`.
    pub(super) fn has_free_stream(&self, streams_max: usize) -> bool {
        let peer_max = self.peer_streams_max.load(Ordering::Relaxed);
        self.in_use.load(Ordering::Relaxed) < streams_max.min(peer_max)
    }

    /// Returns how many of its streams Weir reset lately.
    pub(super) fn recent_resets(&self, now: Instant) -> usize {
        self.resets.lock().get(now)
    }

    /// Returns whether it does not answer pings.
    pub(super) fn is_silent(&self) -> bool {
        self.liveness.is_silent()
    }

    /// Returns the number of its streams in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the token whose cancellation closes the connection.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }
}

/// A connection that accepts no new streams. It is known only weakly, because it closes when the
/// last lease of it is dropped.
pub(super) struct Draining {
    connection: Weak<Connection>,
    closing: CancellationToken,
}

impl Draining {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::downgrade(connection), closing: connection.closing() }
    }

    pub(super) fn is(&self, connection: &Weak<Connection>) -> bool {
        self.connection.ptr_eq(connection)
    }

    /// Closes the connection. Its streams end as if the peer had closed it.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }
}

/// A stream of a connection. Dropping it counts as a reset.
pub(in crate::upstream::pool) struct Lease {
    group: Arc<GroupStreams>,
    connection: Arc<Connection>,
    reset_observer: Option<Arc<dyn ResetObserver>>,
    is_complete: bool,
    /// Whether the peer owes something on it.
    is_in_flight: bool,
}

impl Lease {
    /// Takes a stream of `connection`. Only called under the lock of the pool's state, so that two
    /// requests cannot take the last stream.
    pub(super) fn new(group: &Arc<GroupStreams>, connection: Arc<Connection>) -> Self {
        connection.in_use.fetch_add(1, Ordering::Relaxed);
        group.take();
        connection.liveness.begin();
        let (group, reset_observer) = (Arc::clone(group), None);
        Self { group, connection, reset_observer, is_complete: false, is_in_flight: true }
    }

    /// Notes that the head of the response arrived.
    pub(in crate::upstream::pool) fn answered(&mut self) {
        if !self.connection.awaits_bodies {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.is_in_flight) {
            self.connection.liveness.end();
        }
    }

    /// Waits until the connection does not answer pings.
    pub(in crate::upstream::pool) async fn until_silent(&self) {
        self.connection.liveness.until_silent().await;
    }

    /// Calls `observer` if the stream is reset.
    pub(in crate::upstream::pool) fn observe_reset(
        &mut self,
        observer: Option<Arc<dyn ResetObserver>>,
    ) {
        self.reset_observer = observer;
    }

    /// Returns the sender of the connection; `None` if that accepts no more requests. The caller
    /// drops it before it waits for the response.
    pub(in crate::upstream::pool) fn sender(&self) -> Option<Sender> {
        self.connection.sender.lock().clone()
    }

    /// Returns the stream after an exchange that needed no reset.
    pub(in crate::upstream::pool) fn complete(mut self) {
        self.is_complete = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle();
        if !self.is_complete {
            self.connection.resets.lock().add(Instant::now());
            if let Some(observer) = &self.reset_observer {
                observer.stream_was_reset();
            }
        }
        self.connection.in_use.fetch_sub(1, Ordering::Relaxed);
        self.group.give_back();
    }
}
