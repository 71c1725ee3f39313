//! The read half of a watch cache: its states, its progress, and watches. Cheap to clone.
//!
//! Nothing here changes a state, or the end of the history. `watch_cache.rs` has the order in which
//! a batch is published, and the lock.

use std::sync::Arc;

use tokio::sync::watch;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::{Cursor, InitialEvents};
use crate::cache::core::inner::CacheInner;
use crate::cache::core::lag::StateLag;
use crate::cache::core::refusal::WatchRefusal;
use crate::cache::core::state::State;
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};

/// The read half of a watch cache.
#[derive(Clone, Debug)]
pub struct CacheReader {
    pub(super) inner: Arc<CacheInner>,
}

impl CacheReader {
    /// Returns the current state; `None` until the first `replace` and after `invalidate`.
    pub fn state(&self) -> Option<Arc<State>> {
        self.inner.state()
    }

    /// Returns how far a reader of `state`, a state of this cache, has fallen behind.
    pub fn lag(&self, state: &State) -> StateLag {
        StateLag::new(Arc::clone(&self.inner), state)
    }

    /// Returns a receiver of the current state's resourceVersion; `None` while the cache is not
    /// ready. A slow receiver gets only the newest value.
    pub fn progress(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.inner.progress()
    }

    /// Whether there will be no state any more.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Starts a watch at `start`. It receives every later event exactly once.
    pub fn watch(&self, filter: WatchFilter, start: WatchStart) -> Result<Watcher, WatchRefusal> {
        self.watch_by(false, filter, start)
    }

    /// Starts a watch for a reader within this process, of all objects that can be read.
    pub(crate) fn follow(&self, start: WatchStart) -> Result<Watcher, WatchRefusal> {
        self.watch_by(true, WatchFilter::default(), start)
    }

    fn watch_by(
        &self,
        is_follower: bool,
        filter: WatchFilter,
        start: WatchStart,
    ) -> Result<Watcher, WatchRefusal> {
        let mut writer = self.inner.writer.lock();
        let state = self.inner.state().ok_or(WatchRefusal::NotReady)?;
        let is_covered = match start {
            _ if is_follower => true,
            WatchStart::After(after) => state.covers_since(&filter, after),
            WatchStart::InitialEvents | WatchStart::Now => state.covers(&filter),
        };
        if !is_covered {
            return Err(WatchRefusal::Unreadable);
        }
        let end = state.history().end_seq();
        let from = match start {
            WatchStart::After(after) => state.history().resume(after)?,
            WatchStart::InitialEvents | WatchStart::Now => end,
        };
        let initial = (start == WatchStart::InitialEvents)
            .then(|| InitialEvents::new(state.without_events()));
        if initial.is_some() {
            self.inner.note_unread(end);
        }
        let resource_version = state.resource_version();
        let skip_through = match start {
            WatchStart::After(after) if after > resource_version => after,
            _ => ResourceVersion::default(),
        };
        let mut cursor = Cursor::new(filter, (from, end), skip_through, initial);
        cursor.is_follower = is_follower;
        let cursor = writer.dispatcher.register(cursor);
        drop(writer);
        Ok(Watcher::new(Arc::clone(&self.inner), cursor, start, resource_version))
    }

    /// Starts a watch whose initial state was listed outside the watch stream
    /// ([`State::with_list`]), or is the current state if that is at least as new. The watch
    /// receives the later events that are newer than its initial state: the old and new object of
    /// each event are the upstream's own states, whatever the list was. `listed` must belong to the
    /// same history of the upstream as this cache.
    pub fn watch_from(
        &self,
        filter: WatchFilter,
        listed: &Arc<State>,
    ) -> Result<Watcher, WatchRefusal> {
        let mut writer = self.inner.writer.lock();
        let present = self.inner.state().ok_or(WatchRefusal::NotReady)?;
        let end = present.history().end_seq();
        let held = present.resource_version();
        let state = if listed.resource_version() > held { Arc::clone(listed) } else { present };
        if !state.covers(&filter) {
            return Err(WatchRefusal::Unreadable);
        }
        let at = state.resource_version();
        let initial = Some(InitialEvents::new(state.without_events()));
        self.inner.note_unread(end);
        let skip_through = if at > held { at } else { ResourceVersion::default() };
        let cursor = Cursor::new(filter, (end, end), skip_through, initial);
        let cursor = writer.dispatcher.register(cursor);
        drop(writer);
        let (cache, start) = (Arc::clone(&self.inner), WatchStart::InitialEvents);
        Ok(Watcher::new(cache, cursor, start, at))
    }

    /// Returns the number of watchers, including those that have ended but were not dropped yet.
    pub fn watchers(&self) -> usize {
        self.inner.writer.lock().dispatcher.watchers()
    }

    /// Lets the history keep the events that a watcher has still to read, up to `bytes_max` in all,
    /// until the next call. Call this periodically. Returns the number of watchers that more than
    /// half of the window separates from the newest event. Looks at each watcher only if the window
    /// is more than half full.
    pub fn keep_unread(&self, bytes_max: usize) -> usize {
        let half = |state: &State| state.history().window() / 2;
        let is_small = |state: &State| {
            let history = state.history();
            history.len() <= half(state) && history.weight() <= self.inner.history_bytes_max() / 2
        };
        let writer = self.inner.writer.lock();
        let Some(state) = self.inner.state() else { return 0 };
        if is_small(&state) {
            let is_watched = writer.dispatcher.watchers() > 0;
            let from = if is_watched { state.history().first_seq() } else { u64::MAX };
            self.inner.set_unread(from, bytes_max);
            return 0;
        }
        let (unread_from, behind) = writer.dispatcher.unread(&state, half(&state));
        self.inner.set_unread(unread_from, bytes_max);
        behind
    }

    /// Returns whether no index contains a watcher.
    #[cfg(test)]
    pub(super) fn indexes_are_empty(&self) -> bool {
        self.inner.writer.lock().dispatcher.is_empty()
    }
}
