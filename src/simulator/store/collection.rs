//! One resource: its objects in key order, its own resourceVersion, and the window of its last events
//! (semantics.md §3.1, §5.8, §5.9).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use crate::simulator::object::Object;

/// A change of one object. Creation has no old state, removal no new one.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The revision of the change.
    pub(crate) revision: u64,
    /// The state before.
    pub(crate) old: Option<Arc<Object>>,
    /// The state after.
    pub(crate) new: Option<Arc<Object>>,
}

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Collection {
    /// By key, in byte order.
    pub(crate) objects: BTreeMap<Arc<str>, Arc<Object>>,
    /// Tells watchers of a new resourceVersion; dropped to end them.
    pub(crate) changed: watch::Sender<u64>,
    history: VecDeque<Event>,
    /// The oldest resourceVersion from which a watch can begin.
    oldest: u64,
    /// The newest event that is no longer kept: a running watch that has seen it has missed nothing.
    dropped: u64,
    /// The resourceVersion that lists from the cache and bookmarks carry.
    current: u64,
}

/// What a watcher at a resourceVersion has missed.
pub(crate) enum Since {
    /// These events, and the collection's resourceVersion after them.
    Events(Vec<Event>, u64),
    /// More than the window holds; the oldest resourceVersion that can be resumed.
    Expired(u64),
}

impl Collection {
    /// An empty one that begins at a revision.
    pub(crate) fn new(revision: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            changed: watch::Sender::new(revision),
            history: VecDeque::new(),
            oldest: revision,
            dropped: 0,
            current: revision,
        }
    }

    /// The collection's own resourceVersion.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Applies an event and tells the watchers; keeps at most `window` events.
    pub(crate) fn apply(&mut self, event: Event, window: usize) {
        match (&event.new, &event.old) {
            (Some(new), _) => drop(self.objects.insert(Arc::clone(&new.key), Arc::clone(new))),
            (None, Some(old)) => drop(self.objects.remove(&old.key)),
            (None, None) => return,
        }
        self.current = event.revision;
        self.history.push_back(event);
        while self.history.len() > window.max(1) {
            self.dropped = self.history.pop_front().map_or(0, |event| event.revision);
            if let Some(first) = self.history.front() {
                self.oldest = first.revision - 1;
            }
        }
        self.changed.send_replace(self.current);
    }

    /// Moves the resourceVersion up without an event.
    pub(crate) fn advance(&mut self, revision: u64) {
        if revision > self.current {
            self.current = revision;
            self.changed.send_replace(revision);
        }
    }

    /// Forgets the events up to a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.dropped = self.history.back().map_or(self.dropped, |event| event.revision);
        self.history.clear();
        self.oldest = revision;
        self.advance(revision);
    }

    /// The events after a resourceVersion, for a watch that begins there, or one that runs and has come so far.
    pub(crate) fn since(&self, revision: u64, running: bool) -> Since {
        if revision < if running { self.dropped } else { self.oldest } {
            return Since::Expired(self.oldest);
        }
        let start = self.history.partition_point(|event| event.revision <= revision);
        Since::Events(self.history.range(start..).cloned().collect(), self.current)
    }

    /// The objects as they were at a revision: history undone; `None` if it does not reach back so far.
    pub(crate) fn at(&self, revision: u64) -> Option<BTreeMap<Arc<str>, Arc<Object>>> {
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
