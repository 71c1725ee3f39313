//! The bounds on the cost of a restart, and their check.

use std::time::Duration;

use crate::crowd::Seen;
use crate::testbed::RESOURCES;

/// The bounds on the cost of a restart.
pub(crate) struct Bounds {
    /// Whole lists and watches of each watched resource.
    per_cache: u64,
    /// Whether watches of clients may end.
    may_end: bool,
}

/// The costs of a restart for the API server.
pub(crate) struct Costs {
    /// Whole lists and watches of each of [`RESOURCES`]; a list in pages is one.
    pub(crate) of_resources: [u64; RESOURCES.len()],
    /// Requests for each of them that return at most one object and end at once or within 3 s: by
    /// them Weir learns how fresh its state is.
    pub(crate) proofs: [u64; RESOURCES.len()],
    pub(crate) token_reviews: u64,
    pub(crate) access_reviews: u64,
    /// The distinct tokens, and permissions of all users.
    pub(crate) tokens: u64,
    pub(crate) permissions: u64,
    /// Events that a watcher did not get, or got twice.
    pub(crate) wrong_events: u64,
}

impl Bounds {
    /// Those of a restart of Weir: a list and a watch for each cache, and one watch backwards.
    pub(crate) fn of_weir() -> Self {
        Self { per_cache: 3, may_end: true }
    }

    /// Those of a restart of the API server: one watch for each cache, and a second attempt.
    pub(crate) fn of_server() -> Self {
        Self { per_cache: 2, may_end: false }
    }

    /// Those of a restart of the API server that can not resume a watch: also a list.
    pub(crate) fn of_forgetful_server() -> Self {
        Self { per_cache: 3, may_end: false }
    }

    /// Returns which bounds were exceeded.
    pub(crate) fn exceeded(&self, seen: &Seen, costs: &Costs) -> Vec<String> {
        let ended = if self.may_end { 0 } else { seen.ended as u64 };
        let slowest = seen.resumed.iter().max().copied().unwrap_or_default();
        let most = |counts: [u64; RESOURCES.len()]| counts.into_iter().max().unwrap_or_default();
        let rows = [
            ("lists and watches for a cache", most(costs.of_resources), self.per_cache),
            ("proofs for a cache", most(costs.proofs), PROOFS_MAX),
            ("token reviews", costs.token_reviews, costs.tokens),
            ("access reviews", costs.access_reviews, costs.permissions),
            ("watches that ended", ended, 0),
            ("watches that were forwarded", seen.forwarded as u64, 0),
            ("lists after a 410", seen.relists as u64, 0),
            ("events lost or repeated", costs.wrong_events, 0),
            ("seconds until all have resumed", slowest.as_secs(), RESUMED_WITHIN.as_secs()),
        ];
        let exceeded = rows.into_iter().filter(|(_, value, bound)| value > bound);
        exceeded.map(|(name, value, bound)| format!("{name}: {value}, bound {bound}")).collect()
    }
}

/// A watch-list that matches nothing, a list of one object, the same from the server that watches,
/// and a watch of 3 s (`docs/decisions/herds.md`).
const PROOFS_MAX: u64 = 4;
const RESUMED_WITHIN: Duration = Duration::from_secs(20);
