//! What is known of the cluster's roles and bindings, and whether that is what the upstream has.
//!
//! Of each resource the [feed](mod@crate::auth::rbac::feed) says until when what was told of it may be relied on. Only while that holds of all
//! four is there an index to ask: a binding that was revoked unseen is worse than an access review.
//!
//! Lock order: `writer`, alone and never across an await. Readers take no lock. An index is published before it is said to be current,
//! and the time of a revocation before the index that lacks the right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::rbac::index::{Index, Writer};
use crate::auth::rbac::resource::{PerResource, RbacResource};
use crate::telemetry::auth_metrics::rbac::RbacMetrics;

/// See the module.
#[derive(Debug)]
pub(super) struct Known {
    index: ArcSwap<Index>,
    writer: Mutex<Writer>,
    /// Until when each may be relied on, in milliseconds after `started`.
    until_ms: PerResource<AtomicU64>,
    /// When something was last taken from somebody, in nanoseconds after `started`; 0 for never.
    narrowed_ns: AtomicU64,
    started: Instant,
    metrics: RbacMetrics,
}

impl Known {
    /// Nothing yet.
    pub(super) fn new(metrics: RbacMetrics) -> Self {
        for resource in RbacResource::ALL {
            metrics.current(resource.as_str(), false);
        }
        Self {
            index: ArcSwap::default(),
            writer: Mutex::default(),
            until_ms: PerResource::default(),
            narrowed_ns: AtomicU64::new(0),
            started: Instant::now(),
            metrics,
        }
    }

    /// The index, if it is what the upstream has.
    pub(super) fn index(&self) -> Option<Guard<Arc<Index>>> {
        let now_ms = self.millis(Instant::now());
        let current = self.until_ms.all(|until_ms| now_ms < until_ms.load(Ordering::Acquire));
        current.then(|| self.index.load())
    }

    /// When something was last taken from somebody, as far as is known. To be asked after the index: who saw a revocation there sees its
    /// time here.
    pub(super) fn narrowed(&self) -> Option<Instant> {
        let since = self.narrowed_ns.load(Ordering::Acquire);
        (since > 0).then(|| self.started + Duration::from_nanos(since))
    }

    /// Changes what is known of a resource.
    pub(super) fn change(&self, resource: RbacResource, change: impl FnOnce(&mut Writer)) {
        let mut writer = self.writer.lock();
        change(&mut writer);
        if writer.has_narrowed() {
            let since = self.started.elapsed().as_nanos();
            self.narrowed_ns.fetch_max(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Release);
        }
        self.index.store(Arc::new(writer.index()));
        let (all, unreadable) = (writer.len(resource), writer.unreadable(resource));
        self.metrics.objects(resource.as_str(), all, unreadable);
    }

    /// A resource may be relied on until then, whatever was said before.
    pub(super) fn rely_until(&self, resource: RbacResource, until: Option<Instant>) {
        let until_ms = until.map_or(0, |until| self.millis(until));
        self.until_ms.get(resource).store(until_ms, Ordering::Release);
        self.metrics.current(resource.as_str(), until.is_some_and(|until| until > Instant::now()));
    }

    fn millis(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
