//! Weir's copy of the cluster's roles and bindings, and until when it is known to be current.
//!
//! The [feed](mod@crate::auth::rbac::feed) of each resource sets until when its part of the copy is
//! valid. The index is used only while all four are valid: a missed revocation is worse than an
//! access review.
//!
//! Lock order: `writer`, alone and never across an await. Readers take no lock. An index is
//! published before it is marked as valid, and the time of a revocation before the index without
//! the permission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::rbac::index::{Index, IndexWriter};
use crate::auth::rbac::metrics::RbacMetrics;
use crate::auth::rbac::resource::{PerResource, RbacResource};

/// The copy, its validity, and the last revocation.
#[derive(Debug)]
pub(super) struct RbacState {
    index: ArcSwap<Index>,
    writer: Mutex<IndexWriter>,
    /// Until when each resource is valid, in milliseconds after `started`.
    valid_until_ms: PerResource<AtomicU64>,
    /// When a permission was last revoked, in nanoseconds after `started`; 0 for never.
    last_revocation_ns: AtomicU64,
    /// The number of changes that the index includes, or fewer. It also rises when the index
    /// becomes valid.
    changes: watch::Sender<u64>,
    started: Instant,
    metrics: RbacMetrics,
}

impl RbacState {
    /// Creates an empty copy, which is not valid.
    pub(super) fn new(metrics: RbacMetrics) -> Self {
        for resource in RbacResource::ALL {
            metrics.set_current(resource.as_str(), false);
        }
        Self {
            index: ArcSwap::default(),
            writer: Mutex::default(),
            valid_until_ms: PerResource::default(),
            last_revocation_ns: AtomicU64::new(0),
            changes: watch::Sender::new(0),
            started: Instant::now(),
            metrics,
        }
    }

    /// Returns the index if all four resources are valid.
    pub(super) fn index(&self) -> Option<Guard<Arc<Index>>> {
        let now_ms = self.millis(Instant::now());
        let is_valid =
            self.valid_until_ms.all_satisfy(|until_ms| now_ms < until_ms.load(Ordering::Acquire));
        is_valid.then(|| self.index.load())
    }

    /// Returns when a permission was last revoked, as far as Weir knows. Call this after
    /// [`index`](Self::index): a caller that saw a revocation in the index then also sees its time.
    pub(super) fn last_revocation(&self) -> Option<Instant> {
        let since = self.last_revocation_ns.load(Ordering::Acquire);
        (since > 0).then(|| self.started + Duration::from_nanos(since))
    }

    /// Changes the copy of a resource.
    pub(super) fn change(&self, resource: RbacResource, change: impl FnOnce(&mut IndexWriter)) {
        let mut writer = self.writer.lock();
        change(&mut writer);
        if writer.take_revoked() {
            let since = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.last_revocation_ns.fetch_max(since, Ordering::Release);
        }
        if writer.take_changed() {
            self.index.store(Arc::new(writer.index()));
            self.note_change();
        }
        let (total, unreadable) = (writer.len(resource), writer.unreadable(resource));
        self.metrics.set_objects(resource.as_str(), total, unreadable);
    }

    /// Returns the number of changes, and when there are more.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes those who wait for a change, or for the index to be valid.
    pub(super) fn note_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Sets until when a resource is valid; `None` for not at all. Replaces the earlier time.
    pub(super) fn set_valid_until(&self, resource: RbacResource, until: Option<Instant>) {
        let until_ms = until.map_or(0, |until| self.millis(until));
        let before_ms = self.valid_until_ms.get(resource).swap(until_ms, Ordering::AcqRel);
        let now = Instant::now();
        let is_current = until.is_some_and(|until| until > now);
        self.metrics.set_current(resource.as_str(), is_current);
        // A watch that found the index invalid at the last change must look again.
        if is_current && before_ms <= self.millis(now) {
            self.note_change();
        }
    }

    fn millis(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
