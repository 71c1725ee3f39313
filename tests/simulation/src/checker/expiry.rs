//! W10: no watch gets a 410 that is not needed. A client that gets one lists.
//!
//! A cache loses its place only if an API server has no events after it, or if nobody knows whether
//! the history is still the same. While nothing of that kind happens, a watch from any
//! resourceVersion begins whose events the API servers have: also after a restart of Weir, and
//! after a cache was stopped that nobody used. After a restore of etcd, what is not above the
//! highest resourceVersion of the lost history may mean that one: a cache that begins later refuses
//! it for good (docs/decisions/rewound-history.md).
//!
//! A burst of more writes than the API servers keep takes its place from a cache without a fault:
//! they end even its open watch. It lists again, maybe after a back-off, and no watch begins
//! between its place and that list, although the API servers may have all events from there on
//! (docs/decisions/reflector-failures.md).

use std::time::Duration;

use tokio::time::Instant;

use super::{Checker, RELISTED_WITHIN};
use crate::plan::Plan;
use crate::resources::Selection;
use crate::write_log::{Log, Moment};

/// The history that every cache and every API server has.
pub(super) struct RetainedHistory {
    /// The last writes of a resource that they have at least; `None` where nothing is promised.
    events: Option<usize>,
    /// The events of each resource that the API servers keep.
    upstream_events: usize,
    /// The last moment at which history may have been lost.
    lost_at: Option<Instant>,
    from: Moment,
}

impl RetainedHistory {
    pub(super) fn new(plan: &Plan, from: Moment) -> Self {
        // The first cache of a namespace begins where the permission for all was lost.
        let may_begin_late = plan.narrow || plan.history_bytes.is_some();
        let events = (!may_begin_late).then_some(plan.history_events.min(EVENTS_MIN));
        Self { events, upstream_events: plan.history_events, lost_at: None, from }
    }

    /// Notes that history may be lost now.
    pub(super) fn lose(&mut self) {
        self.lost_at = Some(Instant::now());
    }

    pub(super) fn note(&mut self, now: Moment) {
        if self.is_uncertain(now) {
            self.from = now;
        }
    }

    /// Whether a fault may have lost history not long ago. An API server that refuses watches with
    /// 410 refuses forwarded ones of any resourceVersion as well.
    fn is_uncertain(&self, now: Moment) -> bool {
        self.lost_at.is_some_and(|lost_at| lost_at + RELISTED_WITHIN > now.time)
    }

    /// Whether a cache of the resource may have listed again above a revision that was the newest
    /// one until `overtaken`, since more was written than the API servers keep.
    fn is_overrun(&self, log: &Log, overtaken: Instant) -> bool {
        let overrun = log.last_overrun(self.upstream_events, WITHOUT_WATCH_MAX);
        overrun.is_some_and(|overrun| overtaken < overrun + RELISTED_WITHIN)
    }
}

impl Checker {
    /// Judges a 410 for a watch after a revision.
    pub(crate) fn expired(&self, target: &str, selection: &Selection, after: u64) {
        let now = self.now();
        let mut inner = self.0.lock();
        inner.checked("W10");
        let RetainedHistory { events: Some(kept), from, .. } = inner.kept else { return };
        if inner.kept.is_uncertain(now) {
            return;
        }
        let highest_lost = inner.write_log.highest_lost();
        let epoch = inner.write_log.epoch(now.epoch);
        let is_kept = from.epoch == now.epoch
            && highest_lost.is_none_or(|lost| after > lost)
            && (from.revision.max(epoch.began_at)..=now.revision).contains(&after);
        let log = epoch.log(selection.resource);
        let events = log.map_or(0, |log| log.count_after(after));
        let overtaken = epoch.overtaken(after).unwrap_or(now.time);
        let is_overrun = log.is_some_and(|log| inner.kept.is_overrun(log, overtaken));
        if is_kept && events <= kept && !is_overrun {
            let path = selection.path("");
            let what = format!(
                "{path} from {target}: a watch after {after} gets a 410, although only {events} \
                 events follow, and nothing was lost since {}",
                from.revision
            );
            inner.violated("W10", what);
        }
    }
}

/// The least number of events that a cache keeps, as far as the API servers have them.
const EVENTS_MIN: usize = 100;
/// The longest time without a watch of a reflector while no fault loses history: the longest
/// back-off.
const WITHOUT_WATCH_MAX: Duration = Duration::from_secs(60);
