//! Events from before a cache's list, which let watches start at older resourceVersions than that
//! of the list (`docs/decisions/older-watches.md`).
//!
//! They are collected in order from a watch of the upstream, beside the cache's own stream: all
//! that follow some resourceVersion N, up to the one where the history begins. An event of the
//! history also has the object before it, by which a watcher with a selector decides whether the
//! object entered or left its selection. Within the collected events this is the object of the
//! event before. For the first event of an object it is the object in the state at N, which a list
//! at exactly N shows. The first event may also be a deletion. The object in it has the last labels
//! and fields, so that this case needs no list.
//!
//! Invariant: `changes[i]` has the number `dropped + i`; `unknown` has the number of the first
//! change of each key whose previous object is not known yet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::change::Change;
use crate::cache::core::event::{Event, Now};
use crate::cache::core::state::State;
use crate::cache::core::store::Store;
use crate::codec::object::{Key, Object};

/// Events from before a cache's list.
#[derive(Debug)]
pub struct EarlierEvents {
    from: ResourceVersion,
    last: ResourceVersion,
    changes: VecDeque<EarlierChange>,
    /// The number of changes that were dropped because of the limits.
    dropped: usize,
    unknown: HashMap<Key, usize>,
    /// The object of each key after the last change; `None` if it was deleted.
    latest: HashMap<Key, Option<Arc<Object>>>,
    weight: usize,
    events_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct EarlierChange {
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    is_deletion: bool,
}

/// An object in the state where a history begins.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    /// It does not exist.
    Absent,
    /// It exists, at an unknown resourceVersion.
    Present,
    /// It exists, at this resourceVersion.
    At(ResourceVersion),
}

/// The collected events do not lead to the state in which the history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the earlier events do not lead to the cached state")]
pub struct DoesNotJoin;

impl EarlierEvents {
    /// Starts to collect the events after `from`. Keeps the newest, at most `events_max` of about
    /// `bytes_max` bytes.
    pub fn new(from: ResourceVersion, events_max: usize, bytes_max: usize) -> Self {
        Self {
            from,
            last: from,
            changes: VecDeque::new(),
            dropped: 0,
            unknown: HashMap::new(),
            latest: HashMap::new(),
            weight: 0,
            events_max,
            bytes_max,
        }
    }

    /// Returns the resourceVersion after which all events are here. It rises when events are
    /// dropped because of the limits.
    pub fn from(&self) -> ResourceVersion {
        self.from
    }

    /// Returns the resourceVersion up to which events have been collected.
    pub fn last(&self) -> ResourceVersion {
        self.last
    }

    /// Returns the number of collected events.
    pub fn count(&self) -> usize {
        self.changes.len()
    }

    /// Returns the size of the collected objects in bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Adds the next change. Ignores one that is not newer than the last: a watch that was opened
    /// again repeats it. A change of an object that cannot be read is no event, so that the
    /// collection begins after it.
    pub fn push(&mut self, change: Change) {
        if change.resource_version() <= self.last {
            return;
        }
        let (object, is_deletion) = match change {
            Change::Upsert(object) => (Arc::new(object), false),
            Change::Delete(object) => (Arc::new(object), true),
            Change::Unreadable { object, .. } => {
                while self.drop_first() {}
                (self.from, self.last) = (object.resource_version, object.resource_version);
                return;
            }
            Change::Progress(at) => {
                self.last = at;
                return;
            }
        };
        self.last = object.resource_version;
        let after = (!is_deletion).then(|| Arc::clone(&object));
        let previous = match self.latest.insert(object.key.clone(), after) {
            Some(previous) => previous,
            None if is_deletion => Some(Arc::clone(&object)),
            None => {
                self.unknown.insert(object.key.clone(), self.dropped + self.changes.len());
                None
            }
        };
        self.weight = self.weight.saturating_add(object.weight());
        self.changes.push_back(EarlierChange { object, previous, is_deletion });
        while self.changes.len() > self.events_max || self.weight > self.bytes_max {
            if !self.drop_first() {
                break;
            }
        }
    }

    /// Whether there are changes whose previous object only a list shows.
    pub fn needs_list(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// Takes an object of the state at the resourceVersion with which the collection started. Once
    /// the whole state was given, the objects that were not in it are new ones.
    pub fn take_listed(&mut self, object: Object) {
        let Some(number) = self.unknown.remove(&object.key) else { return };
        let change = number.checked_sub(self.dropped).and_then(|at| self.changes.get_mut(at));
        if let Some(change) = change {
            self.weight = self.weight.saturating_add(object.weight());
            change.previous = Some(Arc::new(object));
        }
    }

    /// Returns the events in order. Fails if they do not lead to the state in which the history of
    /// `state` begins.
    pub fn into_events(mut self, state: &State, now: Now) -> Result<Vec<Event>, DoesNotJoin> {
        self.check(state)?;
        self.share(state.store());
        let event = |change: EarlierChange| match (change.is_deletion, change.previous) {
            (true, Some(previous)) => Some(Event::deleted(change.object, previous, now)),
            // The object was deleted already: its watchers know of no object to delete.
            (true, None) => None,
            (false, previous) => Some(Event::upserted(change.object, previous, now)),
        };
        Ok(self.changes.into_iter().filter_map(event).collect())
    }

    /// Compares the objects after the last change with those where the history of `state` begins:
    /// the ones before their first event, or the present ones of objects without an event. Fails if
    /// one differs, or if an object is newer than `from` and has no change here.
    fn check(&self, state: &State) -> Result<(), DoesNotJoin> {
        let history = state.history();
        let mut begins = HashMap::new();
        for (_, event) in history.events(history.first_seq(), history.end_seq()) {
            begins.entry(&event.object().key).or_insert_with(|| match event.previous() {
                None => Beginning::Absent,
                // Only the deletion of the object is known.
                Some(previous) if previous.resource_version >= event.resource_version() => {
                    Beginning::Present
                }
                Some(previous) => Beginning::At(previous.resource_version),
            });
        }
        for (key, object) in &self.latest {
            let held = || state.store().get(key.as_bytes()).map(|object| object.resource_version);
            let begins = begins.get(key).copied();
            let begins = begins.unwrap_or_else(|| held().map_or(Beginning::Absent, Beginning::At));
            let joins = match (begins, object) {
                (Beginning::Absent, None) | (Beginning::Present, Some(_)) => true,
                (Beginning::At(at), Some(object)) => object.resource_version == at,
                _ => false,
            };
            if !joins {
                return Err(DoesNotJoin);
            }
        }
        let is_missed =
            |key: &Key, at: ResourceVersion| at > self.from && !self.latest.contains_key(key);
        let misses_event = begins
            .iter()
            .any(|(key, begins)| matches!(begins, Beginning::At(at) if is_missed(key, *at)));
        let misses_object = state.store().iter().any(|object| {
            !begins.contains_key(&object.key) && is_missed(&object.key, object.resource_version)
        });
        if misses_event || misses_object { Err(DoesNotJoin) } else { Ok(()) }
    }

    /// Takes the objects that the cache holds already, so that their bytes are not held twice.
    fn share(&mut self, state: &Store) {
        let mut shared = HashSet::new();
        for change in self.changes.iter_mut().rev() {
            if !shared.insert(change.object.key.clone()) || change.is_deletion {
                continue;
            }
            if let Some(held) = state.get(change.object.key.as_bytes())
                && held.resource_version == change.object.resource_version
            {
                change.object = Arc::clone(held);
            }
        }
    }

    fn drop_first(&mut self) -> bool {
        let Some(first) = self.changes.pop_front() else { return false };
        if self.unknown.get(&first.object.key) == Some(&self.dropped) {
            self.unknown.remove(&first.object.key);
        }
        self.dropped += 1;
        self.weight = self.weight.saturating_sub(first.object.weight());
        self.from = first.object.resource_version;
        true
    }
}
