//! The watch cache: one writer applies what the reflector receives, and readers load immutable
//! states.
//!
//! The writer processes a batch in this order, with its mutex held: it builds the next state, marks
//! the watchers that its events may match, publishes the state, and sends its resourceVersion to
//! `progress`. It wakes the watchers after releasing the mutex. `cursor.rs` explains why marks come
//! before publishing. A watch is registered with the same mutex held, so no batch falls between the
//! state with which it starts and its first mark.
//!
//! Lock order: `writer` (held by `apply`, `replace`, `relist`, `prepend`, `invalidate` and `watch`,
//! and while a watcher is dropped); no other blocking lock is taken while holding it. A cursor's
//! `initial` is never held together with it. Readers take no lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::resource_version::ResourceVersion;
pub use crate::cache::core::change::Change;
use crate::cache::core::cursor::{Cursor, InitialEvents};
use crate::cache::core::earlier::{DoesNotJoin, EarlierEvents};
pub use crate::cache::core::end_cause::EndCause;
use crate::cache::core::index_key::IndexKey;
use crate::cache::core::inner::CacheInner;
pub use crate::cache::core::lag::StateLag;
pub use crate::cache::core::limits::WindowLimits;
pub use crate::cache::core::now::Now;
pub use crate::cache::core::refusal::WatchRefusal;
pub use crate::cache::core::relist::Discontinuity;
use crate::cache::core::state::Listed;
pub use crate::cache::core::state::State;
use crate::cache::core::store::Store;
use crate::cache::core::unreadable::UnreadableObjects;
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::codec::list::ListedObjects;
use crate::codec::unreadable::UnreadableObject;

/// The watch cache of one resource. Dropping it ends every watcher (cause `Stopped`).
#[derive(Debug)]
pub struct WatchCache {
    inner: Arc<CacheInner>,
    /// The limits of the start. That in bytes may have changed since ([`Self::limits`]).
    first_limits: WindowLimits,
    indexed: Option<usize>,
}

impl WatchCache {
    /// Creates an empty cache that is not ready.
    pub fn new(limits: WindowLimits) -> Self {
        Self { inner: Arc::new(CacheInner::new(&limits)), first_limits: limits, indexed: None }
    }

    /// Adds an index of the selectable field with this number. Call this before the cache has a
    /// state.
    pub fn with_index(mut self, field: Option<usize>) -> Self {
        self.indexed = field;
        self
    }

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

    /// Replaces the state with a complete list. The history is lost and every watcher ends (cause
    /// `Relist`). Returns false and changes nothing if the current state is newer than the list.
    pub fn replace(
        &self,
        listed: impl Into<ListedObjects>,
        resource_version: ResourceVersion,
        _now: Now,
    ) -> bool {
        let listed = self.listed(listed.into());
        self.reset(EndCause::Relist, Some((listed, resource_version)))
    }

    /// Replaces the state with a complete list, and delivers the changes to the watchers as events,
    /// so that they continue (see `relist.rs`). Returns the number of events. If the watchers
    /// cannot continue, acts as [`Self::replace`] and returns the reason. `Overtaken` means that
    /// nothing changed, since the cache never goes back to an older state.
    pub fn relist(
        &self,
        listed: impl Into<ListedObjects>,
        resource_version: ResourceVersion,
        now: Now,
    ) -> Result<usize, Discontinuity> {
        let listed = self.listed(listed.into());
        loop {
            let Some(state) = self.inner.state() else {
                let replaced = self.reset(EndCause::Relist, Some((listed, resource_version)));
                return if replaced { Ok(0) } else { Err(Discontinuity::Overtaken) };
            };
            if resource_version < state.resource_version() {
                return Err(Discontinuity::Overtaken);
            }
            // The comparison of a large collection takes time, so it runs before the lock is taken.
            // A progress notification may have been applied meanwhile.
            let next = match state.after_relist(&listed, resource_version, now, &self.limits()) {
                Ok(next) => Arc::new(next),
                Err(discontinuity) => {
                    let list = Some((listed, resource_version));
                    let replaced = self.reset(EndCause::Relist, list);
                    return Err(if replaced { discontinuity } else { Discontinuity::Overtaken });
                }
            };
            if let Some(events) = self.publish_relist(&state, next) {
                return Ok(events);
            }
        }
    }

    /// Publishes the state after a relist and returns the number of its events. Returns `None` if
    /// `state` is no longer the current state.
    fn publish_relist(&self, state: &Arc<State>, next: Arc<State>) -> Option<usize> {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        if inner.state().is_none_or(|held| !Arc::ptr_eq(&held, state)) {
            return None;
        }
        let (from, to) = (state.resource_version(), next.resource_version());
        let first = state.history().end_seq();
        let is_overtaken = |cursor: &Cursor| {
            let after = cursor.skip_through;
            from < after && after < to
        };
        let mut ended = writer.dispatcher.end_some(state, EndCause::Relist, is_overtaken);
        let unreadable = state.unreadable().iter().chain(next.unreadable().iter());
        ended.extend(writer.dispatcher.end_unreadable(state, unreadable));
        let marked = writer.dispatcher.mark(&next, first);
        let events = next.history().end_seq() - first;
        inner.publish(Some(next));
        drop(writer);
        wake(&marked);
        wake(&ended);
        Some(usize::try_from(events).unwrap_or(usize::MAX))
    }

    /// Applies changes from the watch stream as one published state, and wakes the watchers that
    /// they may match. `received` is when they were read. Drops changes that are not newer than the
    /// current resourceVersion, and all changes while the cache is not ready.
    pub fn apply(&self, changes: Vec<Change>, received: Now) {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        let Some(state) = inner.state() else { return };
        let held = state.resource_version();
        let unreadable = changes.iter().filter_map(|change| change.unreadable_after(held));
        let unreadable: Vec<_> = unreadable.cloned().collect();
        let Some(next) = state.after_changes(changes, received, &self.limits()) else { return };
        let unreadable = unreadable.iter().map(UnreadableObject::names);
        let ended = writer.dispatcher.end_unreadable(&state, unreadable);
        let marked = writer.dispatcher.mark(&next, state.history().end_seq());
        inner.publish(Some(Arc::new(next)));
        // Release the lock before waking, so that registering and unregistering watchers do not
        // wait for it.
        drop(writer);
        wake(&marked);
        wake(&ended);
    }

    /// Puts earlier events before the history, so that a watch can start at an older
    /// resourceVersion. They must reach up to `through`, where the history begins
    /// (`History::joins_at`). Neither the objects nor the watchers change. Keeps the newest of the
    /// events, as far as the history may grow and the state gets no heavier than `weight_max`.
    /// Fails if the events do not lead to the state where the history begins, or if it does not
    /// begin there any more.
    pub fn prepend(
        &self,
        earlier: EarlierEvents,
        through: ResourceVersion,
        weight_max: usize,
        now: Now,
    ) -> Result<(), DoesNotJoin> {
        let state = self.inner.state().ok_or(DoesNotJoin)?;
        let from = earlier.from();
        // The comparison of a large collection takes time, so it runs before the lock is taken.
        // Later events change nothing in it.
        let events = earlier.into_events(&state, now)?;
        let _writer = self.inner.writer.lock();
        let state = self.inner.state().ok_or(DoesNotJoin)?;
        let next = state.with_earlier(events, (from, through), weight_max, &self.limits());
        self.inner.publish_earlier(Arc::new(next.ok_or(DoesNotJoin)?));
        Ok(())
    }

    /// Drops the oldest events of the history until it has at most `bytes_max`. Watchers that have
    /// not read them end as slow ones do. Neither the objects nor the resourceVersion change.
    pub fn trim_history(&self, bytes_max: usize) {
        let is_longer = |state: &State| state.history().weight() > bytes_max;
        if self.inner.load().as_deref().is_none_or(|state| !is_longer(state)) {
            return;
        }
        let _writer = self.inner.writer.lock();
        if let Some(state) = self.inner.state().filter(|state| is_longer(state)) {
            let limits = WindowLimits { bytes_max, ..self.first_limits };
            self.inner.publish_earlier(Arc::new(state.with_shorter_history(&limits)));
        }
    }

    /// Replaces the limit in bytes of the history, and trims it to that.
    pub fn limit_history(&self, bytes_max: usize) {
        self.inner.set_history_bytes_max(bytes_max);
        self.trim_history(bytes_max);
    }

    fn limits(&self) -> WindowLimits {
        WindowLimits { bytes_max: self.inner.history_bytes_max(), ..self.first_limits }
    }

    /// Drops the state and ends every watcher with `cause`. The cache is not ready until the next
    /// list.
    pub fn invalidate(&self, cause: EndCause) {
        self.reset(cause, None);
    }

    /// Drops the state for good and ends every watcher with `cause`. What is listed later is
    /// ignored.
    pub fn close(&self, cause: EndCause) {
        self.inner.close();
        self.reset(cause, None);
    }

    /// Whether there will be no state any more.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Drops the state because the upstream's history was found rewound. Every watcher ends (cause
    /// `Relist`). `lost` is the highest resourceVersion of the lost history; later watches cannot
    /// start from versions that may belong to it.
    pub fn rewind(&self, lost: ResourceVersion) {
        self.reset(EndCause::Relist, None);
        self.inner.writer.lock().baseline.rewind(lost);
    }

    /// Starts a watch at `start`. It receives every later event exactly once.
    pub fn watch(&self, filter: WatchFilter, start: WatchStart) -> Result<Watcher, WatchRefusal> {
        let index_key = IndexKey::from_filter(&filter);
        self.watch_by(index_key, filter, start)
    }

    /// Starts a watch for a reader within this process, of all objects that can be read.
    pub(crate) fn follow(&self, start: WatchStart) -> Result<Watcher, WatchRefusal> {
        self.watch_by(IndexKey::Readable, WatchFilter::default(), start)
    }

    fn watch_by(
        &self,
        index_key: IndexKey,
        filter: WatchFilter,
        start: WatchStart,
    ) -> Result<Watcher, WatchRefusal> {
        let mut writer = self.inner.writer.lock();
        let state = self.inner.state().ok_or(WatchRefusal::NotReady)?;
        let is_covered = match start {
            _ if index_key == IndexKey::Readable => true,
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
        let initial =
            (start == WatchStart::InitialEvents).then(|| InitialEvents::new(Arc::clone(&state)));
        let resource_version = state.resource_version();
        let skip_through = match start {
            WatchStart::After(after) if after > resource_version => after,
            _ => ResourceVersion::default(),
        };
        let cursor = writer.dispatcher.register(index_key, (from, end), skip_through, initial);
        drop(writer);
        Ok(Watcher::new(Arc::clone(&self.inner), cursor, filter, start, resource_version))
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
        let index_key = IndexKey::from_filter(&filter);
        let mut writer = self.inner.writer.lock();
        let present = self.inner.state().ok_or(WatchRefusal::NotReady)?;
        let end = present.history().end_seq();
        let held = present.resource_version();
        let state = if listed.resource_version() > held { Arc::clone(listed) } else { present };
        if !state.covers(&filter) {
            return Err(WatchRefusal::Unreadable);
        }
        let at = state.resource_version();
        let initial = Some(InitialEvents::new(state));
        let skip_through = if at > held { at } else { ResourceVersion::default() };
        let cursor = writer.dispatcher.register(index_key, (end, end), skip_through, initial);
        drop(writer);
        let (cache, start) = (Arc::clone(&self.inner), WatchStart::InitialEvents);
        Ok(Watcher::new(cache, cursor, filter, start, at))
    }

    /// Ends the watchers (cause `Slow`) that still hold their initial state and have read nothing
    /// of it since a call at least `older_than` ago. The first call only stores their positions.
    /// Call this periodically. Returns the number of watchers that it ended.
    pub fn end_stalled(&self, older_than: Duration, now: Now) -> usize {
        let cursors = self.inner.writer.lock().dispatcher.holding_initial_events();
        let ended = cursors.iter().filter(|cursor| cursor.end_if_stalled(older_than, now)).count();
        self.inner.writer.lock().dispatcher.prune_initial();
        ended
    }

    /// Returns the number of watchers, including those that have ended but were not dropped yet.
    pub fn watchers(&self) -> usize {
        self.inner.writer.lock().dispatcher.watchers()
    }

    /// Returns the number of watchers that more than half of the window separates from the newest
    /// event. Looks at each watcher only if the window holds more events than that.
    pub fn watchers_behind(&self) -> usize {
        let half = |state: &State| state.history().window() / 2;
        if self.inner.load().as_deref().is_none_or(|state| state.history().len() <= half(state)) {
            return 0;
        }
        let writer = self.inner.writer.lock();
        let Some(state) = self.inner.state() else { return 0 };
        writer.dispatcher.watchers_behind(&state, half(&state))
    }

    /// Replaces or drops the state and ends every watcher. Returns false and changes nothing if the
    /// list is older than the current state, or if the cache is closed.
    fn reset(&self, cause: EndCause, list: Option<(Listed, ResourceVersion)>) -> bool {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        let old = inner.state();
        if list.is_some() && inner.is_closed() {
            return false;
        }
        if let (Some(old), Some((_, listed))) = (&old, &list)
            && *listed < old.resource_version()
        {
            return false;
        }
        let ended = match &old {
            Some(old) => {
                writer.baseline = old.history().baseline();
                let dropped_bytes = &mut writer.baseline.dropped_bytes;
                *dropped_bytes = dropped_bytes.saturating_add(old.store().weight() as u64);
                writer.dispatcher.end_all(old, cause)
            }
            None => Vec::new(),
        };
        let baseline = writer.baseline;
        inner.publish(list.map(|(listed, resource_version)| {
            Arc::new(State::from_list(listed, resource_version, baseline))
        }));
        drop(writer);
        wake(&ended);
        true
    }

    fn listed(&self, listed: ListedObjects) -> Listed {
        let ListedObjects { objects, unreadable } = listed;
        (Store::new(objects, self.indexed), UnreadableObjects::new(unreadable))
    }

    /// Returns whether no index contains a watcher.
    #[cfg(test)]
    pub(super) fn indexes_are_empty(&self) -> bool {
        self.inner.writer.lock().dispatcher.is_empty()
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        self.invalidate(EndCause::Stopped);
    }
}

fn wake(cursors: &[Arc<Cursor>]) {
    for cursor in cursors {
        cursor.wake_task();
    }
}
