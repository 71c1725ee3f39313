//! The memory of a connection for flow control. It has the candidates of the last user: most
//! connections have one user, so that a request compares no subject. It has the last lists, so that
//! a repeated one is known as such.
//!
//! Lock order: each lock alone.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::auth::user::{User, UserKey};
use crate::flow::candidates::Candidates;
use crate::server::flow_control::plan::ActivePlan;

/// The memory of a connection.
#[derive(Default)]
pub(crate) struct FlowMemo {
    users: Mutex<Memo>,
    /// Hashes of the last different lists, the latest last.
    lists: Mutex<SmallVec<[u64; LISTS_MAX]>>,
}

#[derive(Default)]
struct Memo {
    last: Option<LastUser>,
    /// The name of the first user.
    first: Option<UserKey>,
    /// Whether there were users of several names.
    is_shared: bool,
}

struct LastUser {
    /// The number of the plan.
    plan: u64,
    user: UserKey,
    candidates: Arc<Candidates>,
}

impl FlowMemo {
    /// Returns the candidates of a user in a plan.
    pub(super) fn candidates(&self, active: &ActivePlan, user: &User) -> Arc<Candidates> {
        let mut memo = self.users.lock();
        match &memo.last {
            Some(last) if last.plan == active.number && last.user == user.key() => {
                Arc::clone(&last.candidates)
            }
            _ => {
                let candidates = active.plan.candidates(&user.name, &user.groups);
                let (plan, name) = (active.number, user.name_key());
                memo.is_shared |= *memo.first.get_or_insert(name) != name;
                let user = user.key();
                memo.last = Some(LastUser { plan, user, candidates: Arc::clone(&candidates) });
                candidates
            }
        }
    }

    /// Whether several users have sent requests over the connection, as through a proxy.
    pub(crate) fn is_shared(&self) -> bool {
        self.users.lock().is_shared
    }
}

impl FlowMemo {
    /// Notes a list. Returns whether it is one of the last different ones.
    pub(super) fn is_repeated(&self, list: u64) -> bool {
        let mut lists = self.lists.lock();
        let is_known = lists.contains(&list);
        if !is_known {
            if lists.len() == LISTS_MAX {
                lists.remove(0);
            }
            lists.push(list);
        }
        is_known
    }
}

/// Controllers with more kinds of lists on one connection are few.
const LISTS_MAX: usize = 16;

impl fmt::Debug for FlowMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowMemo").finish_non_exhaustive()
    }
}
