//! The memory of a connection for flow control. It has the candidates of the last user: most
//! connections have one user, so that a request compares no subject. It has the last lists, so that
//! a repeated one is known as such, the last GETs, and the last refusals.
//!
//! Lock order: each lock alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::api::resource::ApiResource;
use crate::auth::user::{User, UserKey};
use crate::flow::candidates::Candidates;
use crate::server::flow_control::plan::{ActivePlan, Class};
use crate::server::flow_control::requester::Requester;

#[derive(Default)]
pub(crate) struct FlowMemo {
    last_user: Mutex<Option<LastUser>>,
    /// The last GETs that a cache answered, which are charged alike.
    hits: Mutex<LastHits>,
    /// The last different lists, the latest last.
    lists: Mutex<SmallVec<[KnownList; LISTS_INLINE]>>,
    /// The objects of the last other GETs.
    objects: Mutex<LastObjects>,
    refusals: Mutex<Vec<Refusal>>,
    has_refusals: AtomicBool,
}

struct KnownList {
    /// A hash of the request.
    list: u64,
    /// When it was asked for last, in seconds since any moment.
    second: u32,
    repeats: u8,
}

#[derive(Clone, Copy)]
struct Refusal {
    /// A hash of the request.
    request: u64,
    /// When the response was made.
    refused: Instant,
    /// The time from which it may come again.
    until: Instant,
}

struct LastUser {
    plan: u64,
    user: UserKey,
    candidates: Arc<Candidates>,
}

impl FlowMemo {
    pub(super) fn candidates(&self, active: &ActivePlan, user: &User) -> Arc<Candidates> {
        let mut last = self.last_user.lock();
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

    /// Notes a list at `second`. Returns whether it is repeated again and again: a disturbance of
    /// the API server, which all informers of a fleet see, costs each a list or two.
    pub(super) fn is_repeated(&self, list: u64, second: u32) -> bool {
        let mut lists = self.lists.lock();
        if let Some(previous) = lists.iter_mut().find(|previous| previous.list == list) {
            let is_forgotten = second.saturating_sub(previous.second) > REPEATED_WITHIN_SECONDS;
            previous.second = second;
            previous.repeats = if is_forgotten { 0 } else { previous.repeats.saturating_add(1) };
            return previous.repeats >= REPEATS_MIN;
        }
        if lists.len() == LISTS_MAX {
            lists.remove(0);
        }
        lists.push(KnownList { list, second, repeats: 0 });
        false
    }

    /// Notes a GET of an object at `now`. Returns whether the same object was read just before.
    pub(super) fn is_read_again(&self, object: u64, now: Instant) -> bool {
        self.objects.lock().is_read_again(object, now)
    }

    /// Returns the last GETs that a cache answered. No other lock is taken while this is held.
    pub(super) fn last_hits(&self) -> MutexGuard<'_, LastHits> {
        self.hits.lock()
    }

    /// Whether requests were refused that would come too early at `now`. Forgets the others.
    #[inline]
    pub(super) fn has_refusals(&self, now: Instant) -> bool {
        self.has_refusals.load(Ordering::Relaxed) && self.still_has_refusals(now)
    }

    fn still_has_refusals(&self, now: Instant) -> bool {
        let mut refusals = self.refusals.lock();
        refusals.retain(|refusal| now < refusal.until);
        self.has_refusals.store(!refusals.is_empty(), Ordering::Relaxed);
        !refusals.is_empty()
    }

    /// Notes that a request was refused now, and may come again after `wait`. Of requests that are
    /// in flight at the same time, the refusal of the first one counts: it ends first.
    pub(super) fn refuse(&self, request: u64, now: Instant, wait: Duration) {
        let mut refusals = self.refusals.lock();
        refusals.retain(|refusal| now < refusal.until);
        if refusals.iter().any(|refusal| refusal.request == request) {
            return;
        }
        if refusals.len() == REFUSALS_MAX {
            refusals.remove(0);
        }
        refusals.push(Refusal { request, refused: now, until: now + wait });
        self.has_refusals.store(true, Ordering::Relaxed);
    }

    /// Whether a request that arrived at `arrived` was refused before, and came again too early.
    /// One that was in flight when the refusal was sent could not know of it.
    pub(super) fn is_early(&self, request: u64, arrived: Instant) -> bool {
        let mut refusals = self.refusals.lock();
        let is_again =
            |refusal: &Refusal| refusal.request == request && refusal.refused + IN_FLIGHT < arrived;
        let place = refusals.iter().position(is_again);
        let matching = place.map(|place| refusals.remove(place));
        if refusals.is_empty() {
            self.has_refusals.store(false, Ordering::Relaxed);
        }
        matching.is_some_and(|refusal| arrived < refusal.until)
    }
}

/// The patterns of the last GETs of a connection, the latest last.
///
/// To classify a GET takes some 2,000 instructions, 4 % of those of the whole GET. A GET of the
/// same sender, user agent, resource and namespace has the same class, flow and origin. Nothing is
/// a sample. [`hit_charges`](super::hit_charges) charges them.
#[derive(Default)]
pub(super) struct LastHits(pub(super) Vec<Pattern>);

/// The common attributes of GETs that are charged alike.
pub(super) struct Pattern {
    pub(super) plan: u64,
    pub(super) sender: Requester,
    pub(super) agent: Option<HeaderValue>,
    /// The resource as discovery described it: the same one until discovery changes.
    pub(super) resource: Arc<ApiResource>,
    pub(super) namespace: Arc<str>,
    pub(super) class: Arc<Class>,
    /// The hashes of the origins of objects that were not read just before, and of the others.
    pub(super) origins: [u64; 2],
    pub(super) objects: LastObjects,
}

/// Hashes of the last objects that were read, and until when a GET reads one again. A client that
/// reads one again and again polls.
#[derive(Default)]
pub(super) struct LastObjects(SmallVec<[(u64, Instant); OBJECTS_MAX]>);

impl LastHits {
    pub(super) fn push(&mut self, pattern: Pattern) {
        if self.0.len() >= PATTERNS_MAX {
            self.0.remove(0);
        }
        self.0.push(pattern);
    }
}

impl Pattern {
    /// Counts a GET of an object, which arrived at `now`. Returns the hash of its origin, and
    /// whether the object was read just before.
    pub(super) fn add(&mut self, object: u64, now: Instant, bytes: u64) -> (u64, bool) {
        self.class.metrics.add_hit(bytes);
        let is_read_again = self.objects.is_read_again(object, now);
        let [once, again] = self.origins;
        (if is_read_again { again } else { once }, is_read_again)
    }
}

impl LastObjects {
    /// Notes a GET of an object at `now`. Returns whether the same object was read just before.
    pub(super) fn is_read_again(&mut self, object: u64, now: Instant) -> bool {
        let until = now + READ_AGAIN_WITHIN;
        if let Some((_, read)) = self.0.iter_mut().find(|(last_object, _)| *last_object == object) {
            return now < std::mem::replace(read, until);
        }
        if self.0.len() == OBJECTS_MAX {
            self.0.remove(0);
        }
        self.0.push((object, until));
        false
    }
}

/// The time that a refusal takes to the client, and a request back, at most.
const IN_FLIGHT: Duration = Duration::from_millis(250);
/// Requests that one connection has refused at once, as far as they matter.
const REFUSALS_MAX: usize = 4;
/// Controllers with more kinds of lists on one connection are few.
const LISTS_MAX: usize = 16;
/// Those for which no memory is allocated.
const LISTS_INLINE: usize = 8;
/// Repetitions of a list that are no habit yet.
const REPEATS_MIN: u8 = 3;
/// A list that comes later counts as a first one.
const REPEATED_WITHIN_SECONDS: u32 = 3600;
/// The patterns of a connection. One that alternates between more has each GET classified.
pub(super) const PATTERNS_MAX: usize = 4;
/// A loop reads few objects. One over more than these is not found: each GET from a cache looks
/// through them.
const OBJECTS_MAX: usize = 4;
/// A leader election reads its lease every two seconds.
const READ_AGAIN_WITHIN: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_list_is_repeated_from_the_third_repetition_within_the_hour() {
        let memo = FlowMemo::default();
        let seen: Vec<_> = (0..6).map(|minute| memo.is_repeated(1, 60 * minute)).collect();
        assert_eq!(seen, [false, false, false, true, true, true]);
        assert!(!memo.is_repeated(2, 0), "another list");
        for hour in 2..9 {
            assert!(!memo.is_repeated(1, 3700 * hour), "one each hour, as disturbances come");
        }
        for list in 3..100 {
            assert!(!memo.is_repeated(list, 0));
        }
        assert_eq!(memo.lists.lock().len(), LISTS_MAX);
    }

    #[test]
    fn a_refused_request_is_early_before_its_time() {
        let (memo, start) = (FlowMemo::default(), Instant::now());
        let refuse = |request| memo.refuse(request, start, 2 * SECOND);
        assert!(!memo.has_refusals(start));
        refuse(1);
        assert!(memo.has_refusals(start));
        assert!(!memo.is_early(2, start + SECOND), "another request");
        assert!(memo.is_early(1, start + SECOND));
        assert!(!memo.has_refusals(start), "each refusal counts once");
        refuse(1);
        assert!(!memo.is_early(1, start + 2 * SECOND));
        refuse(1);
        assert!(!memo.has_refusals(start + 2 * SECOND), "it would not be early any more");
        for request in 0..100 {
            refuse(request);
        }
        assert_eq!(memo.refusals.lock().len(), REFUSALS_MAX);
    }

    /// Requests that were sent together are all refused, each a little later, and each comes again
    /// after its own `Retry-After`.
    #[test]
    fn requests_in_flight_do_not_know_of_a_refusal() {
        let (memo, start) = (FlowMemo::default(), Instant::now());
        let at = |tenths: u32| start + tenths * SECOND / 10;
        for tenths in 1..=12 {
            assert!(!memo.is_early(1, start), "it was sent before");
            memo.refuse(1, at(tenths), 2 * SECOND);
        }
        for tenths in 21..=32 {
            assert!(!memo.is_early(1, at(tenths)), "each comes after its own time");
        }
        assert!(!memo.has_refusals(at(33)));
    }

    #[test]
    fn an_object_that_is_read_each_second_is_read_again() {
        let (mut objects, start) = (LastObjects::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(!objects.is_read_again(1, start));
        assert!(objects.is_read_again(1, start + second));
        assert!(!objects.is_read_again(1, start + 3 * second), "a leader election");
        for object in 2..20 {
            assert!(!objects.is_read_again(object, start + 3 * second), "many objects");
        }
        assert!(!objects.is_read_again(1, start + 3 * second));
        assert_eq!(objects.0.len(), OBJECTS_MAX);
    }
}
