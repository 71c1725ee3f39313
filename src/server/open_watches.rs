//! The open watches of each client, from caches and forwarded ones together, and their limit
//! (`docs/decisions/limits-by-user.md`).
//!
//! A watch costs memory for as long as it is open, and nothing else bounds how many a user has:
//! one connection carries hundreds. A client that has proved no user counts for its address. A
//! sidecar has no users, and counts nothing.
//!
//! A watch counts until the last clone of its [`CountedWatch`] is dropped, with its body. Nobody
//! knows when one ends, so who is refused is to come again after half a minute.

use std::sync::Arc;
use std::time::Duration;

use crate::server::connection::client_id::ClientId;
use crate::server::http::refusal;
use crate::server::metrics::ServerMetrics;
use crate::server::request::rejection::Rejection;
use crate::tasks::keyed_counter::{Counted, KeyedCounter};
use crate::telemetry::log_throttle::LogThrottle;

#[derive(Debug)]
pub(crate) struct OpenWatches {
    counter: KeyedCounter<ClientId>,
    most: usize,
    metrics: ServerMetrics,
    refusals: LogThrottle,
}

/// A watch that counts for its client until this is dropped.
pub(crate) type CountedWatch = Counted<ClientId>;

impl OpenWatches {
    /// A client may have `most` open watches.
    pub(crate) fn new(most: usize, metrics: ServerMetrics) -> Arc<Self> {
        let refusals = LogThrottle::new(LOG_INTERVAL);
        Arc::new(Self { counter: KeyedCounter::default(), most, metrics, refusals })
    }

    pub(crate) fn open(&self, client: ClientId) -> Result<Arc<CountedWatch>, Rejection> {
        let opened = self.counter.try_add_below(client, self.most);
        opened.map(Arc::new).ok_or_else(|| self.refuse())
    }

    fn refuse(&self) -> Rejection {
        self.metrics.watches_refused().inc();
        let most = self.most;
        if let Some(suppressed) = self.refusals.try_acquire() {
            tracing::warn!(most, suppressed, "a user has too many watches open; refusing more");
        }
        let message = format!("weir: more than {most} open watches of this client");
        Rejection::with_shed(refusal::too_many_watches(message), WATCHES)
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
        assert_eq!(refused.shed(), Some("watches"));
        assert!(matches!(refused.status.retry_after_seconds, Some(24..=30)));
        let others = [open("joe").unwrap(), open("joe").unwrap()];
        // A clone is the same watch.
        drop(Arc::clone(&first));
        assert!(open("jane").is_err());
        drop(first);
        let third = open("jane").unwrap();
        drop((second, third, others));
        assert_eq!(watches.counter.keys(), 0);
        assert_eq!(watches.metrics.watches_refused().get(), 2);
    }
}
