//! One resource: its objects in key order, its own resourceVersion, and the window of its last
//! events (`docs/semantics.md` §3.1, §5.8, §5.9).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use crate::simulator::object::Object;

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

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Collection {
    /// The objects by key, in byte order.
    pub(crate) objects: BTreeMap<Arc<str>, Arc<Object>>,
    /// Notifies watchers of a new resourceVersion. Replacing the sender ends them.
    pub(crate) changed: watch::Sender<u64>,
    history: VecDeque<Event>,
    /// The oldest resourceVersion from which a watch can begin.
    oldest: u64,
    /// The revision of the newest event that was dropped. A running watch that has sent it has
    /// missed nothing.
    dropped: u64,
    /// The resourceVersion of lists from the cache and of bookmarks.
    current: u64,
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
    /// Returns an empty collection that begins at a revision.
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

    /// Returns the collection's own resourceVersion.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Applies an event and notifies the watchers. Retains at most `window` events.
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

    /// Advances the resourceVersion without an event.
    pub(crate) fn advance(&mut self, revision: u64) {
        if revision > self.current {
            self.current = revision;
            self.changed.send_replace(revision);
        }
    }

    /// Discards the events up to a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.dropped = self.history.back().map_or(self.dropped, |event| event.revision);
        self.history.clear();
        self.oldest = revision;
        self.advance(revision);
    }

    /// Returns the events after a resourceVersion, for a watch that starts there, or for a running
    /// one that has reached it.
    pub(crate) fn since(&self, revision: u64, running: bool) -> MissedEvents {
        if revision < if running { self.dropped } else { self.oldest } {
            return MissedEvents::Expired(self.oldest);
        }
        let start = self.history.partition_point(|event| event.revision <= revision);
        MissedEvents::Events(self.history.range(start..).cloned().collect(), self.current)
    }

    /// Returns the objects as they were at a revision, by undoing the history; `None` if the
    /// history does not reach back to it.
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
