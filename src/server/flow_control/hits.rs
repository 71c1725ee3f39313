//! Which GETs from a cache are charged one by one, and which together.
//!
//! To classify a GET and to find its place among the costs takes some 2,000 instructions, 4 % of
//! what a GET from the cache takes. So beyond [`EACH_CHARGED`] of them in a second over one
//! connection, one of [`SAMPLED`] is charged for itself and for those before it. The sums of a user
//! stay exact, but for the last few of a connection. What such a connection reads is a sample.
//!
//! Hits that are charged together are of one user, also where users share a connection.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::user::UserKey;

/// The hits of a connection that are not charged yet.
#[derive(Default)]
pub(super) struct HitSampler(Mutex<Sample>);

#[derive(Default)]
struct Sample {
    /// When the present second began.
    second: Option<Instant>,
    /// The hits in it.
    count: u32,
    /// The user of `owed`; `None` in a sidecar.
    user: Option<UserKey>,
    owed: Hits,
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

impl HitSampler {
    /// Notes a hit of a user at `now`. Returns what is to be charged: the hit and those before it
    /// that are not charged yet, or `None` if it is charged later.
    pub(super) fn note(&self, user: Option<UserKey>, now: Instant, hit: Hits) -> Option<Hits> {
        let mut sample = self.0.lock();
        let is_over = |second: Instant| now.saturating_duration_since(second) >= SECOND;
        if sample.second.is_none_or(is_over) {
            (sample.second, sample.count) = (Some(now), 0);
        }
        sample.count += 1;
        if sample.owed.requests == 0 {
            sample.user = user;
        } else if sample.user != user {
            return Some(hit);
        }
        sample.owed.requests += hit.requests;
        sample.owed.bytes += hit.bytes;
        sample.owed.busy += hit.busy;
        let is_charged = sample.count <= EACH_CHARGED || sample.owed.requests >= SAMPLED;
        is_charged.then(|| std::mem::take(&mut sample.owed))
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// The hits in a second that are charged one by one: more than a client sends that polls.
const EACH_CHARGED: u32 = 50;
/// The hits that are charged together beyond that.
const SAMPLED: u32 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::auth::access_review::testing::user;

    const HIT: Hits = Hits { requests: 1, bytes: 100, busy: Duration::from_micros(5) };

    #[test]
    fn one_of_sixteen_is_charged_beyond_fifty_a_second() {
        let (hits, start) = (HitSampler::default(), Instant::now());
        let charged = |millis: u64| {
            hits.note(None, start + Duration::from_millis(millis), HIT).map(|hits| hits.requests)
        };
        assert!((0..50).all(|_| charged(0) == Some(1)));
        let rest: Vec<_> = (0..40).filter_map(|_| charged(900)).collect();
        assert_eq!(rest, [16, 16]);
        // The next second: those that were not charged yet, and then one by one.
        assert_eq!((charged(1_000), charged(1_001)), (Some(9), Some(1)));
    }

    #[test]
    fn users_are_not_charged_for_one_another() {
        let (hits, now) = (HitSampler::default(), Instant::now());
        let [alice, bob] = ["alice", "bob"].map(|name| Some(user(name, &[]).key()));
        while hits.note(alice, now, HIT).is_some() {}
        assert_eq!(hits.note(bob, now, HIT), Some(HIT));
        assert_eq!((0..15).filter_map(|_| hits.note(alice, now, HIT)).count(), 1);
        assert_eq!(hits.note(bob, now, HIT), None);
    }

    proptest! {
        /// Whatever comes when, all hits are charged but for the last few.
        #[test]
        fn hits_are_charged_once(gaps in prop::collection::vec(0_u64..60, 1..600)) {
            let (hits, mut now) = (HitSampler::default(), Instant::now());
            let mut charged = Hits::default();
            for gap in &gaps {
                now += Duration::from_millis(*gap);
                if let Some(more) = hits.note(None, now, HIT) {
                    charged.requests += more.requests;
                    charged.bytes += more.bytes;
                    charged.busy += more.busy;
                }
            }
            let all = u32::try_from(gaps.len()).unwrap();
            prop_assert!((all.saturating_sub(SAMPLED - 1)..=all).contains(&charged.requests));
            prop_assert_eq!(charged.bytes, HIT.bytes * u64::from(charged.requests));
            prop_assert_eq!(charged.busy, HIT.busy * charged.requests);
        }
    }
}
