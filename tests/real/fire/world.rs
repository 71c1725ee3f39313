//! The state that clients, writers and the faults share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::reference::Reference;
use super::report::Report;

/// The state of one run.
pub(super) struct World {
    /// The kubeconfig of Weir.
    pub(super) kubeconfig: PathBuf,
    /// The kubeconfig of the API servers themselves.
    pub(super) direct: PathBuf,
    pub(super) reference: Arc<Reference>,
    pub(super) report: Report,
    refusals: AtomicBool,
    quiet: AtomicBool,
}

impl World {
    pub(super) fn new(kubeconfig: PathBuf, direct: PathBuf, reference: Arc<Reference>) -> Self {
        let report = Report::default();
        let (refusals, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { kubeconfig, direct, reference, report, refusals, quiet }
    }

    /// Whether an API server may answer 403: while Weir's role is revoked, and from an API server
    /// that starts.
    pub(super) fn may_refuse(&self) -> bool {
        self.refusals.load(Ordering::Relaxed)
    }

    pub(super) fn set_refusals(&self, allowed: bool) {
        self.refusals.store(allowed, Ordering::Relaxed);
    }

    /// Stops or starts the writers.
    pub(super) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// Returns once writes are wanted.
    pub(super) async fn wait_for_writes(&self) {
        while self.quiet.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
