//! Open watches that show the same to one process: how many of each are open.
//!
//! A process is a connection over HTTP/2, over which client-go sends all watches of a clientset.
//! Over HTTP/1.1 each watch has a connection of its own: there a process is an address with a user
//! agent that names the program. Clients on this host, of which several may be the same program,
//! are no one process.

use crate::tasks::keyed_counter::{Before, Counted, KeyedCounter};

/// The open watches, by a hash of who watches what.
#[derive(Debug, Default)]
pub(super) struct TwinWatches(KeyedCounter<u64>);

/// An open watch.
pub(super) type OpenTwin = Counted<u64>;

impl TwinWatches {
    /// Counts a watch. Returns also whether two others of the same were open. `None` if there are
    /// too many watches to count it.
    pub(super) fn open(&self, hash: u64) -> Option<(OpenTwin, bool)> {
        let admit = |before: Before<'_, ()>| match before.count {
            0 if before.keys >= WATCHES_MAX => Err(()),
            count => Ok(count >= TWINS),
        };
        self.0.try_add(hash, admit).ok()
    }
}

/// One watch may begin before the last one ends.
const TWINS: usize = 2;
/// Different watches that are counted: about half a MiB.
const WATCHES_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_of_the_same_is_a_twin() {
        let twins = TwinWatches::default();
        let open = |hash| twins.open(hash).unwrap();
        let (first, other) = (open(1), open(2));
        assert!(!first.1 && !other.1);
        let second = open(1);
        assert!(!second.1, "two may overlap");
        assert!(open(1).1);
        drop(second);
        assert!(!open(1).1, "the third and the second have ended");
        drop((first, other));
        assert_eq!(twins.0.keys(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let twins = TwinWatches::default();
        let kept: Vec<_> = (0..2 * WATCHES_MAX as u64).map(|hash| twins.open(hash)).collect();
        assert_eq!(kept.iter().flatten().count(), WATCHES_MAX);
        assert!(twins.open(0).is_some(), "a known one is counted");
    }
}
