//! Which GETs from a cache are charged one by one, and which together.
//!
//! To classify a GET and to find its place among the costs takes some 2,000 instructions, 4 % of
//! what a GET from the cache takes. So beyond [`EACH_CHARGED`] of them in a second over one
//! connection, [`CHARGED_TOGETHER`] that are alike are charged at once. Alike are those of one
//! sender, user agent, resource and namespace, so that they have the same class, flow and origin,
//! and whose objects were all read just before, or all not. A connection that ends leaves a few
//! uncharged.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The hits of a connection that are not charged yet.
#[derive(Default)]
pub(super) struct UnchargedHits(Mutex<Uncharged>);

#[derive(Default)]
struct Uncharged {
    /// When the present second began.
    second: Option<Instant>,
    /// The hits in it.
    count: u32,
    /// The kind of all of `hits`.
    kind: HitKind,
    hits: Hits,
}

/// The kind of a hit: only hits of one kind are charged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HitKind {
    /// Stands for the sender, the user agent, the resource and the namespace.
    pub(super) subject: u64,
    /// Whether the object was read just before.
    pub(super) is_read_again: bool,
}

/// Hits that are charged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) requests: u32,
    /// The bytes of their bodies.
    pub(super) bytes: u64,
    /// For how long Weir worked for them.
    pub(super) busy: Duration,
}

impl UnchargedHits {
    /// Notes a hit at `now`. Returns what is to be charged: the hit and those before it that are
    /// not charged yet, or `None` if it is charged later.
    pub(super) fn note(&self, kind: HitKind, now: Instant, hit: Hits) -> Option<Hits> {
        let mut uncharged = self.0.lock();
        let is_over = |second: Instant| now.saturating_duration_since(second) >= SECOND;
        if uncharged.second.is_none_or(is_over) {
            (uncharged.second, uncharged.count) = (Some(now), 0);
        }
        uncharged.count += 1;
        if uncharged.hits.requests == 0 {
            uncharged.kind = kind;
        } else if uncharged.kind != kind {
            return Some(hit);
        }
        let hits = &mut uncharged.hits;
        hits.requests += hit.requests;
        hits.bytes += hit.bytes;
        hits.busy += hit.busy;
        let is_charged = hits.requests >= CHARGED_TOGETHER || uncharged.count <= EACH_CHARGED;
        is_charged.then(|| std::mem::take(&mut uncharged.hits))
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// The hits in a second that are charged one by one: more than a client sends that polls.
const EACH_CHARGED: u32 = 50;
/// The hits that are charged together beyond that.
const CHARGED_TOGETHER: u32 = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HIT: Hits = Hits { requests: 1, bytes: 100, busy: Duration::from_micros(5) };

    fn kind(subject: u64) -> HitKind {
        HitKind { subject, is_read_again: false }
    }

    #[test]
    fn hits_beyond_fifty_a_second_are_charged_together() {
        let (hits, start) = (UnchargedHits::default(), Instant::now());
        let charged = |millis: u64| {
            let now = start + Duration::from_millis(millis);
            hits.note(kind(1), now, HIT).map(|hits| hits.requests)
        };
        assert!((0..50).all(|_| charged(0) == Some(1)));
        let rest: Vec<_> = (0..70).filter_map(|_| charged(900)).collect();
        assert_eq!(rest, [32, 32]);
        // In the next second those that are left are charged, and then each one.
        assert_eq!((charged(1_000), charged(1_001)), (Some(7), Some(1)));
    }

    #[test]
    fn hits_of_different_kinds_are_not_charged_together() {
        let (hits, now) = (UnchargedHits::default(), Instant::now());
        while hits.note(kind(1), now, HIT).is_some() {}
        assert_eq!(hits.note(kind(2), now, HIT), Some(HIT));
        let again = HitKind { is_read_again: true, ..kind(1) };
        assert_eq!(hits.note(again, now, HIT), Some(HIT));
        assert_eq!((0..31).filter_map(|_| hits.note(kind(1), now, HIT)).count(), 1);
        assert_eq!(hits.note(kind(2), now, HIT), None);
    }

    proptest! {
        /// Whatever comes when, the hits of each kind are charged once, but for the last few.
        #[test]
        fn hits_are_charged_once(come in prop::collection::vec((0_u64..30, 0_u64..3), 1..900)) {
            let (hits, mut now) = (UnchargedHits::default(), Instant::now());
            let mut left = [0_i64; 3];
            for (gap, subject) in come {
                now += Duration::from_millis(gap);
                let left = &mut left[subject as usize];
                *left += 1;
                if let Some(charged) = hits.note(kind(subject), now, HIT) {
                    prop_assert_eq!(charged.bytes, HIT.bytes * u64::from(charged.requests));
                    prop_assert_eq!(charged.busy, HIT.busy * charged.requests);
                    *left -= i64::from(charged.requests);
                }
            }
            prop_assert!(left.iter().all(|left| *left >= 0));
            prop_assert!(left.iter().sum::<i64>() < i64::from(CHARGED_TOGETHER));
        }
    }
}
