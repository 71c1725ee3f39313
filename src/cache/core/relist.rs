//! What a new list changes, so that watches live on through it (design, section 6).
//!
//! When the upstream no longer has the events after R, the last resourceVersion that was applied, a list at some L > R takes their place. What
//! differs goes to the watchers as a batch of events: first every object that is removed, or that leaves a watcher's selector, as DELETED at R; then
//! what is new or changed, by ascending resourceVersion of its own, which lies in (R, L]. An object that was replaced by another of its name (its
//! uid differs) is gone first and new then. At the end stands the state at L, and a bookmark can say so.
//!
//! **No client may come back into a hole.** It comes back with the resourceVersion N of the last thing it was told:
//!
//! * N ≤ R: it is owed the events after N and then the whole batch, and gets both. A client that was cut among the deletions has R from
//!   them, and gets them again: to delete what is gone changes nothing. Deletions carry R, so where a watch goes on is found by an event's place in the
//!   history and not by its resourceVersion: the place of every event of a batch is L.
//! * R < N < L: it was cut later in the batch, or it has N from elsewhere, the upstream or another Weir. The first has seen the
//!   deletions, the second perhaps not those in (N, L], and nobody can tell the two apart. Neither may go on here: 410, with L as the oldest
//!   resourceVersion to begin from. This holds for an empty batch too: what was created before N and deleted after it is in no difference.
//! * N ≥ L: it knows the whole batch.
//!
//! On the upstream, or on another Weir that had no such relist, a client cut in the batch finds the events after N one by one. Some of them
//! are of objects that it no longer has, which does no harm; and what it still has is in the list, so that its present state comes, unless the
//! client has it already. That is why leaving a selector comes first too: an object that left it before N and changed once more after it
//! would otherwise be in no event after N, and with the client for ever.
//!
//! A watch that began in the future, at R < N < L, and has been silent, is in the second case and ends. A watch in the middle of the batch is not
//! idle, so that no bookmark can claim a resourceVersion in (R, L).
//!
//! **Where streams cannot live on** they end, and the history begins anew at L: bytes that changed without their resourceVersion (the events in the history are
//! written in the old ones), what a continuous history cannot bring (an object unknown at R whose resourceVersion is not above it), and a
//! batch heavier than the history may be.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::event::Event;
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::now::Now;
use crate::cache::core::store::Store;
use crate::codec::object::Object;
use crate::codec::uid;

/// Why streams cannot live through a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// An object has other bytes under the same resourceVersion: its definition, or the upstream's release, changed.
    #[error("objects have other bytes under the same resourceVersion")]
    ChangedBytes,
    /// The list does not follow from what was held.
    #[error("the list does not follow from what was held")]
    Inconsistent,
    /// The difference is heavier than the history may be.
    #[error("the difference is heavier than the history may be")]
    TooHeavy,
    /// What was held came to be newer than the list while that was under way.
    #[error("what is held is newer than the list")]
    Overtaken,
}

/// What a list changes.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The objects that are removed, in key order.
    removed: Vec<Arc<Object>>,
    /// What is new, or changed from what it was, by ascending resourceVersion.
    upserted: Vec<(Arc<Object>, Option<Arc<Object>>)>,
}

impl Difference {
    /// Between a state at `from` and a list at `to`.
    pub(super) fn between(
        held: (&Store, ResourceVersion),
        listed: (&Store, ResourceVersion),
    ) -> Result<Self, Discontinuity> {
        let ((old, from), (new, to)) = (held, listed);
        let mut difference = Self::default();
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(&new.key),
            };
            let before = if order.is_le() { old.next() } else { None };
            let after = if order.is_ge() { new.next() } else { None };
            difference.compare(before, after, from..=to)?;
        }
        // At the same resourceVersion there is nothing to differ by.
        if to <= from && !difference.removed.is_empty() {
            return Err(Discontinuity::Inconsistent);
        }
        difference.upserted.sort_by_key(|(object, _)| object.resource_version);
        Ok(difference)
    }

    /// Changes a store accordingly; returns the events of the batch, in its order.
    pub(super) fn apply(self, store: &mut Store, from: ResourceVersion, now: Now) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.removed.len() + self.upserted.len());
        for object in self.removed {
            store.remove(object.key.as_str());
            events.push(Event::deleted_by_relist(object, from, now));
        }
        for (object, previous) in &self.upserted {
            let Some(previous) = previous else { continue };
            // No filter can tell two objects of one key apart by anything else.
            if previous.attrs != object.attrs {
                let (object, previous) = (Arc::clone(object), Arc::clone(previous));
                events.push(Event::leaving_selectors(object, previous, from, now));
            }
        }
        for (object, previous) in self.upserted {
            store.put(Arc::clone(&object));
            events.push(Event::upserted_by_relist(object, previous, now));
        }
        events
    }

    fn compare(
        &mut self,
        before: Option<&Arc<Object>>,
        after: Option<&Arc<Object>>,
        range: std::ops::RangeInclusive<ResourceVersion>,
    ) -> Result<(), Discontinuity> {
        let Some(after) = after else {
            self.removed.extend(before.cloned());
            return Ok(());
        };
        if let Some(before) = before
            && before.resource_version == after.resource_version
        {
            return if before.body == after.body {
                Ok(())
            } else {
                Err(Discontinuity::ChangedBytes)
            };
        }
        let at = after.resource_version;
        if at <= *range.start() || at > *range.end() {
            return Err(Discontinuity::Inconsistent);
        }
        let replaced = before.filter(|before| uid::of(before) != uid::of(after));
        self.removed.extend(replaced.cloned());
        let previous = if replaced.is_some() { None } else { before.cloned() };
        self.upserted.push((Arc::clone(after), previous));
        Ok(())
    }
}

/// Fails if a batch is heavier than the history may be.
pub(super) fn check_weight(events: &[Event], limits: &WindowLimits) -> Result<(), Discontinuity> {
    let weight = events.iter().fold(0_usize, |sum, event| sum.saturating_add(event.weight()));
    if weight > limits.bytes_max { Err(Discontinuity::TooHeavy) } else { Ok(()) }
}

/// The place of a relist in a history; see the module.
#[derive(Clone, Copy, Debug)]
pub struct RelistSpan {
    /// The number of the batch's first event.
    pub first: u64,
    /// The number after its last event.
    pub end: u64,
    /// R: the resourceVersion that was held.
    pub from: ResourceVersion,
    /// L: the list's.
    pub to: ResourceVersion,
}

impl RelistSpan {
    /// Whether an event is of its batch.
    pub fn contains(&self, seq: u64) -> bool {
        (self.first..self.end).contains(&seq)
    }

    /// Whether a resourceVersion lies where nobody can tell what its client has seen.
    pub fn is_ambiguous(&self, resource_version: ResourceVersion) -> bool {
        self.from < resource_version && resource_version < self.to
    }
}
