//! The part of a watch cache that its watchers share: the published state and the writer's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::Cursor;
use crate::cache::core::dispatcher::Dispatcher;
use crate::cache::core::history::HistoryBaseline;
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::state::State;

/// The state that the cache and its watchers share.
#[derive(Debug)]
pub(super) struct CacheInner {
    state: ArcSwapOption<State>,
    progress: watch::Sender<Option<ResourceVersion>>,
    /// The limit in bytes of the history. One reader may keep as many bytes that the cache has
    /// dropped. A reload may change it.
    history_bytes_max: AtomicUsize,
    /// [`WindowLimits::unread_from`] and [`WindowLimits::unread_bytes_max`], as last measured.
    unread: (AtomicU64, AtomicUsize),
    /// Whether there will be no state any more. It is set before the state is dropped, and read
    /// with the writer's mutex held before one is published.
    is_closed: AtomicBool,
    pub(super) writer: Mutex<Writer>,
}

impl CacheInner {
    pub(super) fn new(limits: &WindowLimits) -> Self {
        let (dispatcher, baseline) = (Dispatcher::default(), HistoryBaseline::new(limits));
        Self {
            state: ArcSwapOption::empty(),
            progress: watch::Sender::new(None),
            history_bytes_max: AtomicUsize::new(limits.bytes_max),
            unread: (AtomicU64::new(limits.unread_from), AtomicUsize::new(limits.unread_bytes_max)),
            is_closed: AtomicBool::new(false),
            writer: Mutex::new(Writer { dispatcher, baseline }),
        }
    }

    /// Returns the limit in bytes of the history.
    pub(super) fn history_bytes_max(&self) -> usize {
        self.history_bytes_max.load(Ordering::Relaxed)
    }

    pub(super) fn set_history_bytes_max(&self, bytes_max: usize) {
        self.history_bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Returns the first event that a watcher has still to read, and the limit in bytes for such.
    pub(super) fn unread(&self) -> (u64, usize) {
        (self.unread.0.load(Ordering::Relaxed), self.unread.1.load(Ordering::Relaxed))
    }

    /// Notes that a watcher has to read the events from number `from` on.
    pub(super) fn note_unread(&self, from: u64) {
        self.unread.0.fetch_min(from, Ordering::Relaxed);
    }

    pub(super) fn set_unread(&self, from: u64, bytes_max: usize) {
        self.unread.0.store(from, Ordering::Relaxed);
        self.unread.1.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether there will be no state any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Lets no other state be published in place of none. The caller drops the present one.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn progress(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.progress.subscribe()
    }

    pub(super) fn state(&self) -> Option<Arc<State>> {
        self.state.load_full()
    }

    /// Loads the state for a short use, without incrementing its reference count, so that watchers
    /// on many threads do not contend for it.
    pub(super) fn load(&self) -> Guard<Option<Arc<State>>> {
        self.state.load()
    }

    /// Whether a reader of the state with these [`end_bytes`] keeps too much that was dropped by
    /// `current`, the published state.
    ///
    /// [`end_bytes`]: crate::cache::core::history::History::end_bytes
    pub(super) fn is_outrun(&self, current: &State, end_bytes: u64) -> bool {
        let dropped = current.history().dropped_bytes().saturating_sub(end_bytes);
        dropped > self.history_bytes_max() as u64
    }

    pub(super) fn unregister(&self, cursor: &Cursor) {
        self.writer.lock().dispatcher.unregister(cursor);
    }

    /// Publishes a state. Call this with the writer's mutex held, after setting all marks and ends.
    pub(super) fn publish(&self, state: Option<Arc<State>>) {
        let resource_version = state.as_deref().map(State::resource_version);
        self.state.store(state);
        self.progress.send_replace(resource_version);
    }

    /// Publishes a state that differs from the present one only in the begin of its history. This
    /// is no progress: whoever waits for some would take it as news from the upstream. Call this
    /// with the writer's mutex held.
    pub(super) fn publish_earlier(&self, state: Arc<State>) {
        self.state.store(Some(state));
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dispatcher: Dispatcher,
    /// The baseline of the next list's history. Up to date only while there is no state.
    pub(super) baseline: HistoryBaseline,
}
