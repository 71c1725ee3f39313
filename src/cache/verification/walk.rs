//! The walk through the pages of one cache.
//!
//! In a collection of several pages it begins after a random key, so that a Weir that is restarted
//! often still checks all objects. It goes on behind the last object of each page, and from the end
//! of the collection to its begin. Keys may come and go meanwhile: each page is a check of its own.
//! A round is complete once the walk has passed the key at which the round began.

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
    /// The pages of metadata since the last one of whole objects.
    pages: u32,
}

impl Walk {
    /// Begins a walk after a key. `pages` is how many pages of metadata count as read already: a
    /// random number, so that small caches do not all have their first page of whole objects late.
    pub(crate) fn new(after: Option<Key>, pages: u32) -> Self {
        Self { began_after: after.clone(), after, has_wrapped: false, pages }
    }

    /// Returns the key after which the next page begins.
    pub(crate) fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Whether the turn of a page of whole objects has come.
    pub(crate) fn is_whole_due(&self) -> bool {
        self.pages + 1 >= WHOLE_EVERY
    }

    /// Goes on after a page was compared. `through` is its last key, if another page follows.
    /// Returns whether that completed a round.
    pub(crate) fn advance(&mut self, through: Option<Key>, was_whole: bool) -> bool {
        self.pages = if was_whole { 0 } else { self.pages.saturating_add(1) };
        let is_end = through.is_none();
        self.after = through;
        let is_past_begin = self.has_wrapped && self.after >= self.began_after;
        // A round that began at the begin of the collection ends at its end. One that has wrapped
        // ends there too: the key at which it began was the last one.
        let is_complete =
            is_past_begin || (is_end && (self.has_wrapped || self.began_after.is_none()));
        self.has_wrapped |= is_end;
        if is_complete {
            self.began_after = self.after.clone();
            self.has_wrapped = false;
        }
        is_complete
    }
}

/// One in this number of pages has whole objects, which are compared byte by byte.
pub(crate) const WHOLE_EVERY: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Option<Key> {
        Some(Key::new("ns", name))
    }

    #[test]
    fn a_round_wraps_and_passes_its_begin() {
        let mut walk = Walk::new(key("m"), 0);
        assert!(!walk.advance(key("t"), false));
        assert!(!walk.advance(None, false), "the end");
        assert_eq!(walk.after(), None);
        assert!(!walk.advance(key("f"), false));
        assert!(walk.advance(key("p"), false), "past m");
        assert_eq!(walk.after(), key("p").as_ref(), "the next round goes on");
        assert!(!walk.advance(None, false));
        assert!(walk.advance(None, false), "one page holds everything now");
    }

    #[test]
    fn a_single_page_is_a_round() {
        let mut walk = Walk::new(None, 0);
        assert!(walk.advance(None, false));
        assert!(walk.advance(None, false));
    }

    #[test]
    fn every_fiftieth_page_is_whole() {
        let mut walk = Walk::new(None, 0);
        let whole = (0..100).filter(|_| {
            let is_whole = walk.is_whole_due();
            walk.advance(None, is_whole);
            is_whole
        });
        assert_eq!(whole.collect::<Vec<_>>(), [49, 99]);
    }
}
