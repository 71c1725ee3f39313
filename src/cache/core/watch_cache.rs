//! The watch cache: one writer applies what the reflector brings, readers take immutable states.
//!
//! A batch goes in this order, under the writer's mutex: the next state is made; the watchers that its events may
//! concern are marked; the state is published; its resourceVersion is told; the watchers are woken. Why marks come before
//! the publishing is in [`cursor`](crate::cache::core::cursor). A watch is registered under the same mutex, so no batch
//! falls between the state that it began with and its first mark.
//!
//! Lock order: `writer` (held by `apply`, `replace`, `relist`, `invalidate`, `watch`, and when a watcher is dropped), then nothing
//! that blocks. A cursor's `initial` is never held with it. Readers take no lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::resource_version::ResourceVersion;
pub use crate::cache::core::change::Change;
use crate::cache::core::cursor::{Cursor, InitialEvents};
pub use crate::cache::core::end_cause::EndCause;
use crate::cache::core::index_key::IndexKey;
use crate::cache::core::inner::CacheInner;
pub use crate::cache::core::limits::WindowLimits;
pub use crate::cache::core::now::Now;
pub use crate::cache::core::refusal::WatchRefusal;
pub use crate::cache::core::relist::Discontinuity;
pub use crate::cache::core::state::State;
use crate::cache::core::store::Store;
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::codec::object::Object;

/// See the module. Dropping it ends every watcher (cause `Stopped`).
#[derive(Debug)]
pub struct WatchCache {
    inner: Arc<CacheInner>,
    limits: WindowLimits,
    indexed: Option<usize>,
}

impl WatchCache {
    /// An empty cache that is not ready.
    pub fn new(limits: WindowLimits) -> Self {
        Self { inner: Arc::new(CacheInner::new(&limits)), limits, indexed: None }
    }

    /// The same with an index over the selectable field of this number. To be called before it has a state.
    pub fn with_index(mut self, field: Option<usize>) -> Self {
        self.indexed = field;
        self
    }

    /// The current view; `None` until the first `replace` and after `invalidate`.
    pub fn state(&self) -> Option<Arc<State>> {
        self.inner.state()
    }

    /// The resourceVersion of the current view, to be awaited: `None` while not ready. One that lags is woken for the newest.
    pub fn progress(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.inner.progress()
    }

    /// Takes a complete list as the new state. The history is lost and every watcher ends (cause `Relist`). Returns false, and leaves
    /// everything as it is, if the present state is newer than the list.
    pub fn replace(
        &self,
        objects: Vec<Object>,
        resource_version: ResourceVersion,
        _now: Now,
    ) -> bool {
        let store = Store::new(objects, self.indexed);
        self.reset(EndCause::Relist, Some((store, resource_version)))
    }

    /// Takes a complete list as the new state, and gives the watchers what it changes as events, so that they live on
    /// ([`relist`](crate::cache::core::relist)). Where they can't, this is [`Self::replace`], and it is told why. Returns the number of events.
    /// `Overtaken` leaves everything as it is: what was served once is never taken back.
    pub fn relist(
        &self,
        objects: Vec<Object>,
        resource_version: ResourceVersion,
        now: Now,
    ) -> Result<usize, Discontinuity> {
        let store = Store::new(objects, self.indexed);
        loop {
            let Some(state) = self.inner.state() else {
                let replaced = self.reset(EndCause::Relist, Some((store, resource_version)));
                return if replaced { Ok(0) } else { Err(Discontinuity::Overtaken) };
            };
            if resource_version < state.resource_version() {
                return Err(Discontinuity::Overtaken);
            }
            // Compared before the lock, since a large collection takes its time. A proof of progress may have come in between.
            let next = match state.after_relist(&store, resource_version, now, &self.limits) {
                Ok(next) => Arc::new(next),
                Err(discontinuity) => {
                    let list = Some((store, resource_version));
                    let replaced = self.reset(EndCause::Relist, list);
                    return Err(if replaced { discontinuity } else { Discontinuity::Overtaken });
                }
            };
            if let Some(events) = self.publish_relist(&state, next) {
                return Ok(events);
            }
        }
    }

    /// Publishes what a relist made of `state`, and returns how many events that is; `None` if the state is another by now.
    fn publish_relist(&self, state: &Arc<State>, next: Arc<State>) -> Option<usize> {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        if inner.state().is_none_or(|held| !Arc::ptr_eq(&held, state)) {
            return None;
        }
        let (from, to) = (state.resource_version(), next.resource_version());
        let first = state.history().end_seq();
        let is_overtaken = |after| from < after && after < to;
        let ended = writer.dispatcher.end_future_starts(state, EndCause::Relist, is_overtaken);
        let marked = writer.dispatcher.mark(&next, first);
        let events = next.history().end_seq() - first;
        inner.publish(Some(next));
        drop(writer);
        wake(&marked);
        wake(&ended);
        Some(usize::try_from(events).unwrap_or(usize::MAX))
    }

    /// Applies what the stream brought, as one published step. What is not newer than the present
    /// resourceVersion is dropped, and all of it while the cache is not ready. Wakes the watchers that it may concern.
    pub fn apply(&self, changes: Vec<Change>, now: Now) {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        let Some(state) = inner.state() else { return };
        let Some(next) = state.after_changes(changes, now, &self.limits) else { return };
        let marked = writer.dispatcher.mark(&next, state.history().end_seq());
        inner.publish(Some(Arc::new(next)));
        // Nobody who comes or goes need wait for a thousand wake-ups.
        drop(writer);
        wake(&marked);
    }

    /// Forgets the state: not ready any more; every watcher ends with the cause.
    pub fn invalidate(&self, cause: EndCause) {
        self.reset(cause, None);
    }

    /// Forgets the state, since the upstream's history was found rewound: every watcher ends (cause `Relist`), and what a client has
    /// from the lost history, which had come as far as `lost`, is no ground to watch from.
    pub fn rewind(&self, lost: ResourceVersion) {
        self.reset(EndCause::Relist, None);
        self.inner.writer.lock().baseline.rewind(lost);
    }

    /// Begins a watch. It sees every later event exactly once, beginning at `start`.
    pub fn watch(&self, filter: WatchFilter, start: WatchStart) -> Result<Watcher, WatchRefusal> {
        let index_key = IndexKey::from_filter(&filter);
        let mut writer = self.inner.writer.lock();
        let state = self.inner.state().ok_or(WatchRefusal::NotReady)?;
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

    /// Begins a watch with a state that was listed besides the stream ([`State::with_list`]), or with the present one if that is as new. Of what
    /// the stream tells later, the watch is given what is newer than the state that it began with: old and new of each event
    /// are the upstream's own states, whoever listed. The state must be of the upstream's history that is held here.
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
        let at = state.resource_version();
        let initial = Some(InitialEvents::new(state));
        let skip_through = if at > held { at } else { ResourceVersion::default() };
        let cursor = writer.dispatcher.register(index_key, (end, end), skip_through, initial);
        drop(writer);
        let (cache, start) = (Arc::clone(&self.inner), WatchStart::InitialEvents);
        Ok(Watcher::new(cache, cursor, filter, start, at))
    }

    /// Ends watchers (cause `Slow`) that still hold their initial state and took nothing of it since a call that was made
    /// `older_than` ago; a first call only notes how far each is. To be called now and then. Returns how many it ended.
    pub fn end_stalled(&self, older_than: Duration, now: Now) -> usize {
        let cursors = self.inner.writer.lock().dispatcher.holding_initial_events();
        let ended = cursors.iter().filter(|cursor| cursor.end_if_stalled(older_than, now)).count();
        self.inner.writer.lock().dispatcher.prune_initial();
        ended
    }

    /// How many watchers there are, those included that have ended and were not dropped yet.
    pub fn watchers(&self) -> usize {
        self.inner.writer.lock().dispatcher.watchers()
    }

    /// Returns false, and does nothing, if a list is older than the present state.
    fn reset(&self, cause: EndCause, list: Option<(Store, ResourceVersion)>) -> bool {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        let old = inner.state();
        if let (Some(old), Some((_, listed))) = (&old, &list)
            && *listed < old.resource_version()
        {
            return false;
        }
        let ended = match &old {
            Some(old) => {
                writer.baseline = old.history().baseline();
                writer.dispatcher.end_all(old, cause)
            }
            None => Vec::new(),
        };
        let baseline = writer.baseline;
        inner.publish(list.map(|(store, resource_version)| {
            Arc::new(State::from_list(store, resource_version, baseline))
        }));
        drop(writer);
        wake(&ended);
        true
    }

    /// Whether no index holds a watcher.
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
