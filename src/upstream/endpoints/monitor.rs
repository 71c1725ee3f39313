//! The tasks that check each API server, while there are several: `/readyz` ([`prober`]), the lag
//! of its watch caches ([`lag`], [`catch_up_checks`]), and which cluster it serves.
//!
//! With the configured server alone nothing runs: there is no other to turn to.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::task::{AbortHandle, JoinSet};

use super::prober::Checked;
use super::sources::Sources;
use super::{Admission, ApiServer, Origin, catch_up_checks, lag, prober};
use crate::config::endpoints::EndpointsConfig;
use crate::config::seams::Resolver;
use crate::upstream::Upstream;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::version;

/// Finds and checks the API servers until the future is dropped.
pub async fn run(upstream: Upstream, config: EndpointsConfig, resolver: Option<Resolver>) {
    if config.finds_servers() || upstream.endpoints().servers().len() > 1 {
        tokio::join!(Sources::new(&upstream, &config, resolver).run(), check_all(&upstream));
    }
}

/// Checks each server of the set.
async fn check_all(upstream: &Upstream) {
    let mut tasks = JoinSet::new();
    let mut running: Vec<(Arc<ApiServer>, AbortHandle)> = Vec::new();
    loop {
        let changed = upstream.endpoints().changed.notified();
        let servers = upstream.endpoints().servers();
        running.retain(|(server, task)| {
            let stays = servers.iter().any(|current| Arc::ptr_eq(current, server));
            if !stays {
                task.abort();
            }
            stays
        });
        for server in servers.iter() {
            if running.iter().any(|(probed, _)| Arc::ptr_eq(probed, server)) {
                continue;
            }
            let checked = Checked { upstream: upstream.clone(), server: Arc::clone(server) };
            let task = tasks.spawn(async move { checked.run().await });
            running.push((Arc::clone(server), task));
        }
        while tasks.try_join_next().is_some() {}
        changed.await;
    }
}

impl Checked {
    async fn run(&self) {
        let catch_ups = catch_up_checks::run(self);
        tokio::join!(prober::run(self), lag::run(self), catch_ups, self.identify(), self.refresh());
    }

    /// Asks which cluster the server serves.
    async fn identify(&self) {
        loop {
            let uid = async {
                let mut connection = self.connect().await?;
                version::uid_of(&mut connection).await
            };
            match with_timeout(UID_TIMEOUT, uid).await {
                Ok(uid) => self.upstream.endpoints().note_uid(&self.server, uid),
                Err(UpstreamError::Status { code: StatusCode::LOOP_DETECTED, .. }) => {
                    self.server.admit(Admission::Loop);
                }
                Err(error) => {
                    let server = &self.server.endpoint;
                    tracing::debug!(%error, %server, "cannot identify the cluster of an API server");
                }
            }
            let is_unknown = self.server.admission() == Admission::Unknown;
            let is_needed = is_unknown && self.server.origin == Origin::Discovery;
            let is_near = is_needed && self.server.was_reached();
            tokio::time::sleep(if is_near { UNKNOWN_INTERVAL } else { UID_INTERVAL }).await;
        }
    }

    /// Publishes what time alone changes.
    async fn refresh(&self) {
        loop {
            tokio::time::sleep(REFRESH_INTERVAL).await;
            self.server.refresh();
        }
    }
}

/// The longest time of a request for the uid, connection included.
const UID_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the uid is asked for: always, and while a server that answers waits for it.
const UID_INTERVAL: Duration = Duration::from_secs(60);
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(5);
/// How often the passing of time is published. An ejection lasts for a second at least.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
