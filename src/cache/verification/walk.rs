//! The walks through the pages of one cache.
//!
//! In a collection of several pages a walk begins after a random key, so that a Weir that is
//! restarted often still checks all objects. It goes on behind the last object of each page, and
//! from the end of the collection to its begin. Keys may come and go meanwhile: each page is a
//! check of its own. A round is complete once the walk has passed the key at which the round began.
//!
//! Where not all pages can have whole objects, a second walk compares only such pages, in turn with
//! those of the first. It passes the whole collection once in several rounds.

use crate::codec::object::Key;

/// The position of a walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// The key after which the next page begins; `None` for the first page.
    after: Option<Key>,
    /// The key after which the round began.
    began_after: Option<Key>,
    /// Whether the round has passed the end of the collection.
    has_wrapped: bool,
}

impl Walk {
    /// Begins a walk after a key.
    pub(crate) fn new(after: Option<Key>) -> Self {
        Self { began_after: after.clone(), after, has_wrapped: false }
    }

    /// Returns the key after which the next page begins.
    pub(crate) fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Begins a round at the present position.
    pub(crate) fn begin_round(&mut self) {
        (self.began_after, self.has_wrapped) = (self.after.clone(), false);
    }

    /// Goes on after a page was compared. `through` is its last key, if another page follows.
    /// Returns whether that completed a round.
    pub(crate) fn advance(&mut self, through: Option<Key>) -> bool {
        let is_end = through.is_none();
        self.after = through;
        let is_past_begin = self.has_wrapped && self.after >= self.began_after;
        // A round that began at the begin of the collection ends at its end. One that has wrapped
        // ends there too: the key at which it began was the last one.
        let is_complete =
            is_past_begin || (is_end && (self.has_wrapped || self.began_after.is_none()));
        self.has_wrapped |= is_end;
        if is_complete {
            self.begin_round();
        }
        is_complete
    }
}

/// The pages of a round through one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundPages {
    /// The pages of the first walk, which passes the whole collection; at least one.
    pub(crate) all: u32,
    /// Whether they have whole objects.
    pub(crate) is_whole: bool,
    /// The pages of the second walk, which have whole objects.
    pub(crate) more_whole: u32,
}

impl RoundPages {
    /// Returns the number of all pages.
    pub(crate) fn total(&self) -> u32 {
        self.all.saturating_add(self.more_whole)
    }

    /// Whether the page with this number is one of the second walk, whose pages are spread evenly.
    pub(crate) fn is_second(&self, number: u32) -> bool {
        let [number, more, total] = [number, self.more_whole, self.total()].map(u64::from);
        let before = |number: u64| number * more / total.max(1);
        before(number % total.max(1) + 1) > before(number % total.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Option<Key> {
        Some(Key::new("ns", name))
    }

    #[test]
    fn a_round_wraps_and_passes_its_begin() {
        let mut walk = Walk::new(key("m"));
        assert!(!walk.advance(key("t")));
        assert!(!walk.advance(None), "the end");
        assert_eq!(walk.after(), None);
        assert!(!walk.advance(key("f")));
        assert!(walk.advance(key("p")), "past m");
        assert_eq!(walk.after(), key("p").as_ref(), "the next round goes on");
        assert!(!walk.advance(None));
        assert!(walk.advance(None), "one page holds everything now");
    }

    #[test]
    fn a_single_page_is_a_round() {
        let mut walk = Walk::new(None);
        assert!(walk.advance(None));
        assert!(walk.advance(None));
    }

    #[test]
    fn the_pages_of_the_second_walk_are_spread_evenly() {
        for (total, more_whole) in [(1, 0), (51, 0), (51, 1), (1, 1), (3, 5), (100, 33)] {
            let pages = RoundPages { all: total, is_whole: false, more_whole };
            let second: Vec<_> = (0..2 * pages.total()).map(|page| pages.is_second(page)).collect();
            let count = |flags: &[bool]| flags.iter().filter(|is_second| **is_second).count();
            let (first, next) = second.split_at(pages.total() as usize);
            assert_eq!((count(first), first), (more_whole as usize, next));
            for window in second.windows(10) {
                let expected = 10.0 * f64::from(more_whole) / f64::from(pages.total());
                assert!((count(window) as f64 - expected).abs() < 2.0, "{total} and {more_whole}");
            }
        }
    }
}
