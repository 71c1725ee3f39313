//! The guarantees, each checked by a look-up in the log of writes. README.md names them all.
//!
//! Kubernetes' answers carry their place in a total order, so nothing is searched: a list at L is
//! compared with the state at L, a watch with the writes after its start.

mod definition;
mod expiry;
mod load;
mod page;
mod protobuf;
mod read;
mod resume;
mod stream;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use self::expiry::RetainedHistory;
use self::load::Load;
pub(crate) use self::load::{Ending, SentRequest, Served};
pub(crate) use self::page::Form;
pub(crate) use self::read::{ReadAt, ReadOperation, Walk};
pub(crate) use self::stream::{Notice, Start};
use crate::plan::Plan;
use crate::resources::{NAMESPACES, Resource, Selection};
use crate::trace::Trace;
use crate::write_log::{Moment, Version, WriteLog};

/// Checks what clients were answered. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Checker(Arc<Mutex<Inner>>);

struct Inner {
    write_log: WriteLog,
    trace: Trace,
    /// The highest resourceVersion that each cache has shown. Each form of a resource has a cache
    /// of its own.
    floors: BTreeMap<FloorKey, u64>,
    /// The last restart of each target.
    restarts: BTreeMap<String, Restart>,
    /// Whether a cache may begin with a state from before its restart: what it lists from can lag.
    may_begin_late: bool,
    /// Namespaces may have caches of their own.
    has_scopes: bool,
    violations: Vec<Violation>,
    counts: BTreeMap<&'static str, u64>,
    /// Weir keeps streams through a relist: they get the difference of two states.
    keeps_streams: bool,
    /// A Weir reads from another one that keeps few events, and so lists again when its watch
    /// breaks.
    reads_short_history: bool,
    /// When a cache last had a cause to relist, or a watch was answered that its
    /// resourceVersion has expired.
    last_cause: Option<Instant>,
    /// The revision up to which a cache may have listed again for it.
    relisted_until: u64,
    /// How far back every cache can go.
    kept: RetainedHistory,
    /// The requests of a crowd.
    load: Load,
}

/// The key of the revision that a cache has shown: target, resource, form, epoch and namespace,
/// `None` for the cluster.
type FloorKey = (String, &'static str, Form, usize, Option<&'static str>);

/// A restart of a target.
#[derive(Clone, Copy)]
struct Restart {
    /// When the Weir before it was ended.
    ended: Moment,
    started: Instant,
}

/// A guarantee that did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The guarantee, by its name in README.md.
    pub(crate) guarantee: &'static str,
    pub(crate) what: String,
}

impl Checker {
    pub(crate) fn new(mut write_log: WriteLog, trace: Trace, plan: &Plan) -> Self {
        let began = write_log.now();
        Self(Arc::new(Mutex::new(Inner {
            write_log,
            trace,
            floors: BTreeMap::new(),
            restarts: BTreeMap::new(),
            may_begin_late: plan.in_a_row || plan.has_lag(),
            violations: Vec::new(),
            counts: BTreeMap::new(),
            has_scopes: plan.narrow,
            keeps_streams: plan.keeps_streams,
            reads_short_history: plan.in_a_row && plan.history_bytes.is_some(),
            last_cause: None,
            relisted_until: 0,
            kept: RetainedHistory::new(plan, began),
            load: Load::default(),
        })))
    }

    /// Returns the present moment.
    pub(crate) fn now(&self) -> Moment {
        let mut inner = self.0.lock();
        let now = inner.write_log.now();
        inner.kept.note(now);
        now
    }

    /// Notes that a fault has struck, or is over; `true` if a cache can lose its place by it.
    pub(crate) fn struck(&self, loses_history: bool) {
        if loses_history {
            let mut inner = self.0.lock();
            inner.last_cause = Some(Instant::now());
            inner.kept.lose();
            inner.write_log.delay_notice();
        }
    }

    /// Whether a cache may list again for what a fault has lost. A reflector waits for up to a
    /// minute after a 410 that follows another, and then so does one of a Weir that reads from it.
    pub(crate) fn has_cause_to_relist(&self) -> bool {
        self.0.lock().has_cause_to_relist(Instant::now())
    }

    /// Reports a guarantee that did not hold.
    pub(crate) fn violated(&self, guarantee: &'static str, what: &str) {
        self.0.lock().violated(guarantee, what.to_owned());
    }

    /// Counts that a guarantee was checked.
    pub(crate) fn checked(&self, guarantee: &'static str) {
        self.0.lock().checked(guarantee);
    }

    /// Returns the violations that were found.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.0.lock().violations.clone()
    }

    /// Returns the revisions of the present epoch.
    pub(crate) fn present_revisions(&self) -> std::ops::RangeInclusive<u64> {
        let mut inner = self.0.lock();
        let now = inner.write_log.now();
        inner.write_log.epoch(now.epoch).began_at..=now.revision
    }

    /// Returns how often each guarantee was checked.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().counts.clone()
    }

    /// Returns the highest resourceVersion that the caches which may answer a selection have shown
    /// at a target, in the present epoch; at least that at which the target began.
    pub(crate) fn floor(&self, target: &str, selection: &Selection, form: Form) -> u64 {
        let mut inner = self.0.lock();
        let epoch = inner.write_log.now().epoch;
        let scope = inner.scope(selection);
        let concerns = |floor_key: &FloorKey| {
            let same = floor_key.0 == target && floor_key.1 == selection.resource.storage;
            let overlap = scope.is_none() || floor_key.4.is_none() || floor_key.4 == scope;
            same && floor_key.2 == form && floor_key.3 == epoch && overlap
        };
        let floors = inner.floors.iter().filter(|(key, _)| concerns(key));
        let restart = inner.restarts.get(target).filter(|_| !inner.may_begin_late);
        let ended = restart.map(|restart| restart.ended).filter(|ended| ended.epoch == epoch);
        let began = ended.map_or(0, |ended| ended.revision);
        floors.map(|(_, revision)| *revision).max().unwrap_or(0).max(began)
    }

    /// Returns the objects of a selection at a revision, by key, as a watch shows them.
    pub(crate) fn store_at(
        &self,
        selection: &Selection,
        epoch: usize,
        revision: u64,
    ) -> BTreeMap<String, Box<[u8]>> {
        let inner = self.0.lock();
        let state = inner.write_log.epoch(epoch).state(selection, revision);
        state.iter().map(|version| (version.key.to_string(), (*version.json).into())).collect()
    }

    /// Returns the revision of the last write up to a moment that every cache of a selection has
    /// received: one of a single namespace learns of the others' writes by bookmarks alone.
    pub(crate) fn last_received(&self, selection: &Selection, until: Moment) -> u64 {
        let inner = self.0.lock();
        let scope = inner.scope(selection);
        let is_received = |write: &&Version| {
            let namespace = write.key.split_once('/').map(|(namespace, _)| namespace);
            write.revision <= until.revision && (scope.is_none() || scope == namespace)
        };
        let log = inner.write_log.epoch(until.epoch).log(selection.resource);
        let last = log.and_then(|log| log.writes.iter().rev().find(is_received));
        last.map_or(0, |write| write.revision)
    }

    /// Returns the namespace and the name of the object of a resource that was written last.
    pub(crate) fn last_written(&self, resource: &Resource) -> Option<(&'static str, String)> {
        let mut inner = self.0.lock();
        let epoch = inner.write_log.now().epoch;
        let last = inner.write_log.epoch(epoch).log(resource)?.writes.last()?;
        let (namespace, name) = last.key.split_once('/')?;
        let namespace = NAMESPACES.into_iter().find(|one| *one == namespace)?;
        Some((namespace, name.to_owned()))
    }

    /// Checks the objects that a client received against the state that its stream claims (W2).
    pub(crate) fn store(
        &self,
        target: &str,
        selection: &Selection,
        begun: Moment,
        revision: u64,
        store: &BTreeMap<String, Box<[u8]>>,
    ) {
        let mut inner = self.0.lock();
        inner.write_log.now();
        inner.checked("W2");
        let mut problem = String::new();
        for epoch in inner.write_log.candidates(begun) {
            let state = inner.write_log.epoch(epoch).state(selection, revision);
            match store_difference(&state, store) {
                None => return,
                Some(difference) => problem = difference,
            }
        }
        let path = selection.path("");
        inner.violated("W2", format!("{path} from {target} at {revision}: {problem}"));
    }

    /// Forgets what the caches of a target have shown: another one starts in its place, which was
    /// ended at `ended`.
    pub(crate) fn forget(&self, target: &str, ended: Moment) {
        let mut inner = self.0.lock();
        inner.floors.retain(|(floor_target, ..), _| floor_target != target);
        inner.restarts.insert(target.to_owned(), Restart { ended, started: Instant::now() });
    }
}

impl Inner {
    fn violated(&mut self, guarantee: &'static str, what: String) {
        self.trace.line(&format!("VIOLATION {guarantee} {what}"));
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { guarantee, what });
        }
    }

    /// Whether a cache had a cause to relist shortly before `time`.
    fn has_cause_to_relist(&self, time: Instant) -> bool {
        self.last_cause.is_some_and(|cause| cause + RELISTED_WITHIN > time)
    }

    /// W3: whether a stream that began at `begun` may get the difference of two states, which shows
    /// no writes: only where Weir keeps streams, and had a cause to relist.
    fn may_relist(&mut self, begun: Moment, start: Start) -> bool {
        if !self.keeps_streams {
            return false;
        }
        if self.write_log.has_expired() || self.reads_short_history {
            self.last_cause = Some(Instant::now());
        }
        self.checked("W3");
        let now = self.write_log.now();
        if self.has_cause_to_relist(now.time) {
            self.relisted_until = now.revision;
        }
        // The history of a cache has the difference of a list as well.
        let is_before = match start {
            Start::After(start) => start < self.relisted_until,
            // Its cache may be behind.
            Start::Now { .. } => begun.revision < self.relisted_until,
            Start::State { .. } => false,
        };
        self.has_cause_to_relist(begun.time) || is_before
    }

    fn checked(&mut self, guarantee: &'static str) {
        *self.counts.entry(guarantee).or_default() += 1;
    }

    /// Notes what a cache has shown.
    fn raise_floor(
        &mut self,
        target: &str,
        (selection, form): (&Selection, Form),
        epoch: usize,
        revision: u64,
    ) {
        let scope = self.scope(selection);
        let key = (target.to_owned(), selection.resource.storage, form, epoch, scope);
        let floor = self.floors.entry(key).or_default();
        *floor = revision.max(*floor);
    }

    /// Returns the namespace whose cache may answer a selection.
    fn scope(&self, selection: &Selection) -> Option<&'static str> {
        selection.namespace.filter(|_| self.has_scopes)
    }
}

/// Returns the first difference between a state and the objects that a client received.
fn store_difference(state: &[&Version], store: &BTreeMap<String, Box<[u8]>>) -> Option<String> {
    for version in state {
        match store.get(&*version.key) {
            None => return Some(format!("{} is missing", version.key)),
            Some(bytes) if **bytes != *version.json => {
                let answered = String::from_utf8_lossy(bytes);
                return Some(format!(
                    "{} is {answered}, and not of {}",
                    version.key, version.revision
                ));
            }
            Some(_) => {}
        }
    }
    let extra = store.keys().find(|key| !state.iter().any(|version| *version.key == ***key));
    extra.map(|key| format!("{key} should be gone"))
}

/// The largest number of violations that are kept: more say nothing new.
const VIOLATIONS_MAX: usize = 50;
/// How long after its cause a relist may come: a frozen connection is noticed late, and back-offs
/// follow.
const RELISTED_WITHIN: Duration = Duration::from_secs(180);
