//! The metrics of one cache.
//!
//! A cluster has hundreds of caches, most of which see no event for hours, and a scrape costs about
//! a microsecond for each series. So a series that would stay 0 in most caches is created when it
//! is first needed: those of events by type, and the states other than `watching`.
//!
//! A cache that is retired removes its series, and another one of the same labels may have begun
//! then. So it neither creates nor removes any from then on.
//!
//! Lock order: `other_state`, then those of the families. `relists` alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge};
use tokio::time::Instant;

use crate::cache::metrics::delay_peak::DelayPeak;
use crate::cache::metrics::families::{Families, with};
use crate::telemetry::metrics::saturating_i64;

/// The metrics of one cache.
#[derive(Debug)]
pub struct CacheSeries {
    families: Arc<Families>,
    labels: [Box<str>; 5],
    objects: IntGauge,
    bytes: IntGauge,
    watchers: IntGauge,
    watchers_behind: IntGauge,
    history_events: IntGauge,
    history_bytes: IntGauge,
    history_oldest: Gauge,
    delay_peak: DelayPeak,
    shown_delay: Gauge,
    /// The time of the last list, as the bits of a floating-point number.
    listed: AtomicU64,
    /// The number and the bytes of events, by [`EventLabel`], from the first event on.
    events: [OnceLock<(IntCounter, IntCounter)>; EventLabel::ALL.len()],
    /// The relists of the cache.
    relists: Mutex<Relists>,
    resource_version: IntGauge,
    last_progress: Gauge,
    checked: Gauge,
    /// 1 in the state [`WATCHING`].
    watching: IntGauge,
    /// The present state, if it is another one. It has a series then. The lock is
    /// held while a series is created or removed that does not exist from the start.
    other_state: Mutex<Option<&'static str>>,
    retired: AtomicBool,
}

/// The lists of a cache after its first one.
#[derive(Debug, Default)]
struct Relists {
    count: u64,
    /// The times of the last ones, the latest last: at most [`RELISTS_MAX`].
    times: VecDeque<Instant>,
}

/// The figures of one cache.
#[derive(Clone, Debug, Default)]
pub struct CacheFigures {
    /// The number of objects.
    pub objects: i64,
    /// The bytes of objects and history.
    pub bytes: i64,
    /// The watches that it serves.
    pub watchers: i64,
    /// Those of them that are far behind.
    pub watchers_behind: i64,
    /// The events of its history.
    pub history_events: i64,
    /// The time from which on a watch may resume; `None` before the first list.
    pub history_oldest: Option<SystemTime>,
    /// The time of the last list, event or bookmark from the upstream.
    pub last_progress: Option<SystemTime>,
    /// The longest delay of an event in the last one to two minutes, in seconds.
    pub lag: f64,
    /// The number of relists.
    pub relists: u64,
    /// The number of relists in the last hour: at most [`RELISTS_MAX`].
    pub relists_of_hour: usize,
}

impl CacheSeries {
    /// Creates the series with the given label values.
    pub(super) fn new(families: &Arc<Families>, labels: [&str; 5]) -> Self {
        Self {
            objects: families.objects.with_label_values(&labels),
            bytes: families.bytes.with_label_values(&labels),
            watchers: families.watchers.with_label_values(&labels),
            watchers_behind: families.watchers_behind.with_label_values(&labels),
            history_events: families.history_events.with_label_values(&labels),
            history_bytes: families.history_bytes.with_label_values(&labels),
            history_oldest: families.history_oldest.with_label_values(&labels),
            delay_peak: DelayPeak::default(),
            shown_delay: families.delay_peak.with_label_values(&labels),
            listed: AtomicU64::default(),
            events: Default::default(),
            relists: Mutex::default(),
            resource_version: families.resource_version.with_label_values(&labels),
            last_progress: families.last_progress.with_label_values(&labels),
            checked: families.checked.with_label_values(&labels),
            watching: families.state.with_label_values(&with(labels, WATCHING)),
            other_state: Mutex::default(),
            labels: labels.map(Box::from),
            families: Arc::clone(families),
            retired: AtomicBool::new(false),
        }
    }

    /// Returns the figures of the cache.
    pub fn figures(&self) -> CacheFigures {
        let relists = self.relists.lock();
        let recent = relists.times.iter().rev().take_while(|time| time.elapsed() < HOUR);
        CacheFigures {
            objects: self.objects.get(),
            bytes: self.bytes.get(),
            watchers: self.watchers.get(),
            watchers_behind: self.watchers_behind.get(),
            history_events: self.history_events.get(),
            history_oldest: system_time(self.history_oldest.get()),
            last_progress: system_time(self.last_progress.get()),
            lag: self.shown_delay.get(),
            relists: relists.count,
            relists_of_hour: recent.count(),
        }
    }

    /// Sets the number of objects, their weight in bytes, and the resourceVersion of the state.
    pub fn contents(&self, objects: usize, bytes: usize, resource_version: u64) {
        self.objects.set(saturating_i64(objects));
        self.bytes.set(saturating_i64(bytes));
        self.resource_version.set(saturating_i64(resource_version % RESOURCE_VERSION_MODULUS));
    }

    /// Sets the number of watchers, and of those that are far behind.
    pub fn watchers(&self, watchers: usize, behind: usize) {
        self.watchers.set(saturating_i64(watchers));
        self.watchers_behind.set(saturating_i64(behind));
    }

    /// Sets the number of events in the history, their bytes, and the age of the oldest of them, if
    /// any has left the history since the last list.
    pub fn history(&self, events: usize, bytes: usize, oldest: Option<Duration>) {
        self.history_events.set(saturating_i64(events));
        self.history_bytes.set(saturating_i64(bytes));
        let listed = || f64::from_bits(self.listed.load(Ordering::Relaxed));
        self.history_oldest
            .set(oldest.map_or_else(listed, |age| seconds_now() - age.as_secs_f64()));
    }

    /// Notes how long after it was read an event was applied, or taken to be written to a watch.
    pub(crate) fn delayed(&self, delay: Duration) {
        self.delay_peak.note(delay);
    }

    /// Shows the longest delay of the last minutes, at a time that does not go back.
    pub(crate) fn show_delay(&self, now: Duration) {
        self.shown_delay.set(self.delay_peak.longest(now).as_secs_f64());
    }

    /// Sets the time of the last list to the present.
    pub fn listed(&self) {
        self.listed.store(seconds_now().to_bits(), Ordering::Relaxed);
    }

    /// Counts an event of the upstream watch, and the bytes of its object.
    pub fn event(&self, label: EventLabel, bytes: usize) {
        let Some(series) = self.events.get(label as usize) else { return };
        if series.get().is_none() {
            let _creates = self.other_state.lock();
            if self.retired.load(Ordering::Relaxed) {
                return;
            }
            series.get_or_init(|| {
                let families = [&self.families.events, &self.families.event_bytes];
                families.map(|family| family.with_label_values(&self.with(label.as_str()))).into()
            });
        }
        if let Some((events, event_bytes)) = series.get() {
            events.inc();
            event_bytes.inc_by(bytes as u64);
        }
    }

    /// Sets the time of the last progress to the present.
    pub fn progress(&self) {
        self.last_progress.set(seconds_now());
    }

    /// Sets the state of the reflector to one of [`STATES`].
    pub fn state(&self, present: &str) {
        let family = &self.families.state;
        let mut other = self.other_state.lock();
        self.watching.set(i64::from(present == WATCHING));
        if *other == Some(present) || self.retired.load(Ordering::Relaxed) {
            return;
        }
        if let Some(past) = other.take() {
            family.remove_label_values(&self.with(past)).ok();
        }
        *other = STATES.into_iter().find(|state| *state == present && *state != WATCHING);
        if let Some(state) = *other {
            family.with_label_values(&self.with(state)).set(1);
        }
    }

    /// Counts a started list by its cause, one of [`RELIST_CAUSES`].
    pub fn relist(&self, cause: &str) {
        self.count(&self.families.relists, cause);
        if cause == START {
            return;
        }
        let mut relists = self.relists.lock();
        relists.count += 1;
        if relists.times.len() >= RELISTS_MAX {
            relists.times.pop_front();
        }
        relists.times.push_back(Instant::now());
    }

    /// Counts a proof of freshness by its step, one of [`PROOF_STEPS`].
    pub fn proof(&self, step: &str, duration: Duration) {
        self.count(&self.families.proofs, step);
        self.families.proof_duration.with_label_values(&[step]).observe(duration.as_secs_f64());
    }

    /// Counts a comparison with the upstream, by one of [`CHECKS`] and one of [`CHECK_OUTCOMES`].
    pub fn checked(&self, check: &str, outcome: &str) {
        if !self.retired.load(Ordering::Relaxed) {
            self.families.checks.with_label_values(&self.check_labels(check, outcome)).inc();
        }
    }

    /// Sets the time of the last comparison of a page that proved something to the present.
    pub fn page_checked(&self) {
        self.checked.set(seconds_now());
    }

    fn check_labels<'a>(&'a self, check: &'a str, outcome: &'a str) -> [&'a str; 7] {
        let [group, version, resource, namespace, representation] =
            self.labels.each_ref().map(|label| &**label);
        [group, version, resource, namespace, representation, check, outcome]
    }

    /// Counts an ended upstream watch by its result, one of [`WATCH_RESULTS`].
    pub fn watch_ended(&self, result: &str) {
        self.count(&self.families.watches, result);
    }

    /// Removes the series from `/metrics`. The handles stay usable without effect.
    pub fn retire(&self) {
        let _removes = self.other_state.lock();
        if self.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        let labels = self.labels.each_ref().map(|label| &**label);
        let families = &self.families;
        for gauges in [
            &families.objects,
            &families.bytes,
            &families.watchers,
            &families.watchers_behind,
            &families.history_events,
            &families.history_bytes,
            &families.resource_version,
        ] {
            gauges.remove_label_values(&labels).ok();
        }
        for gauges in [
            &families.last_progress,
            &families.history_oldest,
            &families.checked,
            &families.delay_peak,
        ] {
            gauges.remove_label_values(&labels).ok();
        }
        for state in STATES {
            families.state.remove_label_values(&with(labels, state)).ok();
        }
        let events = EventLabel::ALL.map(EventLabel::as_str);
        for (counters, values) in [
            (&families.events, &events[..]),
            (&families.event_bytes, &events),
            (&families.relists, &RELIST_CAUSES),
            (&families.proofs, &PROOF_STEPS),
            (&families.watches, &WATCH_RESULTS),
        ] {
            for value in values {
                counters.remove_label_values(&with(labels, value)).ok();
            }
        }
        for (check, outcome) in
            CHECKS.into_iter().flat_map(|check| CHECK_OUTCOMES.map(|outcome| (check, outcome)))
        {
            families.checks.remove_label_values(&self.check_labels(check, outcome)).ok();
        }
    }

    fn count(&self, counters: &IntCounterVec, value: &str) {
        if !self.retired.load(Ordering::Relaxed) {
            counters.with_label_values(&self.with(value)).inc();
        }
    }

    /// The labels of the cache and one more.
    fn with<'a>(&'a self, value: &'a str) -> [&'a str; 6] {
        with(self.labels.each_ref().map(|label| &**label), value)
    }
}

crate::api::labels! {
    /// The type of an event of the upstream watch, for the `type` label.
    pub enum EventLabel {
        /// ADDED or MODIFIED.
        Upsert = "upsert",
        /// DELETED.
        Delete = "delete",
        /// BOOKMARK.
        Bookmark = "bookmark",
        /// ERROR.
        Error = "error",
    }
}

pub(super) fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the time of a gauge, which is 0 without one.
pub(super) fn system_time(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok().filter(|since| !since.is_zero())?;
    Some(UNIX_EPOCH + since)
}

/// The cause of the first list of a cache.
const START: &str = "start";
const HOUR: Duration = Duration::from_secs(3600);
/// One in four seconds, for an hour.
const RELISTS_MAX: usize = 900;
/// A floating-point number is exact up to 2^53, which has 16 digits. kube-apiserver cuts its own
/// metrics of resourceVersions in the same way.
const RESOURCE_VERSION_MODULUS: u64 = 1_000_000_000_000_000;

/// The state of a reflector that follows the upstream, one of [`STATES`].
pub const WATCHING: &str = "watching";
/// The states of a reflector, for the `state` label.
pub const STATES: [&str; 6] =
    ["listing", "backing-off", "reviewing", "resuming", "verifying", "watching"];
/// The causes of a list, for the `cause` label.
pub const RELIST_CAUSES: [&str; 5] = [START, "expired", "rewound", "changed", "retry"];
/// The steps that prove a state fresh (`docs/decisions/proofs-of-freshness.md`), for the `step`
/// label. The last one is for watches and lists without a proof.
pub const PROOF_STEPS: [&str; 5] = ["held", "event", "list", "short-watch", "forwarded"];
/// The comparisons with the upstream, for the `check` label.
pub const CHECKS: [&str; 4] = ["count", "order", "page", "bytes"];
/// The outcomes of a comparison with the upstream, for the `outcome` label.
pub const CHECK_OUTCOMES: [&str; 7] =
    ["equal", "different", "upstream", "malformed", "refused", "inconclusive", "skipped"];
/// The results of an upstream watch, for the `result` label.
pub const WATCH_RESULTS: [&str; 13] = [
    "clean",
    "short",
    "overdue",
    "changed",
    "rewound",
    "expired",
    "invalid",
    "malformed",
    "error",
    "silent",
    "lagging",
    "refused",
    "too-large",
];
