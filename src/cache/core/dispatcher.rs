//! Marks each event for the watchers that it may match, using indexes.
//!
//! A watcher is registered in exactly one index, under the narrowest value that its filter requires
//! of every object; one of a user who may see a part, under that part. An event looks up its
//! object's key, and the object's field values before and after the event: if a field's value
//! changes, the event also matters to the watchers of the old value. Watchers that require nothing
//! (label selectors, whole resources) share one list, which is marked once a round.
//!
//! All methods are called with the cache's mutex held. A watcher is removed in constant time,
//! because its cursor stores its offset in its list.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::{Cursor, EndCause, InitialEvents, WatchEnd};
use crate::cache::core::event::Event;
use crate::cache::core::index_key::IndexKey;
use crate::cache::core::state::State;
use crate::codec::object::Key;

type Cursors = Vec<Arc<Cursor>>;

/// The registered watchers of one cache, by index key.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    by_key: HashMap<Key, Cursors>,
    by_field: Vec<HashMap<Box<[u8]>, Cursors>>,
    by_name: HashMap<Box<str>, Cursors>,
    by_namespace: HashMap<Box<str>, Cursors>,
    /// Those of shards, and of what a user may see. An event is compared with each.
    by_set: Cursors,
    unindexed: Cursors,
    /// The watchers that started with initial events and may still hold them.
    with_initial_events: BTreeMap<u64, Arc<Cursor>>,
    next_id: u64,
    round: u64,
    /// The number of watchers that the last round marked; an estimate for the next round.
    last_marked: usize,
    watchers: usize,
}

impl Dispatcher {
    /// Registers a watcher. It receives all later marks.
    pub(super) fn register(
        &mut self,
        index_key: IndexKey,
        pending: (u64, u64),
        skip_through: ResourceVersion,
        initial: Option<InitialEvents>,
    ) -> Arc<Cursor> {
        self.next_id += 1;
        let holds_initial = initial.is_some();
        let cursor = Arc::new(Cursor::new(self.next_id, index_key, pending, skip_through, initial));
        let cursors = self.cursors_mut(&cursor.index_key);
        cursor.slot.store(cursors.len(), Ordering::Relaxed);
        cursors.push(Arc::clone(&cursor));
        if holds_initial {
            self.with_initial_events.insert(cursor.id, Arc::clone(&cursor));
        }
        self.watchers += 1;
        cursor
    }

    /// Removes a watcher, whether it has ended or not.
    pub(super) fn unregister(&mut self, cursor: &Cursor) {
        self.watchers = self.watchers.saturating_sub(1);
        self.with_initial_events.remove(&cursor.id);
        if cursor.end().is_none() {
            self.remove_from_index(cursor);
        }
    }

    fn remove_from_index(&mut self, cursor: &Cursor) {
        match &cursor.index_key {
            IndexKey::Object(key) => remove(&mut self.by_key, key, cursor),
            IndexKey::Field(field, value) => {
                if let Some(by_value) = self.by_field.get_mut(*field) {
                    remove(by_value, value, cursor);
                }
            }
            IndexKey::Name(name) => remove(&mut self.by_name, name, cursor),
            IndexKey::Namespace(namespace) => remove(&mut self.by_namespace, namespace, cursor),
            IndexKey::Shard(_) | IndexKey::Visible(_) => swap_remove(&mut self.by_set, cursor),
            IndexKey::Unindexed | IndexKey::Readable => swap_remove(&mut self.unindexed, cursor),
        }
    }

    /// Marks the watchers that the events from number `from` on may match. Returns these watchers;
    /// the caller wakes them after publishing the state.
    pub(super) fn mark(&mut self, state: &State, from: u64) -> Vec<Arc<Cursor>> {
        self.round += 1;
        let to = state.history().end_seq();
        let mut marked = Vec::with_capacity(self.last_marked.min(self.watchers));
        for (seq, event) in state.history().events(from, to) {
            self.for_each_interested(event, |cursors| {
                mark_all(cursors, (seq, seq), self.round, &mut marked);
            });
            let of_sets = self.by_set.iter().filter(|cursor| cursor.index_key.has_object_of(event));
            mark_all(of_sets, (seq, seq), self.round, &mut marked);
        }
        if from < to {
            mark_all(&self.unindexed, (from, to - 1), self.round, &mut marked);
        }
        self.last_marked = marked.len();
        marked
    }

    /// Ends every watcher at `state` and returns them. The caller wakes them after publishing the
    /// next state.
    pub(super) fn end_all(&mut self, state: &Arc<State>, cause: EndCause) -> Vec<Arc<Cursor>> {
        let by_field = std::mem::take(&mut self.by_field);
        let mut cursors: Vec<Arc<Cursor>> = std::mem::take(&mut self.unindexed);
        cursors.append(&mut self.by_set);
        cursors.extend(std::mem::take(&mut self.by_key).into_values().flatten());
        cursors.extend(by_field.into_iter().flat_map(HashMap::into_values).flatten());
        cursors.extend(std::mem::take(&mut self.by_name).into_values().flatten());
        cursors.extend(std::mem::take(&mut self.by_namespace).into_values().flatten());
        for cursor in &cursors {
            cursor.set_end(WatchEnd { state: Arc::clone(state), cause });
        }
        cursors
    }

    /// Ends, as [`Self::end_all`] does, the watchers for which `is_ended` returns true.
    pub(super) fn end_some(
        &mut self,
        state: &Arc<State>,
        cause: EndCause,
        is_ended: impl Fn(&Cursor) -> bool,
    ) -> Vec<Arc<Cursor>> {
        let ended: Vec<_> =
            self.all_watchers().filter(|cursor| is_ended(cursor)).cloned().collect();
        for cursor in &ended {
            self.remove_from_index(cursor);
            cursor.set_end(WatchEnd { state: Arc::clone(state), cause });
        }
        ended
    }

    /// Ends the watchers that may match an object that cannot be read, given by namespace and name.
    /// They end at `state`, before any of these objects has changed: their clients resume there.
    pub(super) fn end_unreadable<'a>(
        &mut self,
        state: &Arc<State>,
        unreadable: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Vec<Arc<Cursor>> {
        let unreadable: Vec<_> = unreadable.collect();
        if unreadable.is_empty() {
            return Vec::new();
        }
        let may_match =
            |cursor: &Cursor| unreadable.iter().any(|names| cursor.index_key.may_match(*names));
        self.end_some(state, EndCause::Unreadable, may_match)
    }

    /// Returns the watchers that may still hold their initial state.
    pub(super) fn holding_initial_events(&self) -> Vec<Arc<Cursor>> {
        self.with_initial_events.values().cloned().collect()
    }

    /// Removes the watchers that no longer hold their initial state from the list of those that do.
    pub(super) fn prune_initial(&mut self) {
        // If the lock is held, the watcher is reading its initial state right now; keep it.
        self.with_initial_events
            .retain(|_, cursor| cursor.initial.try_lock().is_none_or(|initial| initial.is_some()));
    }

    /// Returns the number of watchers, including those that have ended but were not dropped yet.
    pub(super) fn watchers(&self) -> usize {
        self.watchers
    }

    /// Returns the number of watchers whose first unread event is more than `events_max` before the
    /// newest one.
    pub(super) fn watchers_behind(&self, state: &State, events_max: usize) -> usize {
        let end = state.history().end_seq();
        let is_behind = |cursor: &&Arc<Cursor>| {
            cursor.pending(state).is_some_and(|(from, _)| end - from.min(end) > events_max as u64)
        };
        self.all_watchers().filter(is_behind).count()
    }

    /// Returns the watchers that have not ended.
    fn all_watchers(&self) -> impl Iterator<Item = &Arc<Cursor>> {
        let by_field = self.by_field.iter().flat_map(HashMap::values);
        let indexed = self.by_key.values().chain(self.by_name.values()).chain(by_field);
        indexed
            .chain(self.by_namespace.values())
            .flatten()
            .chain(&self.by_set)
            .chain(&self.unindexed)
    }

    /// Returns whether no index contains a watcher.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
            && self.by_field.iter().all(HashMap::is_empty)
            && self.by_name.is_empty()
            && self.by_namespace.is_empty()
            && self.by_set.is_empty()
            && self.unindexed.is_empty()
            && self.with_initial_events.is_empty()
    }

    /// Calls `mark` with the lists of indexed watchers that the event may match. `unindexed` is not
    /// among them.
    fn for_each_interested(&self, event: &Event, mut mark: impl FnMut(&Cursors)) {
        let object = event.object();
        let key = &object.key;
        let by_identity = [
            self.by_key.get(key),
            self.by_name.get(key.name()),
            self.by_namespace.get(key.namespace()),
        ];
        by_identity.into_iter().flatten().for_each(&mut mark);
        for (field, by_value) in self.by_field.iter().enumerate() {
            // A field that an object lacks counts as empty, as in selectors.
            let new = object.attrs.field(field);
            let old = event.previous().map(|previous| previous.attrs.field(field));
            by_value.get(new).into_iter().for_each(&mut mark);
            let old = old.filter(|old| *old != new).and_then(|old| by_value.get(old));
            old.into_iter().for_each(&mut mark);
        }
    }

    fn cursors_mut(&mut self, index_key: &IndexKey) -> &mut Cursors {
        match index_key {
            IndexKey::Object(key) => self.by_key.entry(key.clone()).or_default(),
            IndexKey::Field(field, value) => {
                if self.by_field.len() <= *field {
                    self.by_field.resize_with(field + 1, HashMap::new);
                }
                // The vector was resized above, so this is always `Some`. The list of unindexed
                // watchers would be correct too.
                match self.by_field.get_mut(*field) {
                    Some(by_value) => by_value.entry(value.clone()).or_default(),
                    None => &mut self.unindexed,
                }
            }
            IndexKey::Name(name) => self.by_name.entry(name.clone()).or_default(),
            IndexKey::Namespace(namespace) => {
                self.by_namespace.entry(namespace.clone()).or_default()
            }
            IndexKey::Shard(_) | IndexKey::Visible(_) => &mut self.by_set,
            IndexKey::Unindexed | IndexKey::Readable => &mut self.unindexed,
        }
    }
}

fn mark_all<'a>(
    cursors: impl IntoIterator<Item = &'a Arc<Cursor>>,
    events: (u64, u64),
    round: u64,
    marked: &mut Vec<Arc<Cursor>>,
) {
    for cursor in cursors {
        if cursor.marks.mark(events, round) {
            marked.push(Arc::clone(cursor));
        }
    }
}

fn remove<K: Hash + Eq>(index: &mut HashMap<K, Cursors>, key: &K, cursor: &Cursor) {
    if let Some(cursors) = index.get_mut(key) {
        swap_remove(cursors, cursor);
        if cursors.is_empty() {
            index.remove(key);
        }
    }
}

fn swap_remove(cursors: &mut Cursors, cursor: &Cursor) {
    let slot = cursor.slot.load(Ordering::Relaxed);
    if cursors.get(slot).is_some_and(|registered| registered.id == cursor.id) {
        cursors.swap_remove(slot);
        if let Some(moved) = cursors.get(slot) {
            moved.slot.store(slot, Ordering::Relaxed);
        }
    }
}
