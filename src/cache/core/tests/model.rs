//! Random histories against a naive model.
//!
//! The model keeps every state that ever was, by the number of the event that made it, and recomputes from them what
//! each watcher must have been given. It believes the cache in one thing, which event is the oldest in the window
//! (tests of the window's size are elsewhere), and shares no code with it.

mod steps;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use self::steps::{Draft, LogEvent, Part, Simple, Start, Step, any_pod, any_step};
use super::*;
use crate::cache::core::field_index::VALUE_BYTES;
use crate::cache::core::watch_cache::{Change, Discontinuity, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

type Pods = BTreeMap<String, Pod>;

/// One watcher beside what the model knows of it.
struct Watched {
    watcher: Watcher,
    filter: Simple,
    /// What its client had where the watch began; unknown if that was in the future.
    began: Option<Pods>,
    /// The resourceVersion up to which it is silent.
    after: u64,
    /// The numbers of the first event that it may see, and of the one after the last, once its watch was ended.
    from: usize,
    to: Option<usize>,
    cause: EndCause,
    /// The oldest event in the window where its watch was ended.
    first_held: Option<usize>,
    initial: Vec<Seen>,
    /// The end of the log when it began: what it replays before that is owed whether it matches or not.
    asked: usize,
    /// The end of the log when it was last idle.
    idle: usize,
    seen: Vec<Seen>,
    over: bool,
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
    watched: Vec<Watched>,
    relists: Vec<Relist>,
}

/// The events of a relist in the log, and what was held before it and after.
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
            watched: Vec::new(),
            relists: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Apply(drafts) => self.apply(drafts),
            Step::Replace(pods, up) => self.replace(pods, up),
            Step::Relist(pods, up) => self.relist(pods, up),
            Step::Invalidate => {
                self.end_all(EndCause::Stopped);
                self.cache.invalidate(EndCause::Stopped);
                self.ready = false;
            }
            Step::Pass(seconds) => self.now += seconds,
            Step::Watch(filter, start) => self.watch(filter, start),
            Step::Take(which, max_bytes) => self.take(which, max_bytes),
            Step::Drop(which) => {
                if !self.watched.is_empty() {
                    self.watched.swap_remove(which % self.watched.len());
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
        let nodes: BTreeSet<&str> =
            selected.iter().map(|object| object.attrs.field(node_field())).collect();
        let indexed = nodes.len() * VALUE_BYTES;
        assert_eq!(weight + indexed + state.history().weight(), state.weight());
        assert_eq!(self.cache.watchers(), self.watched.len());
    }

    fn apply(&mut self, drafts: Vec<Draft>) {
        let mut changes = Vec::new();
        let mut reached = self.resource_version;
        for draft in drafts {
            let (Draft::Upsert(_, up) | Draft::Delete(_, up) | Draft::Progress(up)) = draft;
            let at = reached + up;
            changes.push(match &draft {
                Draft::Upsert(pod, _) => Change::Upsert(pod.at(at).object()),
                Draft::Delete(pod, _) => Change::Delete(self.last_of(pod, at).object()),
                Draft::Progress(_) => Change::Progress(ResourceVersion(at)),
            });
            if !self.ready || up == 0 {
                continue;
            }
            reached = at;
            match draft {
                Draft::Upsert(pod, _) => self.log_event(Some(pod.at(at)), None, at),
                Draft::Delete(pod, _) => {
                    if self.pods.contains_key(&pod.key()) {
                        self.log_event(None, Some(self.last_of(&pod, at)), at);
                    }
                }
                Draft::Progress(_) => {}
            }
        }
        self.resource_version = reached;
        self.cache.apply(changes, at(self.now));
    }

    /// A pod as its DELETED event carries it: as it is now, but for what shows where the bytes come from.
    fn last_of(&self, pod: &Pod, at: u64) -> Pod {
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
        let (place, part) = (resource_version, Part::Whole);
        self.log.push(LogEvent { resource_version, place, part, old, new, last });
    }

    fn relist(&mut self, news: Vec<(Pod, u64)>, up: u64) {
        let from = self.resource_version;
        let mut to = from;
        let mut pods = pods_by_key(self.pods.values().filter(|pod| pod.node != "n1").cloned());
        for (pod, up) in news {
            to += up;
            pods.insert(pod.key(), pod.at(to));
        }
        // At the same resourceVersion nothing can differ.
        to += if pods == self.pods { up } else { up.max(1) };
        let objects = pods.values().rev().map(Pod::object).collect();
        let first_held = self.first_held();
        let outcome = self.cache.relist(objects, ResourceVersion(to), at(self.now));
        let before = std::mem::replace(&mut self.pods, pods);
        self.resource_version = to;
        if self.ready && outcome.is_ok() {
            let first = self.log.len();
            self.log_batch(before, from, to);
            assert_eq!(Ok(self.log.len() - first), outcome);
            self.relists.push(Relist { first, end: self.log.len(), from, to });
            self.end(first, first_held, EndCause::Relist, |after| from < after && after < to);
        } else {
            assert!(matches!(outcome, Ok(0) | Err(Discontinuity::TooHeavy)), "{outcome:?}");
            self.end(self.log.len(), first_held, EndCause::Relist, |_| true);
            self.begin_at(to);
        }
    }

    /// What is gone, and what leaves the selectors of some, at what was held; then what is new or changed, by age.
    fn log_batch(&mut self, before: Pods, from: u64, to: u64) {
        let replaced = |old: &Pod, new: &Pod| old.uid != new.uid;
        let event = |part, resource_version, old: Option<&Pod>, new: Option<&Pod>, last| {
            let (old, new) = (old.cloned(), new.cloned());
            LogEvent { resource_version, place: to, part, old, new, last }
        };
        let mut batch = Vec::new();
        let now = &self.pods;
        for (key, old) in &before {
            if now.get(key).is_none_or(|new| replaced(old, new)) {
                batch.push(event(Part::Whole, from, Some(old), None, Some(old.at(from))));
            }
        }
        let mut come: Vec<_> =
            now.iter().filter(|(key, new)| before.get(*key) != Some(new)).collect();
        come.sort_by_key(|(_, new)| new.resource_version);
        let known = |key, new| before.get(key).filter(|old| !replaced(old, new));
        for (key, new) in &come {
            if let Some(old) = known(*key, new)
                && (&old.app, &old.node) != (&new.app, &new.node)
            {
                batch.push(event(Part::Leaving, from, Some(old), Some(new), None));
            }
        }
        for (key, new) in &come {
            let old = known(*key, new);
            batch.push(event(Part::Staying, new.resource_version, old, Some(new), None));
        }
        self.before.extend(batch.iter().map(|_| before.clone()));
        self.log.extend(batch);
    }

    fn replace(&mut self, pods: Vec<Pod>, up: u64) {
        self.resource_version += up;
        let kept = self.pods.values().filter(|pod| pod.node != "n1").cloned();
        let listed = self.resource_version;
        self.pods = pods_by_key(kept.chain(pods.into_iter().map(|pod| pod.at(listed))));
        let objects = self.pods.values().rev().map(Pod::object).collect();
        self.end_all(EndCause::Relist);
        self.cache.replace(objects, ResourceVersion(listed), at(self.now));
        self.begin_at(listed);
    }

    fn begin_at(&mut self, listed: u64) {
        self.ready = true;
        (self.listed, self.listed_at) = (listed, self.log.len());
        self.first_list = Some(self.first_list.unwrap_or(listed));
        self.relists.clear();
    }

    /// To be called before the cache's own.
    fn end_all(&mut self, cause: EndCause) {
        self.end(self.log.len(), self.first_held(), cause, |_| true);
    }

    /// Ends those that are silent up to what is said of it; all that are not have zero.
    fn end(&mut self, to: usize, first_held: usize, cause: EndCause, ends: impl Fn(u64) -> bool) {
        for watched in self.watched.iter_mut().filter(|watched| watched.to.is_none()) {
            if ends(watched.after) {
                (watched.to, watched.cause) = (Some(to), cause);
                watched.first_held = Some(first_held);
            }
        }
    }

    /// The number of the oldest event in the window: what the cache itself says.
    fn first_held(&self) -> usize {
        let first = self.cache.state().map_or(0, |state| state.history().first_seq());
        usize::try_from(first).unwrap()
    }

    fn watch(&mut self, filter: Simple, start: Start) {
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
                let held = &self.log[self.listed_at..];
                let known = held.iter().filter(|event| event.place <= after).count();
                (self.listed_at + known, after)
            }
        };
        let began = matching(self.before.get(from).unwrap_or(&self.pods), &filter);
        let mut initial = Vec::new();
        if start == WatchStart::InitialEvents {
            initial.extend(began.values().map(|pod| Seen::Event("ADDED".to_owned(), pod.clone())));
            initial.push(Seen::InitialEventsEnd(self.resource_version));
        }
        self.watched.push(Watched {
            watcher: watcher.unwrap(),
            filter,
            began: (after <= self.resource_version).then_some(began),
            after: if after > self.resource_version { after } else { 0 },
            from,
            to: None,
            cause: EndCause::Slow,
            first_held: None,
            initial,
            asked: end,
            idle: from,
            seen: Vec::new(),
            over: false,
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
        let between = self.relists.iter().find(|it| it.from < after.0 && after.0 < it.to)?;
        let oldest = ResourceVersion(between.to);
        Some(WatchRefusal::Expired { oldest, began_after: false })
    }

    fn take(&mut self, which: usize, max_bytes: Option<usize>) {
        if self.watched.is_empty() {
            return;
        }
        let which = which % self.watched.len();
        let first_held = self.first_held();
        let watched = &mut self.watched[which];
        let rest = match max_bytes {
            Some(max_bytes) => take_once(&mut watched.watcher, max_bytes, &mut watched.seen),
            None => Some(take_all(&mut watched.watcher, &mut watched.seen)),
        };
        let to = watched.to.unwrap_or(self.log.len());
        let first = watched.first_held.unwrap_or(first_held);
        let owed = self.log[watched.from..to]
            .iter()
            .filter(|event| event.place > watched.after)
            .filter_map(|event| event.seen(&watched.filter));
        let owed: Vec<Seen> = watched.initial.iter().cloned().chain(owed).collect();
        assert_eq!(watched.seen, owed[..watched.seen.len()], "{:?}", watched.filter);
        match rest {
            None => {}
            Some(Rest::Idle(claimed)) => {
                assert!(watched.to.is_none(), "idle, but its watch was ended");
                assert_eq!(watched.seen.len(), owed.len(), "idle, but owed more");
                assert_eq!(claimed, self.resource_version);
                watched.idle = self.log.len();
                if let Some(converged) = watched.converged() {
                    assert_eq!(converged, matching(&self.pods, &watched.filter));
                }
            }
            Some(Rest::Ended(EndCause::Slow)) => {
                if !watched.over {
                    // It was slow only if an event that may have concerned it left the window untaken.
                    let missed = (watched.idle..to).zip(&self.log[watched.idle..to]);
                    let concern = |event| watched.filter.may_concern(event);
                    let mut owed =
                        missed.filter(|(at, event)| *at < watched.asked || concern(event));
                    assert!(owed.next().is_some_and(|(at, _)| at < first));
                }
                watched.over = true;
            }
            Some(Rest::Ended(cause)) => {
                assert_eq!((Some(to), cause), (watched.to, watched.cause));
                assert_eq!(watched.seen.len(), owed.len(), "ended, but owed more");
                watched.over = true;
            }
        }
    }
}

impl Watched {
    /// The state that a client has who applied what it was given to what it had.
    fn converged(&self) -> Option<Pods> {
        let began = self.began.clone()?;
        let mut pods = if self.initial.is_empty() { began } else { Pods::new() };
        for seen in &self.seen {
            let Seen::Event(event, pod) = seen else { continue };
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

fn matching(pods: &Pods, filter: &Simple) -> Pods {
    pods_by_key(pods.values().filter(|pod| filter.matches(pod)).cloned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn watchers_are_given_what_a_naive_model_says(
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
        for which in 0..model.watched.len() {
            model.step(Step::Take(which, None));
        }
        model.watched.clear();
        assert!(model.cache.indexes_are_empty());
    }
}
