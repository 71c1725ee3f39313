//! The store: collections of objects under one revision, each with the history of its events.
//!
//! It stands for etcd and for the watch caches of the API servers before it. As in the upstream, a
//! watch cache has its own resourceVersion, which lags behind the global revision until an event of
//! its collection, or a progress request of its own API server, advances it (`docs/semantics.md`
//! §2.3, §5.6). API servers have numbers from 0 on.
//!
//! Lock order: only the mutex of the state; no other lock is taken while it is held. Watchers are
//! woken through `tokio` watch channels, which never block.

mod collection;
mod recording;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

pub(super) use self::collection::{Collection, Event, MissedEvents};
use self::recording::Recording;
pub use self::recording::{Recorded, Write};
use super::json::text;
use super::kinds::{Kind, Registry};
use super::object::{Object, set_revision};
use super::status::ApiError;

/// The revision of an empty store. It is not 0 or 1, whose special meanings could make a test pass
/// by accident.
const FIRST_REVISION: u64 = 1000;

/// The collection of CustomResourceDefinitions. Its changes rebuild the registry.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The effect of a write on one object.
pub(super) enum Change {
    /// Creates or replaces it.
    Put(Value),
    /// Removes it.
    Remove,
    /// Leaves it; the result is the present state.
    Keep,
}

/// All objects of the simulated cluster.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    registry: ArcSwap<Registry>,
    history_events_max: usize,
}

/// A state to which [`Store::restore`] can go back.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The store that it was taken of.
    store: uuid::Uuid,
    revision: u64,
    /// How much higher the revision is after its restore.
    bump: u64,
    objects: HashMap<String, Vec<Arc<Object>>>,
}

impl Snapshot {
    /// Raises the revision that the store has after the restore, as `etcdutl snapshot restore
    /// --bump-revision --mark-compacted` does.
    #[must_use]
    pub fn bumped(self, bump: u64) -> Self {
        Self { bump, ..self }
    }

    /// Returns its revision, without the increase of [`bumped`](Self::bumped).
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

#[derive(Debug)]
struct State {
    /// Distinguishes this store from others.
    id: uuid::Uuid,
    revision: u64,
    collections: HashMap<String, Collection>,
    /// Whether the watch caches lag, by the number of their API server.
    paused: Vec<bool>,
    /// The API servers go on with the definitions that they know.
    are_definitions_held: bool,
    /// The storage names of what they do not know yet.
    redefined: Vec<String>,
    recording: Recording,
}

impl Store {
    /// Returns an empty store before which there are `servers` API servers. It holds at most
    /// `history_events_max` events of each resource, and records all writes if `records_writes`.
    pub(super) fn new(history_events_max: usize, servers: usize, records_writes: bool) -> Self {
        let paused = vec![false; servers.max(1)];
        let recording = Recording::new(records_writes);
        let collections = HashMap::new();
        let (id, revision) = (uuid::Uuid::new_v4(), FIRST_REVISION);
        let mut state = State {
            id,
            revision,
            collections,
            paused,
            are_definitions_held: false,
            redefined: Vec::new(),
            recording,
        };
        let registry = Registry::new(std::iter::empty());
        state.begin(&registry);
        Self {
            state: Mutex::new(state),
            registry: ArcSwap::from_pointee(registry),
            history_events_max,
        }
    }

    /// Returns the kinds that are served now.
    pub(super) fn registry(&self) -> Arc<Registry> {
        self.registry.load_full()
    }

    /// Returns the global revision.
    pub(super) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub(super) fn get(&self, kind: &Kind, key: &str) -> Option<Arc<Object>> {
        self.state.lock().collections.get(&kind.storage())?.objects.get(key).cloned()
    }

    /// Calls `read` with a collection and the global revision.
    pub(super) fn read<T>(&self, kind: &Kind, read: impl FnOnce(&mut Collection, u64) -> T) -> T {
        let mut state = self.state.lock();
        let revision = state.revision;
        read(state.collection(&kind.storage()), revision)
    }

    /// Changes one object; `decide` receives its present state. One call is one transaction.
    pub(super) fn write(
        &self,
        kind: &Kind,
        key: &str,
        decide: impl FnOnce(Option<Value>) -> Result<Change, ApiError>,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        let storage = kind.storage();
        let mut state = self.state.lock();
        let revision = state.revision + 1;
        let window = self.history_events_max;
        let collection = state.collection(&storage);
        let old = collection.objects.get(key).cloned();
        let before = old.clone();
        let answer = match decide(old.as_ref().map(|object| object.value()))? {
            Change::Keep => return Ok(old),
            Change::Put(mut value) => {
                if let Some(old) = old.as_ref().filter(|old| same_but_revision(old, &value)) {
                    return Ok(Some(Arc::clone(old)));
                }
                set_revision(&mut value, revision);
                let new = Arc::new(Object::new(kind, revision, value));
                let event = Event { revision, old, new: Some(Arc::clone(&new)) };
                collection.apply(event, window);
                state.recording.write(&storage, &new, false);
                Some(new)
            }
            Change::Remove => {
                let Some(old) = old else { return Ok(None) };
                let last = Arc::new(old.at(kind, revision));
                collection.apply(Event { revision, old: Some(old), new: None }, window);
                state.recording.write(&storage, &last, true);
                Some(last)
            }
        };
        state.revision = revision;
        if storage == DEFINITIONS {
            let after = state.collection(DEFINITIONS).objects.get(key).cloned();
            state.redefined.extend(redefined(before.as_deref(), after.as_deref()));
            let is_update = before.is_some() && after.is_some();
            if !(state.are_definitions_held && is_update) {
                self.learn_definitions(&mut state);
            }
        }
        Ok(answer)
    }

    /// Returns the keys and kinds of all objects that match `wanted`.
    pub(super) fn find(&self, wanted: impl Fn(&Object) -> bool) -> Vec<(Arc<Kind>, Arc<str>)> {
        let registry = self.registry();
        let state = self.state.lock();
        let mut objects = Vec::new();
        for (storage, collection) in &state.collections {
            let kind = registry.kinds().iter().find(|kind| kind.storage() == *storage);
            let Some(kind) = kind else { continue };
            let matching = collection.objects.values().filter(|object| wanted(object));
            objects.extend(matching.map(|object| (Arc::clone(kind), Arc::clone(&object.key))));
        }
        objects
    }

    /// Returns a channel whose value changes with every event in a server's watch cache, and which
    /// closes when its watches must end.
    pub(super) fn subscribe(&self, server: usize, kind: &Kind) -> watch::Receiver<u64> {
        self.state.lock().collection(&kind.storage()).subscribe(server)
    }

    /// Advances a server's watch cache to the global revision, as a requested progress notification
    /// does. Returns the resourceVersion that it has then.
    pub(super) fn progress(&self, server: usize, kind: &Kind) -> u64 {
        let mut state = self.state.lock();
        let revision = state.revision;
        let collection = state.collection(&kind.storage());
        collection.advance(server, revision);
        collection.current(server)
    }

    /// Lets all watch caches of a server lag from now on, or catch up.
    pub(super) fn pause(&self, server: usize, is_paused: bool) {
        let mut state = self.state.lock();
        if let Some(paused) = state.paused.get_mut(server) {
            *paused = is_paused;
        }
        state.collections.values_mut().for_each(|collection| collection.pause(server, is_paused));
    }

    /// Lets the watch caches of a server begin at the present revision, without a history.
    pub(super) fn restart(&self, server: usize) {
        let mut state = self.state.lock();
        let revision = state.revision;
        if let Some(paused) = state.paused.get_mut(server) {
            *paused = false;
        }
        let collections = state.collections.values_mut();
        collections.for_each(|collection| collection.restart(server, revision));
    }

    /// Lets the API servers go on with the definitions that they know, or learn of the stored ones.
    pub(super) fn hold_definitions(&self, are_held: bool) {
        let mut state = self.state.lock();
        state.are_definitions_held = are_held;
        if !are_held && !state.redefined.is_empty() {
            self.learn_definitions(&mut state);
        }
    }

    /// Discards all history, so that every older resourceVersion expires.
    pub(super) fn compact(&self) {
        let mut state = self.state.lock();
        let revision = state.revision;
        state.collections.values_mut().for_each(|collection| collection.compact(revision));
    }

    /// Returns the present state.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        let objects = state.collections.iter().map(|(storage, collection)| {
            (storage.clone(), collection.objects.values().cloned().collect())
        });
        let objects = objects.collect();
        Snapshot { store: state.id, revision: state.revision, bump: 0, objects }
    }

    /// Returns the record of writes from a position on.
    pub(super) fn recorded_since(&self, position: usize) -> Vec<Recorded> {
        self.state.lock().recording.since(position)
    }

    /// Returns to an earlier state and its revision, as a restored etcd does: watches end, the
    /// history is lost, and later revisions are assigned again.
    pub(super) fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.state.lock();
        let revision = snapshot.revision + snapshot.bump;
        state.revision = revision;
        let is_own = snapshot.store == state.id;
        state.recording.restore(revision, is_own.then_some(snapshot.revision));
        state.id = snapshot.store;
        state.paused.fill(false);
        state.are_definitions_held = false;
        state.redefined.clear();
        state.collections.clear();
        for (storage, objects) in &snapshot.objects {
            if !is_own {
                let mut objects = objects.clone();
                objects.sort_by_key(|object| object.revision);
                objects.iter().for_each(|object| state.recording.write(storage, object, false));
            }
            let objects =
                objects.iter().map(|object| (Arc::clone(&object.key), Arc::clone(object)));
            let collection = state.collection(storage);
            collection.objects = objects.collect();
        }
        self.rebuild_registry(&mut state);
        state.begin(&self.registry.load());
    }

    /// Ends all running watches cleanly, as a server that shuts down does.
    pub(super) fn end_watches(&self) {
        let mut state = self.state.lock();
        state.collections.values_mut().for_each(Collection::end_watches);
    }

    /// Serves by the stored definitions from now on.
    fn learn_definitions(&self, state: &mut State) {
        self.rebuild_registry(state);
        let registry = self.registry();
        for storage in std::mem::take(&mut state.redefined) {
            state.redefine(&storage, &registry);
        }
    }

    fn rebuild_registry(&self, state: &mut State) {
        let definitions = state.collection(DEFINITIONS).objects.values();
        let definitions: Vec<Value> = definitions.map(|object| object.value()).collect();
        self.registry.store(Arc::new(Registry::new(definitions.iter())));
    }
}

impl State {
    /// Creates the collections of all kinds, so that their histories begin now and not at their
    /// first use.
    fn begin(&mut self, registry: &Registry) {
        for kind in registry.kinds() {
            self.collection(&kind.storage());
        }
    }

    /// Resets a collection whose definition has changed: its watches end, its history is lost, and
    /// its objects are indexed by the new definition. If the definition is gone, only the watches
    /// end, after they have sent all remaining events.
    fn redefine(&mut self, storage: &str, registry: &Registry) {
        let revision = self.revision;
        let kind = registry.kinds().iter().find(|kind| kind.storage() == storage);
        let collection = self.collection(storage);
        if let Some(kind) = kind {
            collection.compact(revision);
            for object in collection.objects.values_mut() {
                *object = Arc::new(Object::new(kind, object.revision, object.value()));
            }
        }
        collection.end_watches();
    }

    /// Returns the collection of a storage name, and creates it at the first use.
    fn collection(&mut self, storage: &str) -> &mut Collection {
        let revision = self.revision;
        let paused = &self.paused;
        let make = || Collection::new(revision, paused);
        if !self.collections.contains_key(storage) {
            self.collections.insert(storage.to_owned(), make());
        }
        self.collections.entry(storage.to_owned()).or_insert_with(make)
    }
}

/// Returns the storage names of the resources whose serving changes with a definition.
fn redefined(before: Option<&Object>, after: Option<&Object>) -> Vec<String> {
    let entry = |object: &Object| {
        let value = object.value();
        let part = |pointer: &str| value.pointer(pointer).cloned().unwrap_or_default();
        let word = |pointer: &str| text(&value, pointer).to_owned();
        let storage = format!("{}/{}", word("/spec/group"), word("/spec/names/plural"));
        (storage, part("/spec"), part("/status/acceptedNames"))
    };
    let (before, after) = (before.map(entry), after.map(entry));
    if before == after {
        return Vec::new();
    }
    let mut storages: Vec<String> =
        [before, after].into_iter().flatten().map(|(storage, ..)| storage).collect();
    storages.dedup();
    storages
}

/// Returns whether a write would change nothing. Such a write does not change the resourceVersion.
fn same_but_revision(old: &Object, new: &Value) -> bool {
    let mut new = new.clone();
    set_revision(&mut new, old.revision);
    old.value() == new
}
