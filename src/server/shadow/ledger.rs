//! The counts of the report: by kind of read, with the last differences. Bounded, and without any
//! content of the cluster beyond the names in a request's path.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use crate::flow::doctor::{SECONDS_PER_BYTE, SECONDS_PER_EVENT, SECONDS_PER_REQUEST};
use crate::server::delegate::Reason;
use crate::server::shadow::body::BodyDifference;
use crate::server::shadow::outcome::Outcome;
use crate::server::shadow::request::ReadKind;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    kinds: BTreeMap<ReadKind, Counts>,
    differences: VecDeque<Difference>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) seen: u64,
    pub(crate) equal: u64,
    pub(crate) different: u64,
    pub(crate) inconsistent: u64,
    pub(crate) not_comparable: BTreeMap<&'static str, u64>,
    /// Those that a cache would have forwarded, by reason: compared or not.
    pub(crate) not_held: BTreeMap<&'static str, u64>,
    /// Events of watches that were equal.
    pub(crate) events: u64,
    pub(crate) saved: Saved,
}

/// The work that the upstream would have been spared, by estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) cpu_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Why a cache would have forwarded it.
    pub(crate) forwards: Option<Reason>,
    /// The bytes of the upstream's answer.
    pub(crate) bytes: u64,
}

/// One difference, without content.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) time: SystemTime,
    pub(crate) kind: ReadKind,
    /// Path and query, with hashed selectors.
    pub(crate) request: String,
    pub(crate) form: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) what: DifferingPart,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DifferingPart {
    /// The status codes of the upstream and the cache.
    Status([u16; 2]),
    Header(String),
    Body(BodyDifference),
    /// An event of a watch, by its resourceVersion.
    Event(&'static str, u64, Option<BodyDifference>),
    /// The objects at the start of a watch: their number at the upstream and in the cache.
    Start([usize; 2], Option<BodyDifference>),
}

impl Ledger {
    pub(crate) fn count(&mut self, kind: &ReadKind, outcome: Outcome, measured: &Measured) {
        let counts = self.counts(kind);
        counts.seen += 1;
        match outcome {
            Outcome::Equal => counts.equal += 1,
            Outcome::Different => counts.different += 1,
            Outcome::UpstreamInconsistent => counts.inconsistent += 1,
            Outcome::NotComparable(cause) => {
                *counts.not_comparable.entry(cause.as_str()).or_default() += 1;
            }
            Outcome::NotHeld(reason) => *counts.not_held.entry(reason.as_str()).or_default() += 1,
        }
        if let Some(reason) = measured.forwards.filter(|_| !matches!(outcome, Outcome::NotHeld(_)))
        {
            *counts.not_held.entry(reason.as_str()).or_default() += 1;
        }
        if outcome == Outcome::Equal && measured.forwards.is_none() {
            counts.saved.requests += 1;
            counts.saved.bytes += measured.bytes;
            // The events of a watch have been counted by themselves.
            let bytes = if kind.verb == WATCH { 0.0 } else { measured.bytes as f64 };
            counts.saved.cpu_seconds += SECONDS_PER_REQUEST + bytes * SECONDS_PER_BYTE;
        }
    }

    /// Counts equal events of a watch that goes on.
    pub(crate) fn count_events(&mut self, kind: &ReadKind, events: u64) {
        let counts = self.counts(kind);
        counts.events += events;
        counts.saved.cpu_seconds += events as f64 * SECONDS_PER_EVENT;
    }

    pub(crate) fn keep(&mut self, difference: Difference) {
        if self.differences.len() >= DIFFERENCES_MAX {
            self.differences.pop_front();
        }
        self.differences.push_back(difference);
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&ReadKind, &Counts)> {
        self.kinds.iter()
    }

    /// Returns the last differences, the newest first.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().rev()
    }

    fn counts(&mut self, kind: &ReadKind) -> &mut Counts {
        let is_known = self.kinds.contains_key(kind);
        if !is_known && self.kinds.len() >= KINDS_MAX {
            let other = ReadKind { agent: OTHER.into(), verb: kind.verb, resource: OTHER.into() };
            return self.kinds.entry(other).or_default();
        }
        self.kinds.entry(kind.clone()).or_default()
    }
}

impl Counts {
    /// Returns the number of comparisons with a result. Each event of a watch is one.
    pub(crate) fn compared(&self) -> u64 {
        self.equal + self.different + self.inconsistent + self.events
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.equal += other.equal;
        self.different += other.different;
        self.inconsistent += other.inconsistent;
        self.events += other.events;
        self.saved.requests += other.saved.requests;
        self.saved.bytes += other.saved.bytes;
        self.saved.cpu_seconds += other.saved.cpu_seconds;
        for (into, from) in [
            (&mut self.not_comparable, &other.not_comparable),
            (&mut self.not_held, &other.not_held),
        ] {
            from.iter().for_each(|(reason, count)| *into.entry(*reason).or_default() += count);
        }
    }
}

pub(crate) const WATCH: &str = "watch";
const OTHER: &str = "(other)";
/// A cluster has some dozens of clients that read some dozens of resources each.
const KINDS_MAX: usize = 2_000;
/// Enough to see what they have in common.
const DIFFERENCES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::shadow::outcome::Cause;

    fn kind(agent: &str, verb: &'static str) -> ReadKind {
        ReadKind { agent: agent.into(), verb, resource: "pods".into() }
    }

    #[test]
    fn only_what_a_cache_would_have_answered_is_saved() {
        let mut ledger = Ledger::default();
        let list = kind("a", "list");
        let measured = Measured { bytes: 1_000_000, ..Measured::default() };
        ledger.count(&list, Outcome::Equal, &measured);
        let forwards = Measured { forwards: Some(Reason::Consistent), ..measured };
        ledger.count(&list, Outcome::Equal, &forwards);
        ledger.count(&list, Outcome::NotHeld(Reason::Form), &Measured::default());
        ledger.count(&list, Cause::Slow.into(), &Measured::default());
        let (_, counts) = ledger.kinds().next().unwrap();
        assert_eq!((counts.seen, counts.equal, counts.compared()), (4, 2, 2));
        assert_eq!((counts.saved.requests, counts.saved.bytes), (1, 1_000_000));
        assert!((counts.saved.cpu_seconds - 0.01225).abs() < 1e-9);
        assert_eq!(counts.not_held, [("consistent", 1), ("form", 1)].into());
        assert_eq!(counts.not_comparable, [("slow", 1)].into());
    }

    #[test]
    fn kinds_and_differences_are_bounded() {
        let mut ledger = Ledger::default();
        for number in 0..KINDS_MAX + 50 {
            let kind = kind(&number.to_string(), "get");
            ledger.count(&kind, Outcome::Equal, &Measured::default());
            ledger.keep(Difference {
                time: SystemTime::UNIX_EPOCH,
                kind,
                request: number.to_string(),
                form: "json",
                outcome: Outcome::Different,
                what: DifferingPart::Status([200, 404]),
            });
        }
        assert_eq!(ledger.kinds().count(), KINDS_MAX + 1);
        assert_eq!(ledger.kinds().map(|(_, counts)| counts.seen).sum::<u64>(), 2_050);
        assert_eq!(ledger.differences().count(), DIFFERENCES_MAX);
        assert_eq!(ledger.differences().next().unwrap().request, "2049");
    }
}
