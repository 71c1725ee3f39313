//! The open watches of each client, from caches and forwarded ones together, and their limit
//! (`docs/decisions/limits-by-user.md`).
//!
//! A watch costs memory for as long as it is open, and nothing else bounds how many a user has:
//! one connection carries hundreds. A client that has proved no user counts for its address. A
//! sidecar has no users, and counts nothing.
//!
//! A watch counts until the last clone of its [`CountedWatch`] is dropped, with its body.
//!
//! Lock: that of the table, for a look-up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::flow::departures::Departures;
use crate::server::connection::client_id::ClientId;
use crate::server::http::refusal;
use crate::server::metrics::ServerMetrics;
use crate::server::request::rejection::Rejection;
use crate::telemetry::log_throttle::LogThrottle;

/// The open watches of all clients.
pub(crate) struct OpenWatches {
    /// Never holds a client without an open watch.
    table: Mutex<HashMap<ClientId, WatchesOfClient>>,
    most: usize,
    began: Instant,
    metrics: ServerMetrics,
    refusals: LogThrottle,
}

#[derive(Debug, Default)]
struct WatchesOfClient {
    open: usize,
    departures: Departures,
}

/// A watch that counts for its client until this is dropped.
pub(crate) struct CountedWatch {
    watches: Arc<OpenWatches>,
    client: ClientId,
}

impl OpenWatches {
    /// A client may have `most` open watches.
    pub(crate) fn new(most: usize, metrics: ServerMetrics) -> Arc<Self> {
        let refusals = LogThrottle::new(LOG_INTERVAL);
        Arc::new(Self { table: Mutex::default(), most, began: Instant::now(), metrics, refusals })
    }

    /// Counts a watch of a client, or refuses it. The `Retry-After` is when one of the client's
    /// watches will probably have ended.
    pub(crate) fn open(self: &Arc<Self>, client: ClientId) -> Result<Arc<CountedWatch>, Rejection> {
        let now = self.began.elapsed();
        let mut table = self.table.lock();
        let of_client = table.entry(client).or_default();
        if of_client.open < self.most {
            of_client.open += 1;
            drop(table);
            return Ok(Arc::new(CountedWatch { watches: Arc::clone(self), client }));
        }
        let wait = of_client.departures.wait(now);
        drop(table);
        Err(self.refuse(wait))
    }

    fn refuse(&self, wait: Duration) -> Rejection {
        self.metrics.limits().watches_refused.inc();
        let most = self.most;
        if let Some(suppressed) = self.refusals.try_acquire() {
            tracing::warn!(most, suppressed, "a user has too many watches open; refusing more");
        }
        let message = format!("weir: more than {most} open watches of this client");
        Rejection::with_shed(refusal::limited(wait, message), WATCHES)
    }
}

impl Drop for CountedWatch {
    fn drop(&mut self) {
        let now = self.watches.began.elapsed();
        let mut table = self.watches.table.lock();
        if let Entry::Occupied(mut of_client) = table.entry(self.client) {
            let WatchesOfClient { open, departures } = of_client.get_mut();
            *open = open.saturating_sub(1);
            departures.leave(now);
            if *open == 0 {
                of_client.remove();
            }
        }
    }
}

impl fmt::Debug for OpenWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenWatches").field("most", &self.most).finish_non_exhaustive()
    }
}

impl fmt::Debug for CountedWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedWatch").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The reason in `X-Weir-Shed`, which an operator's rule about watches has too.
const WATCHES: &str = "watches";
/// A flood of refusals is logged once in this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::user::User;

    fn user(name: &str) -> ClientId {
        let user = User::new(name.to_owned(), String::new(), Vec::new(), [].into());
        ClientId::from_user_or_address(Some(&user), None)
    }

    fn watches(most: usize) -> Arc<OpenWatches> {
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        OpenWatches::new(most, metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_so_many_and_others_theirs() {
        let watches = watches(2);
        let open = |name| watches.open(user(name));
        let first = open("jane").unwrap();
        let second = open("jane").unwrap();
        let refused = open("jane").unwrap_err();
        assert_eq!(
            (refused.shed(), refused.status.retry_after_seconds),
            (Some("watches"), Some(30))
        );
        let others = [open("joe").unwrap(), open("joe").unwrap()];
        // A clone is the same watch.
        drop(Arc::clone(&first));
        assert!(open("jane").is_err());
        drop(first);
        let third = open("jane").unwrap();
        drop((second, third, others));
        assert!(watches.table.lock().is_empty());
        assert_eq!(watches.metrics.limits().watches_refused.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_comes_back_when_watches_have_ended() {
        let watches = watches(10);
        let mut open: Vec<_> = (0..10).map(|_| watches.open(user("jane")).unwrap()).collect();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            open.remove(0);
            open.push(watches.open(user("jane")).unwrap());
        }
        let wait = || watches.open(user("jane")).unwrap_err().status.retry_after_seconds.unwrap();
        let [first, second, third] = [wait(), wait(), wait()];
        assert_eq!((second - first, third - first), (1, 2), "one ends each second");
        assert!(first <= 2, "{first}");
    }
}
