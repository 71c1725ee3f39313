//! One resource: its objects in key order, the window of its last events, and how far the watch
//! cache of each API server has come (`docs/semantics.md` §3.1, §5.8, §5.9).
//!
//! The objects and events are etcd's. A watch cache that lags shows them as they were at its own
//! resourceVersion.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use crate::object::Object;

/// A change of one object. A creation has no old state, a deletion no new one.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The revision of the change.
    pub(crate) revision: u64,
    /// The state before.
    pub(crate) old: Option<Arc<Object>>,
    /// The state after.
    pub(crate) new: Option<Arc<Object>>,
}

/// Objects by key, in byte order.
pub(crate) type Objects = BTreeMap<Arc<str>, Arc<Object>>;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Collection {
    /// The latest objects.
    pub(crate) objects: Objects,
    history: VecDeque<Event>,
    /// The oldest resourceVersion from which a watch can begin.
    oldest: u64,
    /// The revision of the newest event that was dropped. A running watch that has sent it has
    /// missed nothing.
    dropped: u64,
    /// The revision of the last event.
    latest: u64,
    /// The watch caches, by the number of their API server.
    caches: Vec<CachePosition>,
}

/// How far the watch cache of one API server has come.
#[derive(Debug)]
struct CachePosition {
    /// The resourceVersion of lists from the cache and of bookmarks.
    current: u64,
    /// Notifies watchers of a new resourceVersion. Replacing the sender ends them.
    changed: watch::Sender<u64>,
    /// The oldest resourceVersion from which a watch of this server can begin.
    oldest: u64,
    /// The objects of a cache that lags: it stays where it is.
    paused: Option<Objects>,
}

/// The events after a resourceVersion.
pub(crate) enum MissedEvents {
    /// The events, and the collection's resourceVersion after them.
    Events(Vec<Event>, u64),
    /// The window does not reach back to the resourceVersion. Holds the oldest one at which a watch
    /// can resume.
    Expired(u64),
}

impl Collection {
    /// Returns an empty collection that begins at a revision, with a watch cache for each API
    /// server. `paused` says which of them lag.
    pub(crate) fn new(revision: u64, paused: &[bool]) -> Self {
        let cache = |is_paused: &bool| CachePosition {
            current: revision,
            changed: watch::Sender::new(revision),
            oldest: revision,
            paused: is_paused.then(Objects::new),
        };
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            oldest: revision,
            dropped: 0,
            latest: revision,
            caches: paused.iter().map(cache).collect(),
        }
    }

    /// Returns the resourceVersion of a server's watch cache.
    pub(crate) fn current(&self, server: usize) -> u64 {
        self.caches.get(server).map_or(self.latest, |cache| cache.current)
    }

    /// Returns a channel of the resourceVersion of a server's watch cache.
    pub(crate) fn subscribe(&self, server: usize) -> watch::Receiver<u64> {
        let cache = self.caches.get(server);
        // A server without a cache ends its watches at once.
        cache.map_or_else(|| watch::channel(0).1, |cache| cache.changed.subscribe())
    }

    /// Returns the objects in a server's watch cache.
    pub(crate) fn cached(&self, server: usize) -> &Objects {
        let paused = self.caches.get(server).and_then(|cache| cache.paused.as_ref());
        paused.unwrap_or(&self.objects)
    }

    /// Applies an event and notifies the watchers. Retains at most `window` events.
    pub(crate) fn apply(&mut self, event: Event, window: usize) {
        match (&event.new, &event.old) {
            (Some(new), _) => drop(self.objects.insert(Arc::clone(&new.key), Arc::clone(new))),
            (None, Some(old)) => drop(self.objects.remove(&old.key)),
            (None, None) => return,
        }
        self.latest = event.revision;
        self.history.push_back(event);
        while self.history.len() > window.max(1) {
            self.dropped = self.history.pop_front().map_or(0, |event| event.revision);
            if let Some(first) = self.history.front() {
                self.oldest = first.revision - 1;
            }
        }
        self.caches.iter_mut().for_each(|cache| cache.advance(self.latest));
    }

    /// Advances the resourceVersion of a server's watch cache without an event.
    pub(crate) fn advance(&mut self, server: usize, revision: u64) {
        if let Some(cache) = self.caches.get_mut(server) {
            cache.advance(revision);
        }
    }

    /// Lets a server's watch cache lag from now on, or catch up with the last event.
    pub(crate) fn pause(&mut self, server: usize, is_paused: bool) {
        if let Some(cache) = self.caches.get_mut(server) {
            if is_paused != cache.paused.is_some() {
                cache.paused = is_paused.then(|| self.objects.clone());
            }
            cache.advance(self.latest);
        }
    }

    /// Lets a server's watch cache begin again at a revision: its watches end.
    pub(crate) fn restart(&mut self, server: usize, revision: u64) {
        if let Some(cache) = self.caches.get_mut(server) {
            let (changed, oldest) = (watch::Sender::new(revision), revision);
            *cache = CachePosition { current: revision, changed, oldest, paused: None };
        }
    }

    /// Ends the watches of all servers.
    pub(crate) fn end_watches(&mut self) {
        for cache in &mut self.caches {
            cache.changed = watch::Sender::new(cache.current);
        }
    }

    /// Discards the events up to a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.dropped = self.history.back().map_or(self.dropped, |event| event.revision);
        self.history.clear();
        self.oldest = revision;
        self.caches.iter_mut().for_each(|cache| cache.advance(revision));
    }

    /// Returns the events of a server's watch cache after a resourceVersion, for a watch that
    /// starts there, or for a running one that has reached it.
    pub(crate) fn since(&self, server: usize, revision: u64, running: bool) -> MissedEvents {
        let oldest = self.caches.get(server).map_or(self.oldest, |cache| cache.oldest);
        let oldest = oldest.max(self.oldest);
        if revision < if running { self.dropped } else { oldest } {
            return MissedEvents::Expired(oldest);
        }
        let current = self.current(server);
        let start = self.history.partition_point(|event| event.revision <= revision);
        let missed = self.history.range(start..).take_while(|event| event.revision <= current);
        MissedEvents::Events(missed.cloned().collect(), current)
    }

    /// Returns the objects as they were at a revision, by undoing the history; `None` if the
    /// history does not reach back to it.
    pub(crate) fn at(&self, revision: u64) -> Option<Objects> {
        if revision < self.oldest {
            return None;
        }
        let mut objects = self.objects.clone();
        for event in self.history.iter().rev().take_while(|event| event.revision > revision) {
            match (&event.old, &event.new) {
                (Some(old), _) => drop(objects.insert(Arc::clone(&old.key), Arc::clone(old))),
                (None, Some(new)) => drop(objects.remove(&new.key)),
                (None, None) => {}
            }
        }
        Some(objects)
    }
}

impl CachePosition {
    fn advance(&mut self, revision: u64) {
        if revision > self.current && self.paused.is_none() {
            self.current = revision;
            self.changed.send_replace(revision);
        }
    }
}
