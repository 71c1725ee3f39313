//! The choice of an API server among those that may be used.
//!
//! Requests that any server answers equally use the power of two choices ([`spread`]): of two
//! random servers the cheaper one. It avoids a slow server nearly as well as a choice among all,
//! and does not send everything to the one that looked best a moment ago. Reads that may show an
//! older state stay at one server ([`sticky`]), since servers lag by different times. Reflectors
//! are spread by rendezvous hashing ([`rendezvous`]): when a server goes, only its own resources
//! move.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;

/// One server that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// A hash of the server's address ([`key`]), which is the same in all Weirs.
    pub(crate) key: u64,
    /// The requests in progress there.
    pub(crate) in_use: usize,
    /// The latency of its responses in seconds, if it is known.
    pub(crate) latency: Option<f64>,
    /// Whether it answered 429 a moment ago.
    pub(crate) is_avoided: bool,
    /// The part of its seats that it may have.
    pub(crate) seats_part: f64,
}

/// The indexes of servers, in the order in which they are tried.
pub(crate) type Order = SmallVec<[usize; 8]>;

/// Returns the hash of a name: of an address, or of a resource.
pub(crate) fn key(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Chooses by the power of two choices. `None` if there is no candidate.
pub(crate) fn spread(candidates: &[Candidate]) -> Option<usize> {
    match candidates.len() {
        0 | 1 => candidates.len().checked_sub(1),
        len => {
            let first = fastrand::usize(..len);
            let second = (first + fastrand::usize(1..len)) % len;
            cheaper(candidates, first, second)
        }
    }
}

/// Returns the cheaper of two candidates. One that answered 429 a moment ago loses against one that
/// did not.
fn cheaper(candidates: &[Candidate], first: usize, second: usize) -> Option<usize> {
    let (a, b) = (candidates.get(first)?, candidates.get(second)?);
    let mean = mean_latency(candidates);
    let is_cheaper = match (a.is_avoided, b.is_avoided) {
        (true, false) => false,
        (false, true) => true,
        _ => a.cost(mean) <= b.cost(mean),
    };
    Some(if is_cheaper { first } else { second })
}

impl Candidate {
    /// The expected wait of one more request, in comparison with that at other servers.
    fn cost(&self, mean_latency: f64) -> f64 {
        let in_use = self.in_use as f64 + 1.0;
        in_use * self.latency.unwrap_or(mean_latency).max(LATENCY_MIN)
            / self.seats_part.max(PART_MIN)
    }
}

/// The mean of the known latencies.
fn mean_latency(candidates: &[Candidate]) -> f64 {
    let latencies = candidates.iter().filter_map(|candidate| candidate.latency);
    let (sum, count) =
        latencies.fold((0.0, 0.0), |(sum, count), latency| (sum + latency, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the order in which servers are tried for `key`, by rendezvous hashing.
pub(crate) fn rendezvous(key: u64, candidates: &[Candidate]) -> Order {
    let mut order: Order = (0..candidates.len()).collect();
    order.sort_by_key(|&index| {
        let score = candidates.get(index).map_or(0, |candidate| mix(key ^ mix(candidate.key)));
        std::cmp::Reverse(score)
    });
    order
}

/// Chooses a server for a client with `key`. It stays at `current`, the key of its server, while
/// that is a candidate. Otherwise rendezvous hashing chooses, among those whose requests in
/// progress are at most 1.25 times the mean.
pub(crate) fn sticky(key: u64, current: Option<u64>, candidates: &[Candidate]) -> Option<usize> {
    let is_current = |candidate: &Candidate| Some(candidate.key) == current;
    if let Some(index) = candidates.iter().position(is_current) {
        return Some(index);
    }
    let in_use_max = load_bound(candidates);
    let has_capacity = |index: &usize| {
        let candidate = candidates.get(*index);
        candidate.is_some_and(|candidate| candidate.in_use < in_use_max && !candidate.is_avoided)
    };
    let order = rendezvous(key, candidates);
    order.iter().copied().find(has_capacity).or_else(|| order.first().copied())
}

/// Returns 1.25 times the mean of the requests in progress, one more included, rounded up.
fn load_bound(candidates: &[Candidate]) -> usize {
    let in_use: usize = candidates.iter().map(|candidate| candidate.in_use).sum();
    ((in_use + 1) * 5).div_ceil(candidates.len().max(1) * 4)
}

/// Returns the order in which servers are tried when none is usable: each in turn, the first one
/// given by `attempt`. Servers that were never reached are tried only if there are no others.
pub(crate) fn panic_order(attempt: usize, were_reached: &[bool]) -> Order {
    let reached = |index: &usize| were_reached.get(*index) == Some(&true);
    let mut order: Order = (0..were_reached.len()).filter(reached).collect();
    if order.is_empty() {
        order = (0..were_reached.len()).collect();
    }
    let first = attempt.checked_rem(order.len()).unwrap_or_default();
    order.rotate_left(first);
    order
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Latencies below this are the same: they are noise.
const LATENCY_MIN: f64 = 0.001;
/// Keeps the division by the part finite.
const PART_MIN: f64 = 0.01;

#[cfg(test)]
mod tests;
