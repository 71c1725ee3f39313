//! The line of the log that says what is running, once the upstream has answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep};

use crate::app::build_info;
use crate::app::probe::Probe;
use crate::app::reload::hash;
use crate::auth::permission_check::PermissionCheck;
use crate::cache::registry::Registry;
use crate::config::{Config, Mode};
use crate::server::BoundListener;
use crate::upstream::Upstream;

/// The sources of the line.
pub(super) struct Announcement {
    probe: Probe,
    upstream: Upstream,
    registry: Registry,
    /// Reports missing permissions until it is dropped.
    permissions: Option<Arc<PermissionCheck>>,
    running: Arc<ArcSwap<Config>>,
    listeners: Vec<String>,
}

impl Announcement {
    pub(super) fn new(
        probe: &Probe,
        (upstream, registry): (Upstream, &Registry),
        permissions: Option<Arc<PermissionCheck>>,
        running: &Arc<ArcSwap<Config>>,
        listeners: &[BoundListener],
    ) -> Self {
        let (probe, registry, running) = (probe.clone(), registry.clone(), Arc::clone(running));
        let listeners = listeners.iter().map(ToString::to_string).collect();
        Self { probe, upstream, registry, permissions, running, listeners }
    }

    /// Logs the line. Never returns.
    pub(super) async fn run(self) -> Infallible {
        while self.probe.health().is_err() {
            sleep(POLL_INTERVAL).await;
        }
        // Both follow from requests of their own, one of which may fail.
        let deadline = Instant::now() + DETAILS_TIMEOUT;
        while !self.is_complete() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        self.log();
        std::future::pending().await
    }

    fn is_complete(&self) -> bool {
        let is_checked = self.permissions.as_ref().is_none_or(|check| check.is_complete());
        is_checked && self.registry.upstream_version().is_some()
    }

    fn log(&self) {
        let config = self.running.load();
        let mode = match config.authentication.mode {
            Mode::Sidecar => "sidecar",
            Mode::Gateway => "gateway",
        };
        // A sidecar's rights show with the first list of each resource.
        let missing = self.permissions.as_ref().map(|check| {
            let missing: Vec<_> =
                check.missing().into_iter().map(|permission| permission.as_str()).collect();
            if missing.is_empty() { "none".to_owned() } else { missing.join(", ") }
        });
        tracing::info!(
            version = build_info::VERSION,
            mode,
            listeners = self.listeners.join(", "),
            upstream = self.upstream.address(),
            upstream_version = self.registry.upstream_version(),
            configuration = hash(&config),
            missing_permissions = missing,
            "the upstream answers; weir serves"
        );
    }
}

/// Nobody waits for the line.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The discovery and some reviews take less.
const DETAILS_TIMEOUT: Duration = Duration::from_secs(5);
