//! Requests to the reflector of a cache.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pending requests to a reflector. A request that is repeated before the reflector takes it counts
/// once.
#[derive(Debug, Default)]
pub(crate) struct ReflectorRequests {
    /// To check whether the upstream's history was rewound.
    pub(crate) verify: Notify,
    /// To list again, because the upstream may now write the same objects in other bytes.
    pub(crate) relist: Notify,
    /// To end a back-off early, because the upstream answers other requests.
    pub(crate) resume: Notify,
    /// When an operator requested a list for the last time.
    asked: Mutex<Option<Instant>>,
}

impl ReflectorRequests {
    /// Requests a new list for an operator. Returns false if one was requested just before: a list
    /// costs the API server more than anybody gains by two of them.
    pub(crate) fn request_relist_by_operator(&self) -> bool {
        let mut asked = self.asked.lock();
        let is_granted = asked.is_none_or(|asked| asked.elapsed() >= ASKED_AGAIN_AFTER);
        if is_granted {
            *asked = Some(Instant::now());
            self.relist.notify_one();
        }
        is_granted
    }
}

/// The time between two lists that operators request.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn operators_get_one_list_in_ten_seconds() {
        let requests = ReflectorRequests::default();
        let asked = [(); 3].map(|()| requests.request_relist_by_operator());
        assert_eq!(asked, [true, false, false]);
        tokio::time::advance(ASKED_AGAIN_AFTER).await;
        assert!(requests.request_relist_by_operator());
    }
}
