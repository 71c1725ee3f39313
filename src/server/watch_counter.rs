//! Counts open watches by key, such as a client or the flow of an operator's rule.
//!
//! A watch counts until its [`CountedWatch`] is dropped. One that is refused learns when a watch of
//! its key will probably have ended (`docs/decisions/limits-by-user.md`).

use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::flow::departures::Departures;
use crate::tasks::keyed_counter::{Before, Counted, KeyedCounter};

/// The open watches of all keys. Cheap to clone: clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct WatchCounter<K> {
    counter: KeyedCounter<K, Departures>,
    began: Instant,
}

/// A watch that counts for its key until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedWatch<K: Eq + Hash> {
    counted: Counted<K, Departures>,
    began: Instant,
}

impl<K> Default for WatchCounter<K> {
    fn default() -> Self {
        Self { counter: KeyedCounter::default(), began: Instant::now() }
    }
}

impl<K: Clone + Eq + Hash> WatchCounter<K> {
    /// Counts a watch of a key that may have `most`. An error is the time after which one of the
    /// key's watches will probably have ended.
    pub(crate) fn open(&self, key: K, most: usize) -> Result<CountedWatch<K>, Duration> {
        let admit = |before: Before<'_, Departures>| {
            if before.count < most { Ok(()) } else { Err(before.note.wait(self.began.elapsed())) }
        };
        let (counted, ()) = self.counter.try_add(key, admit)?;
        Ok(CountedWatch { counted, began: self.began })
    }

    /// Returns the number of keys that have an open watch.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.counter.keys()
    }
}

impl<K: Eq + Hash> Drop for CountedWatch<K> {
    fn drop(&mut self) {
        let now = self.began.elapsed();
        self.counted.note(|departures| departures.leave(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::departures::WAIT_MAX;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_key_has_so_many_and_others_theirs() {
        let watches = WatchCounter::default();
        let first = watches.open(1, 1).ok();
        assert!(first.is_some());
        assert_eq!(watches.open(1, 1).err(), Some(WAIT_MAX), "none has ended yet");
        let other = watches.open(2, 1).ok();
        assert!(other.is_some());
        assert_eq!(watches.open(3, 0).err(), Some(WAIT_MAX));
        drop(first);
        let again = watches.open(1, 1).ok();
        assert!(again.is_some());
        drop((other, again));
        assert_eq!(watches.counter.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_comes_back_when_watches_have_ended() {
        let watches = WatchCounter::default();
        let open = || watches.open(1, 10);
        let mut opened: Vec<CountedWatch<u64>> = (0..10).filter_map(|_| open().ok()).collect();
        for _ in 0..20 {
            tokio::time::sleep(SECOND).await;
            opened.remove(0);
            opened.extend(open().ok());
        }
        assert_eq!(opened.len(), 10);
        let waits: Vec<Duration> = (0..3).filter_map(|_| open().err()).collect();
        let [first, second, third] = waits[..] else { panic!("{waits:?}") };
        // One ends each second.
        assert!(first <= 2 * SECOND, "{first:?}");
        assert!(second - first <= 2 * SECOND && third - second <= 2 * SECOND, "{waits:?}");
    }
}
