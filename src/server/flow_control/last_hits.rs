//! The last GETs of a connection that a cache answered, by their common attributes.
//!
//! To classify a GET takes some 2,000 instructions, 4 % of those of the whole GET. So a connection
//! remembers its last [`Pattern`]s: a GET of the same sender, user agent, resource and namespace
//! has the same class, flow and origin. Nothing is a sample. [`hit_charges`](super::hit_charges)
//! charges them.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::api::resource::ApiResource;
use crate::server::flow_control::plan::Class;
use crate::server::flow_control::requester::Requester;

/// The patterns of the last GETs of a connection, the latest last.
#[derive(Default)]
pub(super) struct LastHits(pub(super) Vec<Pattern>);

/// The common attributes of GETs that are charged alike.
pub(super) struct Pattern {
    /// The number of the plan.
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
    /// Remembers a pattern, in place of the oldest one if there are many.
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
