//! The plans of Weirs that fill their caches from each other.

use std::time::Duration;

use super::{ClientKind, FAULTS, Fault, Plan, strikes};
use crate::siblings::Siblings;

impl Plan {
    /// Lets two or three Weirs, which often stop and start, fill their caches from each other. They
    /// are sidecars: without TLS a Weir sends no credentials to a sibling.
    pub(crate) fn with_siblings(mut self) -> Self {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x51b1);
        (self.in_a_row, self.gateway, self.narrow, self.crowd) = (false, false, false, None);
        self.verify = true;
        self.weirs = rng.usize(2..4);
        // Where no client asks for long, a cache still waits for a sibling that does.
        self.idle_timeout = self.idle_timeout.max(IDLE_MIN);
        let others =
            [ClientKind::Guest, ClientKind::Revoked, ClientKind::Flood, ClientKind::Neighbour];
        self.clients.retain(|client| !others.contains(&client.kind));
        let (has_impostor, has_wrong_weir) = (rng.u8(..3) == 0, rng.u8(..3) == 0);
        self.siblings = Some(Siblings { has_impostor, has_wrong_weir });
        let mut kinds: Vec<Fault> = FAULTS.iter().filter(|_| rng.u8(..6) == 0).copied().collect();
        kinds.extend([Fault::Crash, Fault::Drain, Fault::Drain, Fault::BreakSibling]);
        if has_wrong_weir {
            kinds.extend([Fault::LoseEvents; 2]);
        }
        let interval = Duration::from_secs(rng.u64(5..25));
        self.faults = strikes(&mut rng, self.duration, interval, &kinds);
        self
    }
}

/// Longer than a round of the comparison, after which a cache that came from a sibling is sent on.
const IDLE_MIN: Duration = Duration::from_secs(120);
