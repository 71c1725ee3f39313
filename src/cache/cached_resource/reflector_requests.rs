//! Requests to the reflector of a cache.

use tokio::sync::Notify;

/// Pending requests to a reflector. A request that is repeated before the reflector takes it counts
/// once.
#[derive(Debug, Default)]
pub(crate) struct ReflectorRequests {
    verify: Notify,
    relist: Notify,
    resume: Notify,
}

impl ReflectorRequests {
    /// Requests a check whether the upstream's history was rewound.
    pub(crate) fn request_verify(&self) {
        self.verify.notify_one();
    }

    /// Requests a new list, because the upstream may now write the same objects in other bytes.
    pub(crate) fn request_relist(&self) {
        self.relist.notify_one();
    }

    /// Requests an early end of a back-off, because the upstream answers other requests.
    pub(crate) fn request_resume(&self) {
        self.resume.notify_one();
    }

    /// Waits for a request to check the history, and takes it. Cancel safe.
    pub(crate) async fn verify_requested(&self) {
        self.verify.notified().await;
    }

    /// Waits for a request for a new list, and takes it. Cancel safe.
    pub(crate) async fn relist_requested(&self) {
        self.relist.notified().await;
    }

    /// Waits for a request to end the back-off, and takes it. Cancel safe.
    pub(crate) async fn resume_requested(&self) {
        self.resume.notified().await;
    }
}
