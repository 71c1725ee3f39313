//! The last check and the last difference of a cache, for operators.
//!
//! Keys and resourceVersions are shown, values never.
//!
//! Lock order: the lock alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::cache::core::page_comparison::KeyDifference;

crate::api::labels! {
    /// The side that is wrong, as far as that was proved.
    pub enum WrongSide {
        /// Etcd agrees with the upstream: the cache is wrong.
        Cache = "cache",
        /// Etcd agrees with the cache: the watch cache of an API server is wrong.
        ApiServer = "api-server",
        /// The difference was not there again, or etcd did not say.
        Unknown = "unknown",
    }
}

/// A difference between a cache and the upstream.
#[derive(Clone, Debug)]
pub struct CacheDifference {
    /// The time at which it was found.
    pub at: SystemTime,
    /// The side that is wrong.
    pub wrong: WrongSide,
    /// The number of keys that differ on the page.
    pub count: usize,
    /// The first keys that differ.
    pub keys: Vec<KeyDifference>,
}

/// The last check of a cache, and the last difference.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The time of the last comparison of a page.
    pub checked: Option<SystemTime>,
    /// The last difference.
    pub difference: Option<CacheDifference>,
}

/// The findings of the checks of a cache, shared between the checks and the operators' pages.
#[derive(Debug, Default)]
pub(crate) struct CheckFindings {
    report: Mutex<CheckReport>,
    /// Whether the cache may be wrong, and no round has begun since.
    is_suspected: AtomicBool,
}

impl CheckFindings {
    pub(crate) fn report(&self) -> CheckReport {
        self.report.lock().clone()
    }

    /// Takes over the report of an earlier cache of the key.
    pub(crate) fn inherit(&self, report: CheckReport) {
        *self.report.lock() = report;
    }

    /// Notes that a page was compared.
    pub(crate) fn checked(&self) {
        self.report.lock().checked = Some(SystemTime::now());
    }

    /// Notes a difference.
    pub(crate) fn differs(&self, wrong: WrongSide, count: usize, keys: Vec<KeyDifference>) {
        let difference = CacheDifference { at: SystemTime::now(), wrong, count, keys };
        self.report.lock().difference = Some(difference);
    }

    /// Asks for a whole round from now on: the number of objects differs, or an event came too
    /// late.
    pub(crate) fn suspect(&self) {
        self.is_suspected.store(true, Ordering::Release);
    }

    /// Whether a whole round was asked for, and has not begun.
    pub(crate) fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Acquire)
    }

    /// Returns the same. The round begins now.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspected.swap(false, Ordering::AcqRel)
    }
}
