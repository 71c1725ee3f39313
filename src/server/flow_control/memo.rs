//! The candidates of the last user of a connection: most connections have one user, so that a
//! request compares no subject.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::user::{User, UserKey};
use crate::flow::candidates::Candidates;
use crate::server::flow_control::plan::ActivePlan;

/// The candidates of the last user of a connection.
#[derive(Default)]
pub(crate) struct FlowMemo(Mutex<Option<LastUser>>);

struct LastUser {
    /// The number of the plan.
    plan: u64,
    user: UserKey,
    candidates: Arc<Candidates>,
}

impl FlowMemo {
    /// Returns the candidates of a user in a plan.
    pub(super) fn candidates(&self, active: &ActivePlan, user: &User) -> Arc<Candidates> {
        let mut last = self.0.lock();
        match &*last {
            Some(last) if last.plan == active.number && last.user == user.key() => {
                Arc::clone(&last.candidates)
            }
            _ => {
                let candidates = active.plan.candidates(&user.name, &user.groups);
                let (plan, user) = (active.number, user.key());
                *last = Some(LastUser { plan, user, candidates: Arc::clone(&candidates) });
                candidates
            }
        }
    }
}

impl fmt::Debug for FlowMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowMemo").finish_non_exhaustive()
    }
}
