//! The proof of a consistent list, whose resourceVersion is unset: the state must not be older than
//! the request (`docs/decisions/proofs-of-freshness.md`).
//!
//! The steps are those of a watch that starts consistently. A list can be forwarded at any moment,
//! and forwarding it may be as cheap as the proof. So each list waits only as long as [`Demand`]
//! says, and a list that is alone asks the upstream for nothing but the probe.
//!
//! [`Demand`]: super::demand::Demand

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::cache::cached_resource::CachedResource;
use crate::cache::proof::demand::Costs;
use crate::cache::proof::{FreshState, prove};
use crate::config::ConsistentLists;

/// Why a consistent list has no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoProof {
    /// Forwarding it is as cheap, or there is no state to be proved.
    NotTried,
    /// No proof arrived in time.
    Late,
}

/// Finds a state that is not older than this call. `forwarding` is how long the same list took when
/// it was forwarded. Waits at most `within`. Cancel safe: shared work goes on.
pub(crate) async fn consistent_state(
    cached: &Arc<CachedResource>,
    forwarding: Option<Duration>,
    within: Duration,
) -> Result<FreshState, NoProof> {
    let began = Instant::now();
    let wait = Wait { cached, forwarding, within };
    cached.proofs.demand.lock().arrive(began);
    let mut wait_max = wait.max().ok_or(NoProof::NotTried)?;
    let mut proof = std::pin::pin!(prove(cached, None, || wait.is_crowd()));
    let proved = loop {
        match timeout_at(began + wait_max, &mut proof).await {
            Ok(proved) => break proved.ok(),
            // More lists may have come meanwhile.
            Err(_elapsed) => match wait.max() {
                Some(longer) if longer > began.elapsed() => wait_max = longer,
                _ => break None,
            },
        }
    };
    let step = proved.as_ref().map_or("forwarded", |(_, step)| *step);
    cached.series.proof(step, began.elapsed());
    let mut demand = cached.proofs.demand.lock();
    match proved {
        Some((state, _)) => {
            demand.proved();
            Ok(state)
        }
        None => {
            demand.missed(Instant::now());
            Err(NoProof::Late)
        }
    }
}

struct Wait<'a> {
    cached: &'a CachedResource,
    forwarding: Option<Duration>,
    within: Duration,
}

impl Wait<'_> {
    /// Returns how long the list waits in all, by the present demand; `None` if it does not try.
    fn max(&self) -> Option<Duration> {
        if self.waits_always() {
            return Some(self.within);
        }
        let costs = self.costs();
        let wait_max = self.cached.proofs.demand.lock().wait_max(Instant::now(), costs);
        wait_max.map(|wait_max| wait_max.min(self.within))
    }

    fn is_crowd(&self) -> bool {
        let costs = self.costs();
        self.waits_always() || self.cached.proofs.demand.lock().is_crowd(Instant::now(), costs)
    }

    fn waits_always(&self) -> bool {
        self.cached.context.config().consistent_lists == ConsistentLists::Always
    }

    fn costs(&self) -> Costs {
        let gap = self.cached.probe_gap();
        let probe = self.cached.proofs.probes.expected_wait(gap);
        Costs { forwarding: self.forwarding, probe, gap }
    }
}
