//! Limits on the reviews that are in flight or wait for their turn, in total and for each user.
//!
//! Lock order: the counts, alone and never across an await.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::user::UserKey;

/// Counts the pending reviews.
#[derive(Default)]
pub(super) struct ReviewLimits {
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    total: usize,
    /// Never zero: users without a review are not in the map.
    by_user: HashMap<UserKey, usize>,
}

impl ReviewLimits {
    /// Acquires a permit for one review of `user`. Returns `None` at [`REVIEWS_MAX`] reviews in
    /// total or [`USER_REVIEWS_MAX`] of this user.
    pub(super) fn try_acquire(self: &Arc<Self>, user: UserKey) -> Option<ReviewPermit> {
        let mut pending = self.pending.lock();
        let user_pending = pending.by_user.get(&user).copied().unwrap_or_default();
        if pending.total >= REVIEWS_MAX || user_pending >= USER_REVIEWS_MAX {
            return None;
        }
        pending.total += 1;
        pending.by_user.insert(user, user_pending + 1);
        Some(ReviewPermit { limits: Arc::clone(self), user })
    }

    /// Returns the number of pending reviews.
    pub(super) fn pending(&self) -> usize {
        self.pending.lock().total
    }
}

/// The permit of a pending review, released when it is dropped.
pub(super) struct ReviewPermit {
    limits: Arc<ReviewLimits>,
    user: UserKey,
}

impl Drop for ReviewPermit {
    fn drop(&mut self) {
        let mut pending = self.limits.pending.lock();
        pending.total -= 1;
        if let Entry::Occupied(mut count) = pending.by_user.entry(self.user) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Pending reviews in total: many times those in flight at once, and a few megabytes (64 MiB if all
/// had the longest attributes). Beyond this limit, GETs are forwarded at once, and lists and
/// watches get 429.
const REVIEWS_MAX: usize = 4096;
/// Pending reviews of one user: more than any client needs at once, and too few to use up the total
/// or to delay the reviews of others for long.
const USER_REVIEWS_MAX: usize = 256;
