//! The sliding window of recent events (`docs/semantics.md` §5.9). All watchers share it
//! (`docs/decisions/event-delivery.md`).
//!
//! Each event has a sequence number, one more than the event before it. Numbers never restart
//! within a cache's life, so a watcher's position stays valid across a relist. The window's
//! capacity in events follows the rule of kube-apiserver. The window also has a limit in bytes, and
//! the smaller of the two applies. Neither limit applies to the events of the batch that is being
//! applied: they stay until the next batch. Otherwise a burst larger than the window would end
//! every watcher that it wakes.
//!
//! After the upstream's history was found rewound, an old client's resourceVersion may belong to
//! the lost history. The objects at that number then differ from those of the current history, and
//! a watch that resumed there would leave the client with wrong objects forever. Therefore a
//! resourceVersion that is below this cache's first list, and not above the highest one of the lost
//! history, is refused as too old, although the upstream might still have its events. A number
//! between that list and the current state can come from either history; the cache cannot detect
//! which (`docs/decisions/rewound-history.md`).
//!
//! Each event has a resume version: the resourceVersion that a client has after reading all events
//! up to and including this one. It is the event's own, except for the events of a relist, whose
//! resume version is that of the list (`relist.rs` explains from where a watch can resume).
//!
//! Earlier events may be put before the window as long as none has left it (`earlier.rs`). A watch
//! can then start at an older resourceVersion than that of the list. The states before the list are
//! not available, since the earlier events serve watches only.
//!
//! Invariants: `events` ascend by resume version, strictly except within a relist; `events[i]` has
//! the number `first_seq + i`.

use std::sync::Arc;

use imbl::Vector;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::event::{Event, Now};
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::refusal::WatchRefusal;
use crate::cache::core::relist::RelistSpan;

/// The values that a cache's next history inherits when a list or an invalidation replaces the
/// state.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBaseline {
    /// The number of the next event.
    pub next_seq: u64,
    /// The current capacity of the window, in events. A relist keeps it, as in kube-apiserver.
    pub capacity: usize,
    /// The resourceVersion of the first list that the cache ever held. The cache knows nothing
    /// older.
    pub first_list: Option<ResourceVersion>,
    /// The highest resourceVersion of the upstream's history before it was found rewound; `None` if
    /// it never was.
    pub rewound_from: Option<ResourceVersion>,
    /// The size in bytes of all that has left the cache until now.
    pub dropped_bytes: u64,
}

impl HistoryBaseline {
    /// Creates the baseline of a cache that has held nothing yet.
    pub fn new(limits: &WindowLimits) -> Self {
        Self {
            next_seq: FIRST_SEQ,
            capacity: limits.events_min.max(1),
            first_list: None,
            rewound_from: None,
            dropped_bytes: 0,
        }
    }

    /// Starts a new history of the upstream. `last` is the highest resourceVersion of the old one.
    pub fn rewind(&mut self, last: ResourceVersion) {
        self.first_list = None;
        self.rewound_from = self.rewound_from.max(Some(last));
    }
}

/// The recent events of one cache.
#[derive(Clone, Debug)]
pub struct History {
    events: Vector<Arc<Event>>,
    first_seq: u64,
    capacity: usize,
    weight: usize,
    /// The size in bytes of all that has left the cache until now: evicted events, and the states
    /// before a list that replaced them.
    dropped_bytes: u64,
    listed: ResourceVersion,
    /// The resourceVersion after which the window has every event, as long as none was evicted:
    /// that of the list, or an older one once earlier events were put before the window.
    reaches: ResourceVersion,
    first_list: ResourceVersion,
    rewound_from: Option<ResourceVersion>,
    /// The resume version of the last event that left the window.
    evicted: Option<ResourceVersion>,
    /// The relists within the window, oldest first.
    relists: Vec<RelistSpan>,
}

impl History {
    /// Creates an empty history after a list with the resourceVersion `listed`.
    pub fn new(baseline: HistoryBaseline, listed: ResourceVersion) -> Self {
        Self {
            events: Vector::new(),
            first_seq: baseline.next_seq,
            capacity: baseline.capacity,
            weight: 0,
            dropped_bytes: baseline.dropped_bytes,
            listed,
            reaches: listed,
            // A list below the first one means that the upstream's history was rewound. The
            // versions from there on are known again, with another meaning.
            first_list: baseline.first_list.map_or(listed, |first| first.min(listed)),
            rewound_from: baseline.rewound_from,
            evicted: None,
            relists: Vec::new(),
        }
    }

    /// Returns what the next history inherits.
    pub fn baseline(&self) -> HistoryBaseline {
        HistoryBaseline {
            next_seq: self.end_seq(),
            capacity: self.capacity,
            first_list: Some(self.first_list),
            rewound_from: self.rewound_from,
            dropped_bytes: self.end_bytes(),
        }
    }

    /// Returns the number of the oldest event in the window, or of the next one if the window is
    /// empty.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the number that the next event will have.
    pub fn end_seq(&self) -> u64 {
        self.first_seq + self.events.len() as u64
    }

    /// Returns the number of events in the window.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the size in bytes of the data that only the history keeps alive.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the number of events after which a watcher falls out of the window: those that the
    /// window holds, or, until it is full, those that it may hold.
    pub fn window(&self) -> usize {
        if self.evicted.is_some() { self.events.len() } else { self.capacity }
    }

    /// Returns when the oldest event was received that still has all later ones behind it; `None`
    /// if no event has left the window, which then reaches back to the list.
    pub fn oldest_received(&self) -> Option<Now> {
        self.evicted?;
        self.events.front().map(|event| event.received())
    }

    /// Returns the size in bytes of all that has left the cache until now.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Returns what [`Self::dropped_bytes`] will be once all events of the window have left it.
    pub fn end_bytes(&self) -> u64 {
        self.dropped_bytes.saturating_add(self.weight as u64)
    }

    /// Appends an event, after evicting older ones if the window is full. Events from number
    /// `keep_from` on stay.
    pub fn push(&mut self, event: Event, keep_from: u64, limits: &WindowLimits) {
        if self.events.len() >= self.capacity {
            self.resize(event.received(), limits);
        }
        let weight = event.weight();
        let enough = self.weight.saturating_sub(weight);
        for evicted in 0.. {
            let is_heavy = self.weight.saturating_add(weight) > limits.bytes_max;
            let is_full = is_heavy || self.events.len() >= self.capacity;
            let is_enough = evicted >= EVICTIONS_MAX && self.weight <= enough;
            if !is_full || is_enough || self.is_kept(limits) || !self.evict_before(keep_from) {
                break;
            }
        }
        self.weight = self.weight.saturating_add(weight);
        self.events.push_back(Arc::new(event));
    }

    /// Appends the events of a relist. They stay until the next events arrive.
    pub fn relist(
        &mut self,
        batch: Vec<Event>,
        (from, to): (ResourceVersion, ResourceVersion),
        limits: &WindowLimits,
    ) {
        let first = self.end_seq();
        for event in batch {
            self.push(event, first, limits);
        }
        self.trim(first, limits);
        if to > from {
            self.relists.push(RelistSpan { first, end: self.end_seq(), from, to });
        }
        if self.relists.len() > RELISTS_MAX {
            let RelistSpan { end, to, .. } = self.relists.remove(0);
            while self.evict_before(end) {}
            self.evicted = self.evicted.max(Some(to));
        }
    }

    /// Returns the resourceVersion up to which events must be complete to be put before the window.
    /// Returns `None` once events have left the window: it is full, and has no place for older
    /// ones.
    pub fn joins_at(&self) -> Option<ResourceVersion> {
        self.evicted.is_none().then_some(self.reaches)
    }

    /// Puts events before the window: all that follow `from`, up to [`Self::joins_at`]. Keeps the
    /// newest of them as far as the limits allow.
    pub fn prepend(&mut self, earlier: Vec<Event>, from: ResourceVersion, limits: &WindowLimits) {
        self.reaches = from;
        for event in earlier.into_iter().rev() {
            let weight = self.weight.saturating_add(event.weight());
            let is_full = self.events.len() >= limits.events_max || self.first_seq == 0;
            if is_full || weight > limits.bytes_max {
                self.reaches = event.resource_version();
                break;
            }
            self.weight = weight;
            self.first_seq -= 1;
            self.events.push_front(Arc::new(event));
        }
        self.capacity = self.capacity.max(self.events.len().min(limits.events_max));
    }

    /// Returns the resourceVersion of a client that has read everything up to and including this
    /// event: the event's own, or that of the list if the event belongs to a relist.
    pub fn resume_version(&self, seq: u64, event: &Event) -> ResourceVersion {
        self.relist_at(seq).map_or(event.resource_version(), |span| span.to)
    }

    /// Returns the relist to which the event with number `seq` belongs.
    pub fn relist_at(&self, seq: u64) -> Option<&RelistSpan> {
        self.relists.iter().find(|span| span.contains(seq))
    }

    /// Evicts events until the size is within its limit. Events from number `keep_from` on stay.
    pub fn trim(&mut self, keep_from: u64, limits: &WindowLimits) {
        while self.weight > limits.bytes_max
            && !self.is_kept(limits)
            && self.evict_before(keep_from)
        {}
    }

    /// Whether the oldest event stays because a watcher has still to read it.
    fn is_kept(&self, limits: &WindowLimits) -> bool {
        self.first_seq >= limits.unread_from
            && self.weight <= limits.unread_bytes_max.max(limits.bytes_max)
    }

    /// Returns the events numbered from `from` up to but not including `to` that are in the window.
    pub fn events(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Arc<Event>)> {
        let from = from.clamp(self.first_seq, self.end_seq());
        let to = to.clamp(from, self.end_seq());
        let (start, end) = (self.offset(from), self.offset(to));
        (from..to).zip(self.events.focus().narrow(start..end))
    }

    /// Returns whether `resource_version` may belong to a lost history of the upstream, as far as
    /// this cache knows.
    pub fn may_be_lost(&self, resource_version: ResourceVersion) -> bool {
        resource_version < self.first_list && self.rewound_from >= Some(resource_version)
    }

    /// Returns the number of the first event after `resource_version`, where a watch from there
    /// resumes.
    pub fn resume(&self, resource_version: ResourceVersion) -> Result<u64, WatchRefusal> {
        let oldest = self.oldest();
        if resource_version < oldest {
            let began_after =
                resource_version < self.first_list && !self.may_be_lost(resource_version);
            return Err(WatchRefusal::Expired { oldest, began_after });
        }
        let ambiguous = self.relists.iter().find(|span| span.is_ambiguous(resource_version));
        if let Some(RelistSpan { to, .. }) = ambiguous {
            return Err(WatchRefusal::Expired { oldest: *to, began_after: false });
        }
        Ok(self.first_after(resource_version))
    }

    /// Returns the number of the first event whose resume version is above `resource_version`.
    fn first_after(&self, resource_version: ResourceVersion) -> u64 {
        let (mut low, mut high) = (self.first_seq, self.end_seq());
        while low < high {
            let middle = low + (high - low) / 2;
            let event = self.events.get(self.offset(middle));
            if event.is_some_and(|event| self.resume_version(middle, event) <= resource_version) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the oldest resourceVersion from which a watch can start (`docs/semantics.md` §5.8):
    /// that of the list if no event was evicted since, otherwise the one before the oldest event.
    /// The events of a relist are delivered all or not at all.
    pub fn oldest(&self) -> ResourceVersion {
        match (self.evicted, self.events.front(), self.relist_at(self.first_seq)) {
            (None, ..) => self.reaches,
            (Some(evicted), None, _) => evicted,
            (Some(_), Some(_), Some(span)) if span.first == self.first_seq => span.from,
            (Some(_), Some(_), Some(span)) => span.to,
            (Some(_), Some(event), None) => {
                ResourceVersion(event.resource_version().0.saturating_sub(1))
            }
        }
    }

    /// Returns the oldest resourceVersion after which the window has every single event.
    pub fn exact_from(&self) -> ResourceVersion {
        let listed = self.relists.last().map_or(self.listed, |span| span.to);
        self.evicted.map_or(listed, |evicted| evicted.max(listed))
    }

    /// Grows or shrinks the capacity. Called when the window is full.
    fn resize(&mut self, now: Now, limits: &WindowLimits) {
        let is_older = |event: Option<&Arc<Event>>| {
            event.is_some_and(|event| now.0.saturating_sub(event.received().0) > limits.age)
        };
        let is_younger = |event: Option<&Arc<Event>>| {
            event.is_some_and(|event| now.0.saturating_sub(event.received().0) < limits.age)
        };
        let quarter = self.events.len().saturating_sub((self.capacity / 4).max(1));
        if is_younger(self.events.front()) {
            let grown = self.capacity.saturating_mul(2).min(limits.events_max);
            self.capacity = self.capacity.max(grown);
        } else if is_older(self.events.get(quarter)) {
            let shrunk = (self.capacity / 2).max(limits.events_min).max(1);
            self.capacity = self.capacity.min(shrunk);
        }
    }

    fn evict_before(&mut self, keep_from: u64) -> bool {
        if self.first_seq >= keep_from {
            return false;
        }
        let Some(event) = self.events.pop_front() else { return false };
        let evicted = self.resume_version(self.first_seq, &event);
        self.first_seq += 1;
        self.weight = self.weight.saturating_sub(event.weight());
        self.dropped_bytes = self.dropped_bytes.saturating_add(event.weight() as u64);
        self.evicted = self.evicted.max(Some(evicted));
        let first_seq = self.first_seq;
        self.relists.retain(|span| first_seq < span.end || evicted < span.to);
        true
    }

    fn offset(&self, seq: u64) -> usize {
        usize::try_from(seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX)
    }
}

/// The number of a cache's first event. Earlier ones get lower numbers; there is place for more of
/// them than any window holds.
pub(super) const FIRST_SEQ: u64 = 1 << 40;
/// The events that leave the window for one that enters, or more that weigh as much: more than one,
/// so that a window shrinks that held unread events, and few, since the writer's lock is held.
const EVICTIONS_MAX: usize = 256;
/// The limit of relists within a window. Empty ones count too: they take no space in the window, so
/// the window alone would not bound them while a quiet resource is listed again and again.
const RELISTS_MAX: usize = 16;
