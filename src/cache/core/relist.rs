//! The changes that a new list brings, as events, so that watches continue across a relist
//! (`docs/decisions/reflector-failures.md`).
//!
//! Let R be the last resourceVersion that was applied. When the upstream no longer has the events
//! after R, a list at some L > R replaces them. The differences go to the watchers as a batch of
//! events. First come DELETED events at R, for every object that was removed or that no longer
//! matches a watcher's selector. Then come the new and changed objects, ordered by their own
//! resourceVersions, which are in (R, L]. An object that was replaced by another with the same name
//! (its uid differs) is first removed and then new. After the batch a watcher has the state at L,
//! and a bookmark can claim it.
//!
//! **A client must not resume where it could miss a change.** It resumes with the resourceVersion N
//! of the last event it received:
//!
//! * N ≤ R: the events after N and then the whole batch are pending for it, and it receives both. A
//!   client that disconnected among the deletions has R from them and receives them again; deleting
//!   an object twice changes nothing. Since deletions carry R, the position where a watch resumes
//!   is found by the resume version of the events and not by their resourceVersions: the resume
//!   version of every event of a batch is L.
//! * R < N < L: the client disconnected later in the batch, or has N from elsewhere (the upstream
//!   or another Weir). The first has received the deletions; the second may have missed those in
//!   (N, L]. The two cannot be distinguished, so neither may resume: it receives a 410, with L as
//!   the oldest resourceVersion to start from. The same applies to an empty batch: an object that
//!   was created before N and deleted after it is in neither list.
//! * N ≥ L: the client has received the whole batch.
//!
//! A client that disconnected within the batch may resume at the upstream, or at another Weir that
//! had no such relist. It receives the events after N one by one. Some are for objects that it no
//! longer has, which does no harm. The objects that it still has are in the list, so it receives
//! their current state unless it already has it. This is why events for objects that leave a
//! selector come first too. Otherwise consider an object that left the selector before N and
//! changed again after N: its event in the batch would come after N, and the upstream has no event
//! after N that removes it from the client.
//!
//! A watch that started at a future resourceVersion R < N < L, and has delivered nothing yet, is in
//! the second case and ends. A watch in the middle of the batch is not idle, so no bookmark can
//! claim a resourceVersion in (R, L).
//!
//! **Watches end**, and the history starts again at L, if an object's bytes changed without a new
//! resourceVersion (the events in the history were encoded from the old bytes), if the list
//! contradicts a continuous history (an object unknown at R with a resourceVersion not above R), or
//! if the batch is larger than the history's limit.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::event::{Event, Now};
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::store::Store;
use crate::codec::object::Object;

/// Why watches cannot continue across a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// An object has other bytes under the same resourceVersion: its definition or the release of
    /// the upstream changed.
    #[error("objects changed without a new resourceVersion")]
    ChangedBytes,
    /// The list cannot follow from the cached state.
    #[error("the list contradicts the cached state")]
    Inconsistent,
    /// The changes are larger than the history's limit in bytes.
    #[error("the changes exceed the history's size limit")]
    TooHeavy,
    /// The cached state became newer than the list while the list was being read.
    #[error("the cached state is newer than the list")]
    Overtaken,
}

/// The differences between a state and a list.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The removed objects, in key order.
    removed: Vec<Arc<Object>>,
    /// The new and changed objects with their previous state, by ascending resourceVersion.
    upserted: Vec<(Arc<Object>, Option<Arc<Object>>)>,
}

impl Difference {
    /// Compares a state with a list.
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
        // With equal resourceVersions nothing can differ.
        if to <= from && !difference.removed.is_empty() {
            return Err(Discontinuity::Inconsistent);
        }
        difference.upserted.sort_by_key(|(object, _)| object.resource_version);
        Ok(difference)
    }

    /// Applies the differences to `store` and returns the events of the batch in order.
    pub(super) fn apply(self, store: &mut Store, from: ResourceVersion, now: Now) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.removed.len() + self.upserted.len());
        for object in self.removed {
            store.remove(&object.key);
            events.push(Event::deleted_by_relist(object, from, now));
        }
        for (object, previous) in &self.upserted {
            let Some(previous) = previous else { continue };
            // Filters use only the key, `attrs` and the uid, and an object of another uid is not
            // here: it is removed and new.
            if previous.attrs() != object.attrs() {
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
            return if Arc::ptr_eq(before, after) || before.body() == after.body() {
                Ok(())
            } else {
                Err(Discontinuity::ChangedBytes)
            };
        }
        let at = after.resource_version;
        if at <= *range.start() || at > *range.end() {
            return Err(Discontinuity::Inconsistent);
        }
        let replaced = before.filter(|before| before.uid() != after.uid());
        self.removed.extend(replaced.cloned());
        let previous = if replaced.is_some() { None } else { before.cloned() };
        self.upserted.push((Arc::clone(after), previous));
        Ok(())
    }
}

/// Returns an error if the batch is larger than the history's limit in bytes.
pub(super) fn check_weight(events: &[Event], limits: &WindowLimits) -> Result<(), Discontinuity> {
    let weight = events.iter().fold(0_usize, |sum, event| sum.saturating_add(event.weight()));
    if weight > limits.bytes_max { Err(Discontinuity::TooHeavy) } else { Ok(()) }
}

/// The events of one relist within a history.
#[derive(Clone, Copy, Debug)]
pub struct RelistSpan {
    /// The number of the batch's first event.
    pub first: u64,
    /// The number after its last event.
    pub end: u64,
    /// The resourceVersion before the relist (R in the file's description).
    pub from: ResourceVersion,
    /// The resourceVersion of the list (L in the file's description).
    pub to: ResourceVersion,
}

impl RelistSpan {
    /// Returns whether the event with number `seq` belongs to the batch.
    pub fn contains(&self, seq: u64) -> bool {
        (self.first..self.end).contains(&seq)
    }

    /// Returns whether the cache cannot know which events a client at `resource_version` has
    /// received.
    pub fn is_ambiguous(&self, resource_version: ResourceVersion) -> bool {
        self.from < resource_version && resource_version < self.to
    }
}
