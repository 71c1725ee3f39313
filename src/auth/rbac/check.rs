//! Checks decisions of RBAC by access reviews, and disables RBAC when they differ.
//!
//! An authorizer that comes before RBAC may deny what RBAC allows (a webhook, or any authorizer in
//! `--authorization-config`), and discovery does not show the authorizers. So a sample of the
//! requests that RBAC allows is also checked by an access review.
//!
//! A single denial is not a mismatch yet: a revocation may be on its way to Weir, or a new binding
//! on its way to the API server's authorizer, which also follows a watch. So the same request is
//! checked again after a delay, and until that is done every allowed request is checked. Only a
//! denial that persists disables RBAC, for the lifetime of the process: other decisions may have
//! been wrong as well.
//!
//! Lock order: `mismatches`, alone and never across an await.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::user::{User, UserKey};

/// The sampling of checks, and the suspected mismatches.
#[derive(Debug)]
pub(super) struct Checks {
    one_in: u32,
    is_disabled: AtomicBool,
    mismatches: Mutex<Vec<Mismatch>>,
    /// The length of `mismatches`, to be read without the lock.
    mismatch_count: AtomicUsize,
}

/// A request that RBAC allows and an access review denied.
#[derive(Debug)]
struct Mismatch {
    user: UserKey,
    attributes: Attributes,
    since: Instant,
}

/// The consequence of a mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MismatchResult {
    /// The same request must be checked again after this delay.
    CheckAgain(Duration),
    /// The mismatch persisted. RBAC is disabled from now on.
    Disabled,
}

impl Checks {
    /// Creates checks of one in `one_in` allowed requests.
    pub(super) fn new(one_in: u32) -> Self {
        Self {
            one_in: one_in.max(1),
            is_disabled: AtomicBool::new(false),
            mismatches: Mutex::default(),
            mismatch_count: AtomicUsize::new(0),
        }
    }

    /// Returns whether RBAC is disabled.
    pub(super) fn is_disabled(&self) -> bool {
        self.is_disabled.load(Ordering::Acquire)
    }

    /// Returns whether to check the request that was just allowed.
    pub(super) fn is_due(&self) -> bool {
        // Random, so that requests at regular intervals do not always escape the sample.
        self.mismatch_count.load(Ordering::Relaxed) > 0 || fastrand::u32(..self.one_in) == 0
    }

    /// Notes that a review agreed, or that RBAC no longer allows the request either.
    pub(super) fn matched(&self, user: &User, attributes: &Attributes) {
        if self.mismatch_count.load(Ordering::Relaxed) > 0 {
            self.change(|mismatches| {
                mismatches.retain(|mismatch| !mismatch.is_for(user, attributes));
            });
        }
    }

    /// Notes that a review denied a request that RBAC still allows.
    pub(super) fn mismatched(&self, user: &User, attributes: &Attributes) -> MismatchResult {
        let now = Instant::now();
        self.change(|mismatches| {
            mismatches.retain(|mismatch| now.duration_since(mismatch.since) < MISMATCH_TTL);
            let mismatch = mismatches.iter().find(|mismatch| mismatch.is_for(user, attributes));
            let Some(mismatch) = mismatch else {
                // At the limit, those in the list suffice.
                if mismatches.len() < MISMATCHES_MAX {
                    let (user, attributes) = (user.key(), attributes.clone());
                    mismatches.push(Mismatch { user, attributes, since: now });
                }
                return MismatchResult::CheckAgain(RECHECK_DELAY);
            };
            let age = now.duration_since(mismatch.since);
            if age < RECHECK_DELAY {
                return MismatchResult::CheckAgain(RECHECK_DELAY - age);
            }
            mismatches.clear();
            self.is_disabled.store(true, Ordering::Release);
            MismatchResult::Disabled
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Mismatch>) -> T) -> T {
        let mut mismatches = self.mismatches.lock();
        let result = change(&mut mismatches);
        self.mismatch_count.store(mismatches.len(), Ordering::Relaxed);
        result
    }
}

impl Mismatch {
    fn is_for(&self, user: &User, attributes: &Attributes) -> bool {
        self.user == user.key() && self.attributes == *attributes
    }
}

/// How long a denial must persist. Watches deliver a change to Weir and to the API server's
/// authorizer within milliseconds, or within seconds if a watch had to be reopened.
const RECHECK_DELAY: Duration = Duration::from_secs(5);
/// A mismatch that is not checked again is forgotten after this time.
const MISMATCH_TTL: Duration = Duration::from_secs(60);
/// Suspected mismatches at once. A single one that persists is enough to disable RBAC.
const MISMATCHES_MAX: usize = 64;
