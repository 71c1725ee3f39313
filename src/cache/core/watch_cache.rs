//! The watch cache: one writer applies what the reflector receives, and readers load immutable
//! states. This is the write half, which is not cloned; readers get a [`CacheReader`].
//!
//! The writer processes a batch in this order, with its mutex held: it builds the next state, marks
//! the watchers that its events concern, publishes the state, and sends its resourceVersion to
//! `progress`. It wakes the watchers after releasing the mutex. `cursor.rs` explains why marks come
//! before publishing. A watch is registered with the same mutex held, so no batch falls between the
//! state with which it starts and its first mark.
//!
//! Lock order: `writer` (held by all that changes the state, by `watch`, and while a watcher is
//! dropped); no other blocking lock is taken while holding it. A cursor's
//! `initial` is never held together with it. Readers take no lock.

use std::ops::Deref;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
pub use crate::cache::core::change::Change;
use crate::cache::core::cursor::Cursor;
pub use crate::cache::core::cursor::EndCause;
use crate::cache::core::earlier::DoesNotJoin;
use crate::cache::core::event::Event;
pub use crate::cache::core::event::Now;
use crate::cache::core::inner::CacheInner;
pub use crate::cache::core::lag::StateLag;
pub use crate::cache::core::limits::WindowLimits;
pub use crate::cache::core::reader::CacheReader;
pub use crate::cache::core::refusal::WatchRefusal;
pub use crate::cache::core::relist::Discontinuity;
use crate::cache::core::state::Listed;
pub use crate::cache::core::state::{CompleteList, State};
use crate::cache::core::store::Store;
use crate::cache::core::unreadable::UnreadableObjects;
use crate::codec::unreadable::UnreadableObject;

/// The watch cache of one resource. Dropping it ends every watcher (cause `Stopped`).
#[derive(Debug)]
pub struct WatchCache {
    reader: CacheReader,
    /// The limits of the start. That in bytes may have changed since ([`Self::limits`]).
    first_limits: WindowLimits,
    indexed: Option<usize>,
}

impl WatchCache {
    /// Creates an empty cache that is not ready.
    pub fn new(limits: WindowLimits) -> Self {
        let reader = CacheReader { inner: Arc::new(CacheInner::new(&limits)) };
        Self { reader, first_limits: limits, indexed: None }
    }

    /// Adds an index of the selectable field with this number, by which watchers are found too.
    /// Call this before the cache has a state.
    pub fn with_index(mut self, field: Option<usize>) -> Self {
        self.indexed = field;
        self.inner.writer.lock().dispatcher.index.indexed = field;
        self
    }

    /// Replaces the state with a complete list. The history is lost and every watcher ends (cause
    /// `Relist`). Returns false and changes nothing if the current state is newer than the list.
    pub fn replace(
        &self,
        listed: impl Into<CompleteList>,
        resource_version: ResourceVersion,
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
        listed: impl Into<CompleteList>,
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
            // The state may have changed meanwhile.
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
        let end = state.without_objects();
        let mut ended = writer.dispatcher.end_some(&end, EndCause::Relist, is_overtaken);
        let unreadable = state.unreadable().iter().chain(next.unreadable().iter());
        ended.extend(writer.dispatcher.end_unreadable(&end, unreadable));
        let marked = writer.dispatcher.mark(&next, first);
        let events = next.history().end_seq() - first;
        inner.publish(Some(next));
        drop(writer);
        wake(&marked);
        wake(&ended);
        Some(usize::try_from(events).unwrap_or(usize::MAX))
    }

    /// Applies changes from the watch stream as one published state, and wakes the watchers that
    /// they concern. `received` is when they were read. Drops changes that are not newer than the
    /// current resourceVersion, and all changes while the cache is not ready.
    pub fn apply(&self, changes: Vec<Change>, received: Now) {
        self.apply_step(changes, (received, false));
    }

    /// Applies changes as [`Self::apply`] does, which came in one read with those before them: all
    /// of these stay in the history.
    pub fn apply_rest(&self, changes: Vec<Change>, received: Now) {
        self.apply_step(changes, (received, true));
    }

    fn apply_step(&self, changes: Vec<Change>, read: (Now, bool)) {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        let Some(state) = inner.state() else { return };
        let held = state.resource_version();
        let unreadable = changes.iter().filter_map(|change| change.unreadable_after(held));
        let unreadable: Vec<_> = unreadable.cloned().collect();
        let Some(next) = state.after_changes(changes, read, &self.limits()) else { return };
        let end = if unreadable.is_empty() { Arc::clone(&state) } else { state.without_objects() };
        let unreadable = unreadable.iter().map(UnreadableObject::names);
        let ended = writer.dispatcher.end_unreadable(&end, unreadable);
        let marked = writer.dispatcher.mark(&next, state.history().end_seq());
        inner.publish(Some(Arc::new(next)));
        // Release the lock before waking, so that registering and unregistering watchers do not
        // wait for it.
        drop(writer);
        wake(&marked);
        wake(&ended);
    }

    /// Puts the events after `from` before the history, so that a watch can start there
    /// (`earlier.rs`). They must reach up to `through`, where the history begins
    /// (`History::joins_at`). Neither the objects nor the watchers change. Keeps the newest of the
    /// events, as far as the history may grow and the state gets no heavier than `weight_max`.
    /// Fails if it does not begin there any more.
    pub fn prepend(
        &self,
        events: Vec<Event>,
        (from, through): (ResourceVersion, ResourceVersion),
        weight_max: usize,
    ) -> Result<(), DoesNotJoin> {
        let _writer = self.inner.writer.lock();
        let state = self.inner.state().ok_or(DoesNotJoin)?;
        let next = state.with_earlier(events, (from, through), weight_max, &self.limits());
        self.inner.publish_earlier(Arc::new(next.ok_or(DoesNotJoin)?));
        Ok(())
    }

    /// Drops the oldest events of the history until it has at most `bytes_max`. Watchers that have
    /// not read them end as slow ones do. Neither the objects nor the resourceVersion change.
    pub fn trim_history(&self, bytes_max: usize) {
        self.trim(&WindowLimits { bytes_max, unread_from: u64::MAX, ..self.first_limits });
    }

    /// Drops the events beyond the limits that no watcher has still to read.
    pub fn drop_read(&self) {
        self.trim(&self.limits());
    }

    fn trim(&self, limits: &WindowLimits) {
        let is_longer = |state: &State| state.history().weight() > limits.bytes_max;
        if self.inner.load().as_deref().is_none_or(|state| !is_longer(state)) {
            return;
        }
        let writer = self.inner.writer.lock();
        let state = self.inner.state().filter(|state| is_longer(state));
        if let Some(state) = &state {
            self.inner.publish_earlier(Arc::new(state.with_shorter_history(limits)));
        }
        // `state` may be the last reference to the dropped events, which are freed after the lock.
        drop(writer);
    }

    /// Replaces the limit in bytes of the history, and trims it to that.
    pub fn limit_history(&self, bytes_max: usize) {
        self.inner.set_history_bytes_max(bytes_max);
        self.trim_history(bytes_max);
    }

    fn limits(&self) -> WindowLimits {
        let (unread_from, unread_bytes_max) = self.inner.unread();
        let bytes_max = self.inner.history_bytes_max();
        WindowLimits { bytes_max, unread_from, unread_bytes_max, ..self.first_limits }
    }

    /// Drops the state and ends every watcher with `cause`. The cache is not ready until the next
    /// list.
    pub fn invalidate(&self, cause: EndCause) {
        self.reset(cause, None);
    }

    /// Drops the state for good and ends every watcher with `cause`. Later lists are ignored.
    pub fn close(&self, cause: EndCause) {
        self.inner.close();
        self.reset(cause, None);
    }

    /// Drops the state because the upstream's history was found rewound. Every watcher ends (cause
    /// `Relist`). `lost` is the highest resourceVersion of the lost history; later watches cannot
    /// start from versions that may belong to it.
    pub fn rewind(&self, lost: ResourceVersion) {
        self.reset(EndCause::Relist, None);
        self.inner.writer.lock().baseline.rewind(lost);
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
                writer.dispatcher.end_all(&old.without_objects(), cause)
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

    fn listed(&self, listed: CompleteList) -> Listed {
        let CompleteList { objects, unreadable } = listed;
        (Store::new(objects, self.indexed), UnreadableObjects::new(unreadable))
    }
}

impl Deref for WatchCache {
    type Target = CacheReader;

    fn deref(&self) -> &CacheReader {
        &self.reader
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        self.invalidate(EndCause::Stopped);
    }
}

fn wake(cursors: &[Arc<Cursor>]) {
    for cursor in cursors {
        cursor.wake_slot.wake();
    }
}
