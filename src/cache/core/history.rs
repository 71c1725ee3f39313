//! The sliding window of recent events (semantics.md §5.9).
//!
//! Every event has a sequence number, one more than the event before it; numbers never restart within a
//! cache's life, so a watcher's position stays meaningful over a relist. The window's capacity follows the
//! upstream's rule; beside it the window has a bound in bytes, and where they meet, bytes win. One exception
//! to both: the events of the batch being applied stay until the next one, or else a burst heavier than the window
//! would end every watcher that it wakes.
//!
//! After the upstream's history was found rewound, an old client's resourceVersion may be of the lost history: the objects that it stands
//! for are then not those of the present history at that number, and a watch that simply went on there would leave the client wrong for good. So
//! one that lies before this cache's first list and not above what the lost history had reached is answered as too old, although the
//! upstream might still have it. What cannot be told: a number between that list and the present state may come from either history.
//!
//! The events of a relist stand in it as a batch ([`relist`](crate::cache::core::relist) says why a watch may begin where); their place is the
//! list's resourceVersion, whatever their own.
//!
//! Invariants: `events` ascend by place, strictly but within a batch; `events[i]` has the number `first_seq + i`.

use std::sync::Arc;

use imbl::Vector;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::event::Event;
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::now::Now;
use crate::cache::core::refusal::WatchRefusal;
use crate::cache::core::relist::RelistSpan;

/// What a cache's history hands on to the one that begins after a relist.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBaseline {
    /// The number of the next event.
    pub next_seq: u64,
    /// The capacity that the window had grown to, in events; as upstream, a relist keeps it.
    pub capacity: usize,
    /// The resourceVersion of the first list that the cache ever held: what came before it, it never knew.
    pub first_list: Option<ResourceVersion>,
    /// How far the upstream's history had come before it was found rewound; `None` if it never was.
    pub rewound_from: Option<ResourceVersion>,
}

impl HistoryBaseline {
    /// Of a cache that has held nothing yet.
    pub fn new(limits: &WindowLimits) -> Self {
        Self {
            next_seq: 0,
            capacity: limits.events_min.max(1),
            first_list: None,
            rewound_from: None,
        }
    }

    /// Begins on another history of the upstream; the one before had come as far as `lost`.
    pub fn rewind(&mut self, last: ResourceVersion) {
        self.first_list = None;
        self.rewound_from = self.rewound_from.max(Some(last));
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct History {
    events: Vector<Arc<Event>>,
    first_seq: u64,
    capacity: usize,
    weight: usize,
    listed: ResourceVersion,
    first_list: ResourceVersion,
    rewound_from: Option<ResourceVersion>,
    /// The place of the last event that left the window.
    evicted: Option<ResourceVersion>,
    /// The relists within the window, oldest first.
    relists: Vec<RelistSpan>,
}

impl History {
    /// An empty history after a list of this resourceVersion.
    pub fn new(baseline: HistoryBaseline, listed: ResourceVersion) -> Self {
        Self {
            events: Vector::new(),
            first_seq: baseline.next_seq,
            capacity: baseline.capacity,
            weight: 0,
            listed,
            // A list below the first one means that the upstream's history was rewound: older
            // resourceVersions are known anew, with another meaning.
            first_list: baseline.first_list.map_or(listed, |first| first.min(listed)),
            rewound_from: baseline.rewound_from,
            evicted: None,
            relists: Vec::new(),
        }
    }

    /// What the next history begins on.
    pub fn baseline(&self) -> HistoryBaseline {
        HistoryBaseline {
            next_seq: self.end_seq(),
            capacity: self.capacity,
            first_list: Some(self.first_list),
            rewound_from: self.rewound_from,
        }
    }

    /// The number of the oldest event still held; that of the next one if there is none.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The number that the next event will have.
    pub fn end_seq(&self) -> u64 {
        self.first_seq + self.events.len() as u64
    }

    /// How many events are held.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What the history alone keeps alive, in bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Appends an event, making room first. Events numbered `keep_from` and above stay.
    pub fn push(&mut self, event: Event, keep_from: u64, limits: &WindowLimits) {
        if self.events.len() >= self.capacity {
            self.resize(event.applied(), limits);
        }
        while self.events.len() >= self.capacity && self.evict_before(keep_from) {}
        self.weight = self.weight.saturating_add(event.weight());
        self.events.push_back(Arc::new(event));
    }

    /// Appends the batch of a relist, which stays until the next events come.
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

    /// The resourceVersion of a client that was told everything up to and with this event: its own, or that of the list if it is of a relist.
    pub fn resume_version(&self, seq: u64, event: &Event) -> ResourceVersion {
        self.relist_at(seq).map_or(event.resource_version(), |span| span.to)
    }

    /// The relist of whose batch an event is.
    pub fn relist_at(&self, seq: u64) -> Option<&RelistSpan> {
        self.relists.iter().find(|span| span.contains(seq))
    }

    /// Brings the weight within its bound, as far as events before `keep_from` allow.
    pub fn trim(&mut self, keep_from: u64, limits: &WindowLimits) {
        while self.weight > limits.bytes_max && self.evict_before(keep_from) {}
    }

    /// The events numbered from `from` up to but not including `to`, as far as they are held.
    pub fn events(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Arc<Event>)> {
        let from = from.clamp(self.first_seq, self.end_seq());
        let to = to.clamp(from, self.end_seq());
        let (start, end) = (self.offset(from), self.offset(to));
        (from..to).zip(self.events.focus().narrow(start..end))
    }

    /// Where a watch that knows everything up to `resource_version` goes on: the number of the first event after it.
    pub fn resume(&self, resource_version: ResourceVersion) -> Result<u64, WatchRefusal> {
        let oldest = self.oldest();
        if resource_version < oldest {
            let may_be_lost = self.rewound_from >= Some(resource_version);
            let began_after = resource_version < self.first_list && !may_be_lost;
            return Err(WatchRefusal::Expired { oldest, began_after });
        }
        let ambiguous = self.relists.iter().find(|span| span.is_ambiguous(resource_version));
        if let Some(RelistSpan { to, .. }) = ambiguous {
            return Err(WatchRefusal::Expired { oldest: *to, began_after: false });
        }
        Ok(self.first_after(resource_version))
    }

    /// The number of the first event whose place is after this.
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

    /// The oldest resourceVersion from which a watch can begin (semantics.md §5.8): the list's if nothing was
    /// evicted since, else the one before the oldest event. Of a batch all or nothing is owed.
    fn oldest(&self) -> ResourceVersion {
        match (self.evicted, self.events.front(), self.relist_at(self.first_seq)) {
            (None, ..) => self.listed,
            (Some(evicted), None, _) => evicted,
            (Some(_), Some(_), Some(span)) if span.first == self.first_seq => span.from,
            (Some(_), Some(_), Some(span)) => span.to,
            (Some(_), Some(event), None) => {
                ResourceVersion(event.resource_version().0.saturating_sub(1))
            }
        }
    }

    /// The oldest resourceVersion after which every single event is held.
    pub fn exact_from(&self) -> ResourceVersion {
        let listed = self.relists.last().map_or(self.listed, |span| span.to);
        self.evicted.map_or(listed, |evicted| evicted.max(listed))
    }

    /// Called when the window is full.
    fn resize(&mut self, now: Now, limits: &WindowLimits) {
        let is_older = |event: Option<&Arc<Event>>| {
            event.is_some_and(|event| now.0.saturating_sub(event.applied().0) > limits.age)
        };
        let is_younger = |event: Option<&Arc<Event>>| {
            event.is_some_and(|event| now.0.saturating_sub(event.applied().0) < limits.age)
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
        self.evicted = self.evicted.max(Some(evicted));
        let first_seq = self.first_seq;
        self.relists.retain(|span| first_seq < span.end || evicted < span.to);
        true
    }

    fn offset(&self, seq: u64) -> usize {
        usize::try_from(seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX)
    }
}

/// Relists within a window, empty ones too, which take no room in it: a quiet resource may be listed anew for ever.
const RELISTS_MAX: usize = 16;
