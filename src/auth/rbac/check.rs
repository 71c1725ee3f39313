//! Checks what is allowed here against access reviews, and turns it off when they differ.
//!
//! An authorizer that is asked before RBAC may deny what RBAC allows (a webhook, or any in `--authorization-config`), and no discovery tells of it.
//! So a sample of what is allowed here is put to an access review as well.
//!
//! One denial is no difference yet: a revocation may be on its way here, or a new binding on its way to the API server's authorizer, which is told
//! of it by a watch as Weir is. So the same is asked once more after a while; until that is settled, everything that is allowed here is checked.
//! Only a denial that stands turns RBAC off, for the life of the process: what it allowed may have been wrong in many other cases.
//!
//! Lock order: `doubts`, alone and never across an await.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::user::{User, UserKey};

/// See the module.
#[derive(Debug)]
pub(super) struct Checks {
    one_in: u32,
    off: AtomicBool,
    doubts: Mutex<Vec<Doubt>>,
    doubted: AtomicUsize,
}

/// Something that is allowed here and was denied by a review.
#[derive(Debug)]
struct Doubt {
    user: UserKey,
    attributes: Attributes,
    since: Instant,
}

/// What follows from a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is to be asked again after so long.
    Doubted(Duration),
    /// It stands: RBAC is off from now on.
    Off,
}

impl Checks {
    /// Checks one in so many.
    pub(super) fn new(one_in: u32) -> Self {
        Self {
            one_in: one_in.max(1),
            off: AtomicBool::new(false),
            doubts: Mutex::default(),
            doubted: AtomicUsize::new(0),
        }
    }

    /// Whether RBAC was turned off.
    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire)
    }

    /// Whether what was just allowed is to be checked.
    pub(super) fn is_due(&self) -> bool {
        // At random: what comes in a rhythm must not always escape.
        self.doubted.load(Ordering::Relaxed) > 0 || fastrand::u32(..self.one_in) == 0
    }

    /// A review agreed, or it is no longer allowed here either.
    pub(super) fn settle(&self, user: &User, attributes: &Attributes) {
        if self.doubted.load(Ordering::Relaxed) > 0 {
            self.change(|doubts| doubts.retain(|doubt| !doubt.is_of(user, attributes)));
        }
    }

    /// A review denied what is still allowed here.
    pub(super) fn doubt(&self, user: &User, attributes: &Attributes) -> Verdict {
        let now = Instant::now();
        self.change(|doubts| {
            doubts.retain(|doubt| now.duration_since(doubt.since) < FORGET_AFTER);
            let Some(doubt) = doubts.iter().find(|doubt| doubt.is_of(user, attributes)) else {
                // Beyond the bound those that are there suffice.
                if doubts.len() < DOUBTS_MAX {
                    let (user, attributes) = (user.key(), attributes.clone());
                    doubts.push(Doubt { user, attributes, since: now });
                }
                return Verdict::Doubted(ASK_AGAIN);
            };
            let age = now.duration_since(doubt.since);
            if age < ASK_AGAIN {
                return Verdict::Doubted(ASK_AGAIN - age);
            }
            doubts.clear();
            self.off.store(true, Ordering::Release);
            Verdict::Off
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Doubt>) -> T) -> T {
        let mut doubts = self.doubts.lock();
        let result = change(&mut doubts);
        self.doubted.store(doubts.len(), Ordering::Relaxed);
        result
    }
}

impl Doubt {
    fn is_of(&self, user: &User, attributes: &Attributes) -> bool {
        self.user == user.key() && self.attributes == *attributes
    }
}

/// How long a denial must stand. Watches tell of a change in milliseconds, to Weir and to the API server's authorizer; one that had to be
/// opened anew, in seconds.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// A doubt that nobody came back to is dropped, and the next check of the same begins anew.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Doubts at once. One that stands is enough.
const DOUBTS_MAX: usize = 64;
