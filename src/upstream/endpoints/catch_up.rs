//! The progress of the watch caches of one API server, for reads that may show an older state.
//!
//! Such reads of a client stay at one server ([`sticky`]). When the client is given another one,
//! that one may lag behind the state that the first has shown. So before the first such read there,
//! Weir reads the collection twice with its own identity: one object consistently, which shows
//! etcd's present resourceVersion, and then a list not older than that, for which the server waits
//! until its watch cache is there. A state that any server has shown before the first of the two
//! was sent is older than that. One check is enough for all clients that were given the server
//! before it began (`docs/decisions/several-api-servers.md`).
//!
//! Reads wait in [`CatchUps::reached`]; [`catch_up_checks`] does the checks, in a whole Weir only.
//!
//! Lock: that of the collections, held for a look-up.
//!
//! [`sticky`]: super::sticky
//! [`catch_up_checks`]: super::catch_up_checks

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The checks of one API server, by collection.
#[derive(Debug, Default)]
pub(crate) struct CatchUps {
    collections: Mutex<HashMap<Arc<str>, Collection>>,
    /// Notified when a check is wanted.
    wanted: Notify,
    /// Notified when a check has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Collection {
    is_wanted: bool,
    /// The start of the latest check that found the server up to date.
    reached: Option<Instant>,
    /// The outcome of the latest check that did not, and until when it is believed.
    failed: Option<(CatchUp, Instant)>,
}

/// The state of a server's watch cache of a collection, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// It has reached what other servers had shown.
    Reached,
    /// It lags.
    Behind,
    /// The check failed.
    Failed,
    /// Weir may not list the collection.
    Unknown,
}

impl CatchUps {
    /// Returns whether the server's watch cache of a collection has reached what was shown before
    /// `since`. Waits for a check if there was none since then.
    pub(crate) async fn reached(&self, collection: &Arc<str>, since: Instant) -> CatchUp {
        let asked = Instant::now();
        let check = async {
            loop {
                let mut ended = pin!(self.ended.notified());
                ended.as_mut().enable();
                if let Some(outcome) = self.result_since(collection, since, asked) {
                    return outcome;
                }
                ended.await;
            }
        };
        timeout(WAIT_MAX, check).await.unwrap_or(CatchUp::Failed)
    }

    /// Returns what a check has found; if there was none, asks for one.
    fn result_since(
        &self,
        collection: &Arc<str>,
        since: Instant,
        asked: Instant,
    ) -> Option<CatchUp> {
        let mut collections = self.collections.lock();
        if collections.len() >= COLLECTIONS_MAX && !collections.contains_key(collection) {
            collections.clear();
        }
        let last_check = collections.entry(Arc::clone(collection)).or_default();
        if last_check.reached >= Some(since) {
            return Some(CatchUp::Reached);
        }
        if let Some((outcome, until)) = last_check.failed
            && until >= asked
        {
            return Some(outcome);
        }
        if !std::mem::replace(&mut last_check.is_wanted, true) {
            self.wanted.notify_one();
        }
        None
    }

    /// Waits until a check is wanted, and returns the collection.
    pub(super) async fn next(&self) -> Arc<str> {
        loop {
            let wanted = self.take_wanted();
            match wanted {
                Some(collection) => return collection,
                None => self.wanted.notified().await,
            }
        }
    }

    fn take_wanted(&self) -> Option<Arc<str>> {
        let mut collections = self.collections.lock();
        let (name, last_check) =
            collections.iter_mut().find(|(_, last_check)| last_check.is_wanted)?;
        last_check.is_wanted = false;
        Some(Arc::clone(name))
    }

    /// Notes the outcome of a check that began at `begun`.
    pub(super) fn note(&self, collection: &Arc<str>, begun: Instant, outcome: CatchUp) {
        if let Some(last_check) = self.collections.lock().get_mut(collection) {
            match outcome {
                CatchUp::Reached => (last_check.reached, last_check.failed) = (Some(begun), None),
                CatchUp::Unknown => {
                    last_check.failed = Some((outcome, Instant::now() + UNKNOWN_FOR))
                }
                _ => last_check.failed = Some((outcome, Instant::now() + BEHIND_FOR)),
            }
        }
        self.ended.notify_waiters();
    }
}

/// The longest time that a read waits for a check, which may have to wait for others.
const WAIT_MAX: Duration = Duration::from_secs(6);
/// How long a server that lags, or did not answer, is not checked again. Such a check takes some
/// seconds.
const BEHIND_FOR: Duration = Duration::from_secs(1);
/// How long it is believed that Weir may not check.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// The collections of one server that are remembered. Clients choose their names.
const COLLECTIONS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_check_is_enough_for_all_that_came_before_it() {
        let catch_ups = CatchUps::default();
        let pods: Arc<str> = Arc::from("/api/v1/pods");
        let first = Instant::now();
        let checks = async {
            let mut checked = Vec::new();
            for outcome in [CatchUp::Reached, CatchUp::Behind] {
                let collection = catch_ups.next().await;
                catch_ups.note(&collection, Instant::now(), outcome);
                checked.push(collection);
            }
            checked
        };
        let reads = async {
            let both = (catch_ups.reached(&pods, first), catch_ups.reached(&pods, first));
            assert_eq!(tokio::join!(both.0, both.1), (CatchUp::Reached, CatchUp::Reached));
            assert_eq!(catch_ups.reached(&pods, first).await, CatchUp::Reached);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(catch_ups.reached(&pods, Instant::now()).await, CatchUp::Behind);
            assert_eq!(catch_ups.reached(&pods, first).await, CatchUp::Reached);
        };
        let (checked, ()) = tokio::join!(checks, reads);
        assert_eq!(checked, [pods.clone(), pods]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_does_not_wait_for_ever() {
        let (catch_ups, begun) = (CatchUps::default(), Instant::now());
        let pods: Arc<str> = Arc::from("/api/v1/pods");
        assert_eq!(catch_ups.reached(&pods, begun).await, CatchUp::Failed);
        assert_eq!(begun.elapsed(), WAIT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_collections_is_bounded() {
        let catch_ups = CatchUps::default();
        for number in 0..3 * COLLECTIONS_MAX {
            let name = Arc::from(format!("/api/v1/namespaces/{number}/pods"));
            assert_eq!(catch_ups.result_since(&name, Instant::now(), Instant::now()), None);
        }
        assert!(catch_ups.collections.lock().len() <= COLLECTIONS_MAX);
    }
}
