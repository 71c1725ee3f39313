//! The objects that were read last by GETs: a client that reads one again and again polls.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

/// Hashes of the last objects that were read, and until when a GET reads one again.
#[derive(Default)]
pub(super) struct LastGets(SmallVec<[(u64, Instant); GETS_MAX]>);

impl LastGets {
    /// Notes a GET of an object at `now`. Returns whether the same object was read just before.
    pub(super) fn is_read_again(&mut self, object: u64, now: Instant) -> bool {
        let until = now + READ_AGAIN_WITHIN;
        if let Some((_, read)) = self.0.iter_mut().find(|(last_object, _)| *last_object == object) {
            return now < std::mem::replace(read, until);
        }
        if self.0.len() == GETS_MAX {
            self.0.remove(0);
        }
        self.0.push((object, until));
        false
    }
}

/// A loop reads few objects. One over more than these is not found: each GET from a cache looks
/// through them.
const GETS_MAX: usize = 4;
/// A leader election reads its lease every two seconds.
const READ_AGAIN_WITHIN: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_object_that_is_read_each_second_is_read_again() {
        let (mut gets, start) = (LastGets::default(), Instant::now());
        assert!(!gets.is_read_again(1, start));
        assert!(gets.is_read_again(1, start + SECOND));
        assert!(!gets.is_read_again(1, start + 3 * SECOND), "a leader election");
        for object in 2..20 {
            assert!(!gets.is_read_again(object, start + 3 * SECOND), "many objects");
        }
        assert!(!gets.is_read_again(1, start + 3 * SECOND));
        assert_eq!(gets.0.len(), GETS_MAX);
    }
}
