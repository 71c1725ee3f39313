//! Open watches that show the same to one process: how many of each are open.
//!
//! A process is a connection over HTTP/2, over which client-go sends all watches of a clientset.
//! Over HTTP/1.1 each watch has a connection of its own: there a process is an address with a user
//! agent that names the program. Clients on this host, of which several may be the same program,
//! are no one process.
//!
//! Lock order: alone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The open watches, by a hash of who watches what.
#[derive(Clone, Debug, Default)]
pub(super) struct TwinWatches {
    open: Arc<Mutex<HashMap<u64, u32>>>,
}

/// An open watch.
#[derive(Debug)]
pub(super) struct OpenTwin {
    of: TwinWatches,
    hash: u64,
}

impl TwinWatches {
    /// Counts a watch. Returns also whether two others of the same were open. `None` if there are
    /// too many watches to count it.
    pub(super) fn open(&self, hash: u64) -> Option<(OpenTwin, bool)> {
        let mut open = self.open.lock();
        if open.len() >= WATCHES_MAX && !open.contains_key(&hash) {
            return None;
        }
        let count = open.entry(hash).or_default();
        let is_twin = *count >= TWINS;
        *count += 1;
        Some((OpenTwin { of: self.clone(), hash }, is_twin))
    }
}

impl Drop for OpenTwin {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        if let Some(count) = open.get_mut(&self.hash) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.hash);
            }
        }
    }
}

/// One watch may begin before the last one ends.
const TWINS: u32 = 2;
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
        assert!(twins.open.lock().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let twins = TwinWatches::default();
        let kept: Vec<_> = (0..2 * WATCHES_MAX as u64).map(|hash| twins.open(hash)).collect();
        assert_eq!(kept.iter().flatten().count(), WATCHES_MAX);
        assert!(twins.open(0).is_some(), "a known one is counted");
    }
}
