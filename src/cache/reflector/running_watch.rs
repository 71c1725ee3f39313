//! An open watch of a reflector.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::cache::reflector::event_order::EventOrder;
use crate::cache::reflector::failure::Failure;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchStream};

/// An open watch.
pub(super) struct RunningWatch {
    /// The upstream's watch.
    pub(super) watch: Box<dyn WatchStream>,
    /// When it was requested.
    pub(super) opened: Instant,
    /// When its events were first read, after the held state was verified.
    pub(super) begun: Option<Instant>,
    /// When the watch must have ended by itself.
    pub(super) deadline: Instant,
    /// Whether it brought any events.
    pub(super) received_any: bool,
    /// Its last event.
    pub(super) order: EventOrder,
    /// Events that were read but not applied yet.
    pub(super) pending: std::vec::IntoIter<UpstreamEvent>,
}

impl RunningWatch {
    /// Creates the state of a watch that was requested with `timeout_seconds`, and whose events are
    /// after `from`.
    pub(super) fn new(
        watch: Box<dyn WatchStream>,
        opened: Instant,
        timeout_seconds: u32,
        from: ResourceVersion,
    ) -> Self {
        let deadline = opened + Duration::from_secs(timeout_seconds.into()) + DEADLINE_GRACE;
        let order = EventOrder::after(from);
        let (begun, pending) = (None, Vec::new().into_iter());
        Self { watch, opened, begun, deadline, received_any: false, order, pending }
    }

    /// Reads what has arrived, and keeps it for later. Fails if the watch has failed, which an
    /// upstream says at once.
    pub(super) fn read_ahead(&mut self) -> Result<(), Failure> {
        // Not for long: the first events of a quiet resource may be hours away.
        let Some(read) = self.watch.next().now_or_never() else { return Ok(()) };
        let ended = || Failure::Retry("the watch ended at once".to_owned(), None);
        self.pending = read?.ok_or_else(ended)?.into_iter();
        match self.pending.as_slice().first() {
            Some(UpstreamEvent::Error(error)) => Err(error.clone().into()),
            _ => Ok(()),
        }
    }

    /// Whether it ends too early for its own time-out to be the reason.
    pub(super) fn ends_early(&self) -> bool {
        Instant::now() + DEADLINE_GRACE + EARLY_END_MARGIN < self.deadline
    }
}

/// Returns a random `timeoutSeconds` within client-go's bounds, so that the watches of many
/// reflectors do not end at the same time.
pub(super) fn random_timeout_seconds() -> u32 {
    fastrand::u32(TIMEOUT_SECONDS_MIN..=TIMEOUT_SECONDS_MAX)
}

/// client-go's smallest `timeoutSeconds`.
const TIMEOUT_SECONDS_MIN: u32 = 300;
/// client-go's largest `timeoutSeconds`.
const TIMEOUT_SECONDS_MAX: u32 = 600;
/// How long a watch may stay open after its time-out before its connection is considered dead.
const DEADLINE_GRACE: Duration = Duration::from_secs(15);
/// A watch that ends at least this long before its time-out did not end because of it.
const EARLY_END_MARGIN: Duration = Duration::from_secs(2);
