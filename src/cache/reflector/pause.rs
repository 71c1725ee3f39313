//! How a reflector waits after a failure, and what ends the wait before its time.
//!
//! The reads of its resource show that the upstream answers, or that its history may have been
//! rewound ([`ReflectorRequests`]). Without such reads the reflector verifies the history itself
//! while it waits: its cache goes on answering, and its watches stay open, so that a restored etcd
//! must be noticed soon, however long the wait is.
//!
//! [`ReflectorRequests`]: crate::cache::cached_resource::reflector_requests::ReflectorRequests

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cache::cached_resource::CachedResource;
use crate::cache::progress::PROBE_TIMEOUT;
use crate::cache::reflector::backoff::{self, Backoff};
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::state::Verify;
use crate::cache::reflector::waiting::Waiting;

impl Driver {
    /// Waits before the next attempt, unless the reflector must do something else first. When the
    /// upstream comes back after it was away, the rest of the wait is replaced by a short one at
    /// random, so that all caches refill soon and not at once.
    pub(super) async fn pause(&mut self, wait: Duration, is_resume: bool) {
        let cached = self.cached.clone();
        let generation = self.generation.clone();
        let end = Instant::now() + wait;
        if self.waiting.verify_at.is_none() {
            self.waiting.set_verification();
        }
        loop {
            tokio::select! {
                () = sleep_until(end) => return,
                // A list may be large, and always waits.
                () = self.wait_for_early_resume(), if is_resume => {
                    self.waiting.resumed_early = Some(Instant::now());
                    return;
                }
                is_same = self.verify_when_due() => {
                    self.waiting.set_verification();
                    if is_same && is_resume && self.waiting.early_resume_at.is_some() {
                        return;
                    }
                }
                () = wait_for_other_work(&cached, generation.clone()) => return,
                () = cached.context.availability.until_returned() => break,
            }
        }
        self.backoff = Backoff::default();
        tokio::select! {
            () = sleep(backoff::after_return(cached.key.is_needed_first())) => {}
            () = wait_for_other_work(&cached, generation) => {}
        }
    }

    /// Waits until the back-off before a watch is resumed should end early: the upstream answers
    /// proofs of freshness, so that the watch can probably be opened; or such a proof returned a
    /// resourceVersion below the held one, which may mean that the history was rewound. A wait that
    /// the upstream asked for is kept.
    async fn wait_for_early_resume(&self) {
        let Some(earliest) = self.waiting.early_resume_at else {
            return std::future::pending().await;
        };
        sleep_until(earliest).await;
        let requests = &self.cached.requests;
        let resume = async {
            sleep(EARLY_RESUME_INTERVAL).await;
            requests.resume.notified().await;
        };
        let verify = async {
            if let Some(last) = self.waiting.resumed_early {
                sleep_until(last + EARLY_RESUME_INTERVAL).await;
            }
            requests.verify.notified().await;
        };
        tokio::select! {
            () = resume => {}
            () = verify => {}
        }
    }

    /// Verifies the history when that is due. Returns whether it is still the held one; a rewind
    /// is reported. Without a held state there is nothing to verify, and while the upstream is
    /// away nothing is asked.
    async fn verify_when_due(&self) -> bool {
        let Waiting { verify_at, quiet_until, .. } = self.waiting;
        let Some(due) = verify_at.filter(|_| self.held().is_some()) else {
            return std::future::pending().await;
        };
        sleep_until(quiet_until.map_or(due, |until| until.max(due))).await;
        if !self.cached.context.availability.is_usable() {
            return false;
        }
        let verified = tokio::time::timeout(PROBE_TIMEOUT, self.verify_history(Verify::History));
        matches!(verified.await, Ok(Ok(()))) && !self.is_rewound()
    }
}

/// Waits until the history is rewound or the cache is retired.
async fn wait_for_other_work(cached: &CachedResource, mut generation: Receiver<u64>) {
    tokio::select! {
        _ = generation.changed() => {}
        () = cached.lifecycle.until_retired() => {}
    }
}

/// The shortest time between two attempts of which the later one ends a back-off early.
const EARLY_RESUME_INTERVAL: Duration = Duration::from_secs(1);
