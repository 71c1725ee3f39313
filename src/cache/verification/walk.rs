//! The walk through the pages of one cache.
//!
//! In a collection of several pages a walk begins after a random key, so that a Weir that is
//! restarted often still checks all objects. It goes on behind the last object of each page, and
//! from the end of the collection to its begin. Keys may come and go meanwhile: each page is a
//! check of its own. A round is complete once the walk has passed the key at which the round began.
//!
//! Where not all pages can have whole objects, a round has a *run* of such pages. A run begins at
//! the key at which the run of the round before ended, whichever keys came and went. So the runs of
//! several rounds pass the whole collection.

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
    /// The key after which the run begins, or goes on.
    run_after: Option<Key>,
    /// The pages of the run that were compared since a round was complete.
    run_pages: u32,
}

impl Walk {
    /// Begins a walk after a key.
    pub(crate) fn new(after: Option<Key>) -> Self {
        let (began_after, run_after) = (after.clone(), after.clone());
        Self { after, began_after, has_wrapped: false, run_after, run_pages: 0 }
    }

    /// Returns the key after which the next page begins.
    pub(crate) fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Whether the next page is one of the run, which has `run` pages.
    pub(crate) fn is_in_run(&self, run: u32) -> bool {
        self.run_pages < run && self.after == self.run_after
    }

    /// Begins a round at the present position.
    pub(crate) fn begin_round(&mut self) {
        (self.began_after, self.has_wrapped) = (self.after.clone(), false);
    }

    /// Goes on after a page was compared. `through` is its last key, if another page follows; `run`
    /// is as for [`Self::is_in_run`]. Returns whether that completed a round.
    pub(crate) fn advance(&mut self, through: Option<Key>, run: u32) -> bool {
        let is_in_run = self.is_in_run(run);
        let is_run_ahead = self.run_pages < run && self.after < self.run_after;
        let is_passed = through.is_none() || through > self.run_after;
        // The next page begins where the run does.
        let through = if is_run_ahead && is_passed { self.run_after.clone() } else { through };
        let is_end = through.is_none();
        self.after = through;
        if is_in_run {
            self.run_after.clone_from(&self.after);
            self.run_pages += 1;
        }
        let is_past_begin = self.has_wrapped && self.after >= self.began_after;
        // A round that began at the begin of the collection ends at its end. One that has wrapped
        // ends there too: the key at which it began was the last one.
        let is_complete =
            is_past_begin || (is_end && (self.has_wrapped || self.began_after.is_none()));
        self.has_wrapped |= is_end;
        if is_complete {
            self.begin_round();
            self.run_pages = 0;
        }
        is_complete
    }
}

/// The pages of a round through one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundPages {
    /// The number of pages, at least one.
    pub(crate) total: u32,
    pub(crate) whole: WholePages,
}

/// The pages of a round that have whole objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WholePages {
    /// None: bytes would prove nothing now.
    None,
    /// The run, which has this number of pages, and pages of few bytes.
    Run(u32),
    /// All.
    All,
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
        assert!(!walk.advance(key("t"), 0));
        assert!(!walk.advance(None, 0), "the end");
        assert_eq!(walk.after(), None);
        assert!(!walk.advance(key("f"), 0));
        assert!(walk.advance(key("p"), 0), "past m");
        assert_eq!(walk.after(), key("p").as_ref(), "the next round goes on");
        assert!(!walk.advance(None, 0));
        assert!(walk.advance(None, 0), "one page holds everything now");
    }

    #[test]
    fn a_single_page_is_a_round() {
        let mut walk = Walk::new(None);
        assert!(walk.advance(None, 0));
        assert!(walk.advance(None, 0));
    }
}
