//! Hands each event to the watchers that it may concern, by index.
//!
//! A watcher stands in exactly one index: by the narrowest thing that its filter demands of every object. An event looks up
//! its key, and the field values from before and after: an object that leaves a field value concerns the
//! watchers of the old one. Those that demand nothing (label selectors, whole resources) share one list, marked once
//! a batch.
//!
//! All of it is under the cache's mutex. A watcher leaves in constant time: it knows its index in its list.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::{Cursor, End, InitialEvents};
use crate::cache::core::event::Event;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::cache::core::watch_cache::EndCause;
use crate::codec::object::Key;

/// The index in which a watcher stands, and under what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One object.
    Key(Key),
    /// Objects with a value of one of the kind's selectable fields.
    Field(usize, Box<str>),
    /// Objects of a name, in every namespace (or cluster-scoped).
    Name(Box<str>),
    /// The objects of a namespace.
    Namespace(Box<str>),
    /// Any object.
    Rest,
}

impl Place {
    /// The narrowest place that misses nothing of what the filter matches.
    pub fn of(filter: &WatchFilter) -> Self {
        match (filter.required_namespace(), filter.required_name()) {
            (Some(namespace), Some(name)) => Self::Key(Key::new(namespace, name)),
            (namespace, name) => {
                if let Some((field, value)) = filter.fields.required_value() {
                    Self::Field(field, value.into())
                } else if let Some(name) = name {
                    Self::Name(name.into())
                } else {
                    namespace.map_or(Self::Rest, |namespace| Self::Namespace(namespace.into()))
                }
            }
        }
    }
}

type Cursors = Vec<Arc<Cursor>>;

/// See the module.
#[derive(Debug, Default)]
pub struct Dispatcher {
    by_key: HashMap<Key, Cursors>,
    by_field: Vec<HashMap<Box<str>, Cursors>>,
    by_name: HashMap<Box<str>, Cursors>,
    by_namespace: HashMap<Box<str>, Cursors>,
    rest: Cursors,
    /// Those that began with initial events and may still hold them.
    initial: BTreeMap<u64, Arc<Cursor>>,
    next_id: u64,
    batch: u64,
    /// How many the last batch marked: the next one will mark about as many.
    marked_last: usize,
    watchers: usize,
}

impl Dispatcher {
    /// Takes a watcher in; it gets every mark from now on.
    pub(super) fn register(
        &mut self,
        place: Place,
        owed: (u64, u64),
        after: ResourceVersion,
        initial: Option<InitialEvents>,
    ) -> Arc<Cursor> {
        self.next_id += 1;
        let holds_initial = initial.is_some();
        let cursor = Arc::new(Cursor::new(self.next_id, place, owed, after, initial));
        let cursors = self.cursors_mut(&cursor.place);
        cursor.index.store(cursors.len(), Ordering::Relaxed);
        cursors.push(Arc::clone(&cursor));
        if holds_initial {
            self.initial.insert(cursor.id, Arc::clone(&cursor));
        }
        self.watchers += 1;
        cursor
    }

    /// Lets a watcher go, whether it has ended or not.
    pub(super) fn unregister(&mut self, cursor: &Cursor) {
        self.watchers = self.watchers.saturating_sub(1);
        self.initial.remove(&cursor.id);
        if cursor.end().is_none() {
            self.leave_index(cursor);
        }
    }

    fn leave_index(&mut self, cursor: &Cursor) {
        match &cursor.place {
            Place::Key(key) => remove(&mut self.by_key, key, cursor),
            Place::Field(field, value) => {
                if let Some(by_value) = self.by_field.get_mut(*field) {
                    remove(by_value, value, cursor);
                }
            }
            Place::Name(name) => remove(&mut self.by_name, name, cursor),
            Place::Namespace(namespace) => remove(&mut self.by_namespace, namespace, cursor),
            Place::Rest => swap_remove(&mut self.rest, cursor),
        }
    }

    /// Marks the watchers that the events from number `from` on may concern, and returns them, to be woken once the state is
    /// published.
    pub(super) fn mark(&mut self, state: &State, from: u64) -> Vec<Arc<Cursor>> {
        self.batch += 1;
        let to = state.history().end_seq();
        let mut marked = Vec::with_capacity(self.marked_last.min(self.watchers));
        for (seq, event) in state.history().events(from, to) {
            self.each_concerned(event, |cursors| {
                mark_all(cursors, (seq, seq), self.batch, &mut marked);
            });
        }
        if from < to {
            mark_all(&self.rest, (from, to - 1), self.batch, &mut marked);
        }
        self.marked_last = marked.len();
        marked
    }

    /// Ends every watcher after `state`, and returns them, to be woken once the next state is published.
    pub(super) fn end_all(&mut self, state: &Arc<State>, cause: EndCause) -> Vec<Arc<Cursor>> {
        let by_field = std::mem::take(&mut self.by_field);
        let mut all: Vec<Arc<Cursor>> = std::mem::take(&mut self.rest);
        all.extend(std::mem::take(&mut self.by_key).into_values().flatten());
        all.extend(by_field.into_iter().flat_map(HashMap::into_values).flatten());
        all.extend(std::mem::take(&mut self.by_name).into_values().flatten());
        all.extend(std::mem::take(&mut self.by_namespace).into_values().flatten());
        for cursor in &all {
            cursor.set_end(End { state: Arc::clone(state), cause });
        }
        all
    }

    /// Ends the watchers that began in the future and are silent until `is_over` says so of where they began, as [`Self::end_all`] does.
    pub(super) fn end_silent(
        &mut self,
        state: &Arc<State>,
        cause: EndCause,
        is_over: impl Fn(ResourceVersion) -> bool,
    ) -> Vec<Arc<Cursor>> {
        let by_field = self.by_field.iter().flat_map(HashMap::values);
        let all = self.by_key.values().chain(self.by_name.values()).chain(by_field);
        let all = all.chain(self.by_namespace.values()).flatten().chain(&self.rest);
        let ended: Vec<_> = all.filter(|cursor| is_over(cursor.after)).cloned().collect();
        for cursor in &ended {
            self.leave_index(cursor);
            cursor.set_end(End { state: Arc::clone(state), cause });
        }
        ended
    }

    /// Those that may still hold their initial state.
    pub(super) fn with_initial(&self) -> Vec<Arc<Cursor>> {
        self.initial.values().cloned().collect()
    }

    /// Forgets those that no longer hold their initial state.
    pub(super) fn prune_initial(&mut self) {
        // Who can't be looked at is just taking from it.
        self.initial
            .retain(|_, cursor| cursor.initial.try_lock().is_none_or(|initial| initial.is_some()));
    }

    /// How many watchers there are, those included that have ended and were not dropped yet.
    pub(super) fn watchers(&self) -> usize {
        self.watchers
    }

    /// Whether no index holds a watcher.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
            && self.by_field.iter().all(HashMap::is_empty)
            && self.by_name.is_empty()
            && self.by_namespace.is_empty()
            && self.rest.is_empty()
            && self.initial.is_empty()
    }

    /// Calls back with the indexed watchers that an event may concern; the rest are not among them.
    fn each_concerned(&self, event: &Event, mut mark: impl FnMut(&Cursors)) {
        let object = event.object();
        let key = &object.key;
        let by_place = [
            self.by_key.get(key),
            self.by_name.get(key.name()),
            self.by_namespace.get(key.namespace()),
        ];
        by_place.into_iter().flatten().for_each(&mut mark);
        for (field, by_value) in self.by_field.iter().enumerate() {
            // A value that an object lacks counts as empty, as for the selector.
            let new = object.attrs.field(field);
            let old = event.previous().map(|previous| previous.attrs.field(field));
            by_value.get(new).into_iter().for_each(&mut mark);
            let old = old.filter(|old| *old != new).and_then(|old| by_value.get(old));
            old.into_iter().for_each(&mut mark);
        }
    }

    fn cursors_mut(&mut self, place: &Place) -> &mut Cursors {
        match place {
            Place::Key(key) => self.by_key.entry(key.clone()).or_default(),
            Place::Field(field, value) => {
                if self.by_field.len() <= *field {
                    self.by_field.resize_with(field + 1, HashMap::new);
                }
                // The line above made room for it; the list for the rest would miss nothing either.
                match self.by_field.get_mut(*field) {
                    Some(by_value) => by_value.entry(value.clone()).or_default(),
                    None => &mut self.rest,
                }
            }
            Place::Name(name) => self.by_name.entry(name.clone()).or_default(),
            Place::Namespace(namespace) => self.by_namespace.entry(namespace.clone()).or_default(),
            Place::Rest => &mut self.rest,
        }
    }
}

fn mark_all(cursors: &Cursors, events: (u64, u64), batch: u64, marked: &mut Vec<Arc<Cursor>>) {
    for cursor in cursors {
        if cursor.mark(events, batch) {
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
    let index = cursor.index.load(Ordering::Relaxed);
    if cursors.get(index).is_some_and(|found| found.id == cursor.id) {
        cursors.swap_remove(index);
        if let Some(moved) = cursors.get(index) {
            moved.index.store(index, Ordering::Relaxed);
        }
    }
}
