//! Random histories, compared with a naive model.
//!
//! The model stores the state before each event, by event number, and computes from them what each
//! watcher must receive. It shares no code with the cache. It reads only one value from the cache:
//! the number of the oldest event in the window. Other tests cover the size of the window.

mod steps;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use self::steps::{Audience, LogEvent, ModelFilter, PodChange, Start, Step, any_pod, any_step};
use super::*;
use crate::cache::core::field_index::VALUE_BYTES;
use crate::cache::core::history::FIRST_SEQ;
use crate::cache::core::watch_cache::{Change, Discontinuity, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

type Pods = BTreeMap<String, Pod>;

/// A watcher of the cache, and the model's knowledge of it.
struct ModelWatch {
    watcher: Watcher,
    filter: ModelFilter,
    /// The objects that the client had when the watch started; unknown for a start in the future.
    objects_at_start: Option<Pods>,
    /// Events up to this resourceVersion are not delivered.
    skip_through: u64,
    /// The number of the first event that the watcher may receive, and the number after the last
    /// one once the watch was ended.
    from: usize,
    to: Option<usize>,
    cause: EndCause,
    /// The number of the oldest event in the window when the watch was ended.
    first_held: Option<usize>,
    initial: Vec<Delivery>,
    /// The end of the log when the watch started. The events before it are replayed whether they
    /// match the filter or not.
    log_end_at_start: usize,
    /// The end of the log when the watcher was last idle.
    log_end_when_idle: usize,
    deliveries: Vec<Delivery>,
    ended: bool,
}

struct Model {
    cache: WatchCache,
    now: u64,
    ready: bool,
    resource_version: u64,
    first_list: Option<u64>,
    listed: u64,
    listed_at: usize,
    pods: Pods,
    log: Vec<LogEvent>,
    /// The state before each event.
    before: Vec<Pods>,
    watches: Vec<ModelWatch>,
    relists: Vec<Relist>,
}

/// The events of a relist in the log, and the resourceVersions before and after it.
struct Relist {
    first: usize,
    end: usize,
    from: u64,
    to: u64,
}

impl Model {
    fn new(events_min: usize, bytes_max: usize) -> Self {
        Self {
            cache: cache_of(events_min, events_min * 2, bytes_max),
            now: 0,
            ready: false,
            resource_version: 0,
            first_list: None,
            listed: 0,
            listed_at: 0,
            pods: Pods::new(),
            log: Vec::new(),
            before: Vec::new(),
            watches: Vec::new(),
            relists: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Apply(pod_changes) => self.apply(pod_changes),
            Step::Replace(pods, increase) => self.replace(pods, increase),
            Step::Relist(pods, increase) => self.relist(pods, increase),
            Step::Invalidate => {
                self.end_all(EndCause::Stopped);
                self.cache.invalidate(EndCause::Stopped);
                self.ready = false;
            }
            Step::AdvanceClock(seconds) => self.now += seconds,
            Step::Watch(filter, start) => self.watch(filter, start),
            Step::Read(which, max_bytes) => self.read(which, max_bytes),
            Step::Drop(which) => {
                if !self.watches.is_empty() {
                    self.watches.swap_remove(which % self.watches.len());
                }
            }
        }
        let state = self.cache.state();
        assert_eq!(state.is_some(), self.ready);
        let Some(state) = state else { return };
        assert_eq!(state.resource_version().0, self.resource_version);
        let selected = state.select(&WatchFilter::default());
        let keys: Vec<&str> = selected.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(keys, self.pods.keys().collect::<Vec<_>>());
        let weight: usize = selected.iter().map(|object| object.weight()).sum();
        let nodes: BTreeSet<&[u8]> =
            selected.iter().map(|object| object.attrs().field(node_field())).collect();
        let indexed = nodes.len() * VALUE_BYTES;
        assert_eq!(weight + indexed + state.history().weight(), state.weight());
        assert_eq!(self.cache.watchers(), self.watches.len());
    }

    fn apply(&mut self, pod_changes: Vec<PodChange>) {
        let mut changes = Vec::new();
        let mut reached = self.resource_version;
        for change in pod_changes {
            let (PodChange::Upsert(_, increase)
            | PodChange::Delete(_, increase)
            | PodChange::Progress(increase)) = change;
            let at = reached + increase;
            changes.push(match &change {
                PodChange::Upsert(pod, _) => Change::Upsert(pod.at(at).object()),
                PodChange::Delete(pod, _) => Change::Delete(self.deleted_pod(pod, at).object()),
                PodChange::Progress(_) => Change::Progress(ResourceVersion(at)),
            });
            if !self.ready || increase == 0 {
                continue;
            }
            reached = at;
            match change {
                PodChange::Upsert(pod, _) => self.log_event(Some(pod.at(at)), None, at),
                PodChange::Delete(pod, _) => {
                    if self.pods.contains_key(&pod.key()) {
                        self.log_event(None, Some(self.deleted_pod(&pod, at)), at);
                    }
                }
                PodChange::Progress(_) => {}
            }
        }
        self.resource_version = reached;
        self.cache.apply(changes, at(self.now));
    }

    /// The pod of a DELETED event: the current pod, with another phase to show which of the two
    /// objects was encoded.
    fn deleted_pod(&self, pod: &Pod, at: u64) -> Pod {
        let mut last = self.pods.get(&pod.key()).unwrap_or(pod).at(at);
        "Deleted".clone_into(&mut last.phase);
        last
    }

    fn log_event(&mut self, new: Option<Pod>, last: Option<Pod>, resource_version: u64) {
        self.before.push(self.pods.clone());
        let key = new.iter().chain(&last).next().unwrap().key();
        let old = match &new {
            Some(new) => self.pods.insert(key, new.clone()),
            None => self.pods.remove(&key),
        };
        let (resume_version, audience) = (resource_version, Audience::All);
        self.log.push(LogEvent { resource_version, resume_version, audience, old, new, last });
    }

    fn relist(&mut self, news: Vec<(Pod, u64)>, increase: u64) {
        let from = self.resource_version;
        let mut to = from;
        let mut pods = pods_by_key(self.pods.values().filter(|pod| pod.node != "n1").cloned());
        for (pod, increase) in news {
            to += increase;
            pods.insert(pod.key(), pod.at(to));
        }
        // With equal resourceVersions nothing can differ.
        to += if pods == self.pods { increase } else { increase.max(1) };
        let objects: Vec<_> = pods.values().rev().map(Pod::object).collect();
        let first_held = self.first_held();
        let result = self.cache.relist(objects, ResourceVersion(to), at(self.now));
        let before = std::mem::replace(&mut self.pods, pods);
        self.resource_version = to;
        if self.ready && result.is_ok() {
            let first = self.log.len();
            self.log_batch(before, from, to);
            assert_eq!(Ok(self.log.len() - first), result);
            self.relists.push(Relist { first, end: self.log.len(), from, to });
            self.end(first, first_held, EndCause::Relist, |after| from < after && after < to);
        } else {
            assert!(matches!(result, Ok(0) | Err(Discontinuity::TooHeavy)), "{result:?}");
            self.end(self.log.len(), first_held, EndCause::Relist, |_| true);
            self.start_from_list(to);
        }
    }

    /// Logs the removed pods and the pods that leave a selector, at `from`; then the new and
    /// changed pods by resourceVersion.
    fn log_batch(&mut self, before: Pods, from: u64, to: u64) {
        let replaced = |old: &Pod, new: &Pod| old.uid != new.uid;
        let event = |audience, resource_version, old: Option<&Pod>, new: Option<&Pod>, last| {
            let (old, new) = (old.cloned(), new.cloned());
            LogEvent { resource_version, resume_version: to, audience, old, new, last }
        };
        let mut batch = Vec::new();
        let now = &self.pods;
        for (key, old) in &before {
            if now.get(key).is_none_or(|new| replaced(old, new)) {
                batch.push(event(Audience::All, from, Some(old), None, Some(old.at(from))));
            }
        }
        let mut upserted: Vec<_> =
            now.iter().filter(|(key, new)| before.get(*key) != Some(new)).collect();
        upserted.sort_by_key(|(_, new)| new.resource_version);
        let unreplaced = |key, new| before.get(key).filter(|old| !replaced(old, new));
        for (key, new) in &upserted {
            if let Some(old) = unreplaced(*key, new)
                && (&old.app, &old.node) != (&new.app, &new.node)
            {
                batch.push(event(Audience::Leaving, from, Some(old), Some(new), None));
            }
        }
        for (key, new) in &upserted {
            let old = unreplaced(*key, new);
            batch.push(event(Audience::Remaining, new.resource_version, old, Some(new), None));
        }
        self.before.extend(batch.iter().map(|_| before.clone()));
        self.log.extend(batch);
    }

    fn replace(&mut self, pods: Vec<Pod>, increase: u64) {
        self.resource_version += increase;
        let kept = self.pods.values().filter(|pod| pod.node != "n1").cloned();
        let listed = self.resource_version;
        self.pods = pods_by_key(kept.chain(pods.into_iter().map(|pod| pod.at(listed))));
        let objects: Vec<_> = self.pods.values().rev().map(Pod::object).collect();
        self.end_all(EndCause::Relist);
        self.cache.replace(objects, ResourceVersion(listed));
        self.start_from_list(listed);
    }

    fn start_from_list(&mut self, listed: u64) {
        self.ready = true;
        (self.listed, self.listed_at) = (listed, self.log.len());
        self.first_list = Some(self.first_list.unwrap_or(listed));
        self.relists.clear();
    }

    /// Call this before the same call on the cache.
    fn end_all(&mut self, cause: EndCause) {
        self.end(self.log.len(), self.first_held(), cause, |_| true);
    }

    /// Ends the watches for whose `skip_through` `ends` returns true. It is zero for a watch that
    /// did not start in the future.
    fn end(&mut self, to: usize, first_held: usize, cause: EndCause, ends: impl Fn(u64) -> bool) {
        for watch in self.watches.iter_mut().filter(|watch| watch.to.is_none()) {
            if ends(watch.skip_through) {
                (watch.to, watch.cause) = (Some(to), cause);
                watch.first_held = Some(first_held);
            }
        }
    }

    /// The number of the oldest event in the window, as read from the cache.
    fn first_held(&self) -> usize {
        let first = self.cache.state().map_or(FIRST_SEQ, |state| state.history().first_seq());
        usize::try_from(first - FIRST_SEQ).unwrap()
    }

    fn watch(&mut self, filter: ModelFilter, start: Start) {
        let start = match start {
            Start::Initial => WatchStart::InitialEvents,
            Start::Now => WatchStart::Now,
            Start::After(back) => WatchStart::After(ResourceVersion(
                self.resource_version.saturating_add_signed(back),
            )),
        };
        let watcher = self.cache.watch(filter.filter(), start);
        if let Some(refusal) = self.refusal(start) {
            assert_eq!(watcher.err(), Some(refusal));
            return;
        }
        let end = self.log.len();
        let (from, after) = match start {
            WatchStart::InitialEvents | WatchStart::Now => (end, 0),
            WatchStart::After(ResourceVersion(after)) => {
                let events = &self.log[self.listed_at..];
                let delivered = events.iter().filter(|event| event.resume_version <= after).count();
                (self.listed_at + delivered, after)
            }
        };
        let objects_at_start = matching(self.before.get(from).unwrap_or(&self.pods), &filter);
        let mut initial = Vec::new();
        if start == WatchStart::InitialEvents {
            initial.extend(
                objects_at_start
                    .values()
                    .map(|pod| Delivery::Event("ADDED".to_owned(), pod.clone())),
            );
            initial.push(Delivery::InitialEventsEnd(self.resource_version));
        }
        self.watches.push(ModelWatch {
            watcher: watcher.unwrap(),
            filter,
            objects_at_start: (after <= self.resource_version).then_some(objects_at_start),
            skip_through: if after > self.resource_version { after } else { 0 },
            from,
            to: None,
            cause: EndCause::Slow,
            first_held: None,
            initial,
            log_end_at_start: end,
            log_end_when_idle: from,
            deliveries: Vec::new(),
            ended: false,
        });
    }

    fn refusal(&self, start: WatchStart) -> Option<WatchRefusal> {
        if !self.ready {
            return Some(WatchRefusal::NotReady);
        }
        let WatchStart::After(after) = start else { return None };
        let first = self.first_held();
        let relist = self.relists.iter().find(|relist| (relist.first..relist.end).contains(&first));
        let oldest = match (self.log.get(first), relist) {
            (Some(_), Some(relist)) if first > self.listed_at && first == relist.first => {
                relist.from
            }
            (Some(_), Some(relist)) if first > self.listed_at => relist.to,
            (Some(event), None) if first > self.listed_at => event.resource_version - 1,
            _ => self.listed,
        };
        let began_after = after.0 < self.first_list.unwrap();
        let oldest = ResourceVersion(oldest);
        if after < oldest {
            return Some(WatchRefusal::Expired { oldest, began_after });
        }
        let ambiguous =
            self.relists.iter().find(|relist| relist.from < after.0 && after.0 < relist.to)?;
        let oldest = ResourceVersion(ambiguous.to);
        Some(WatchRefusal::Expired { oldest, began_after: false })
    }

    fn read(&mut self, which: usize, max_bytes: Option<usize>) {
        if self.watches.is_empty() {
            return;
        }
        let which = which % self.watches.len();
        let first_held = self.first_held();
        let watch = &mut self.watches[which];
        let stop = match max_bytes {
            Some(max_bytes) => read_batch(&mut watch.watcher, max_bytes, &mut watch.deliveries),
            None => Some(read_all(&mut watch.watcher, &mut watch.deliveries)),
        };
        let to = watch.to.unwrap_or(self.log.len());
        let first = watch.first_held.unwrap_or(first_held);
        let expected = self.log[watch.from..to]
            .iter()
            .filter(|event| event.resume_version > watch.skip_through)
            .filter_map(|event| event.delivery(&watch.filter));
        let expected: Vec<Delivery> = watch.initial.iter().cloned().chain(expected).collect();
        assert_eq!(watch.deliveries, expected[..watch.deliveries.len()], "{:?}", watch.filter);
        match stop {
            None => {}
            Some(Stop::Idle(claimed)) => {
                assert!(watch.to.is_none(), "idle, but its watch was ended");
                assert_eq!(watch.deliveries.len(), expected.len(), "idle with pending events");
                assert_eq!(claimed, self.resource_version);
                watch.log_end_when_idle = self.log.len();
                if let Some(objects) = watch.objects() {
                    assert_eq!(objects, matching(&self.pods, &watch.filter));
                }
            }
            Some(Stop::Ended(EndCause::Slow)) => {
                // It keeps its initial state in memory, parts of which the cache has dropped.
                let is_reading_state = watch.deliveries.len() < watch.initial.len();
                let outrun = is_reading_state && (watch.to.is_some() || watch.from < first);
                if !watch.ended && !outrun {
                    // The watch may end as slow only if an unread event that matches left the
                    // window.
                    let missed =
                        (watch.log_end_when_idle..to).zip(&self.log[watch.log_end_when_idle..to]);
                    let wakes = |event: &LogEvent| event.delivery(&watch.filter).is_some();
                    let mut expected =
                        missed.filter(|(at, event)| *at < watch.log_end_at_start || wakes(event));
                    assert!(expected.next().is_some_and(|(at, _)| at < first));
                }
                watch.ended = true;
            }
            Some(Stop::Ended(cause)) => {
                assert_eq!((Some(to), cause), (watch.to, watch.cause));
                assert_eq!(watch.deliveries.len(), expected.len(), "ended with pending events");
                watch.ended = true;
            }
        }
    }
}

impl ModelWatch {
    /// Returns the objects of a client that applied all deliveries to its objects at the start.
    fn objects(&self) -> Option<Pods> {
        let at_start = self.objects_at_start.clone()?;
        let mut pods = if self.initial.is_empty() { at_start } else { Pods::new() };
        for delivery in &self.deliveries {
            let Delivery::Event(event, pod) = delivery else { continue };
            let old = if event == "DELETED" {
                pods.remove(&pod.key())
            } else {
                pods.insert(pod.key(), pod.clone())
            };
            assert_eq!(old.is_none(), event == "ADDED", "{event} of {}", pod.key());
        }
        Some(pods)
    }
}

fn matching(pods: &Pods, filter: &ModelFilter) -> Pods {
    pods_by_key(pods.values().filter(|pod| filter.matches(pod)).cloned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn watchers_receive_what_the_model_predicts(
        events_min in 1..12_usize,
        bytes_max in prop_oneof![Just(usize::MAX), 2_000..20_000_usize],
        first in vec(any_pod(), 0..8),
        steps in vec(any_step(), 1..80),
    ) {
        let mut model = Model::new(events_min, bytes_max);
        model.step(Step::Replace(first, 5));
        for step in steps {
            model.step(step);
        }
        for which in 0..model.watches.len() {
            model.step(Step::Read(which, None));
        }
        model.watches.clear();
        assert!(model.cache.indexes_are_empty());
    }
}
