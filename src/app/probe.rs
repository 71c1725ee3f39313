//! Probes periodically whether the upstream answers Weir. `/readyz` uses the latest result, and
//! every change is logged.
//!
//! `GET /version` is open to every authenticated identity (the ClusterRole
//! system:public-info-viewer), and cheap. Any response but 401 shows that the upstream is reachable
//! and accepts Weir's credentials. Weir learns its permissions for each resource separately.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use parking_lot::Mutex;

use crate::admin::health::Health;
use crate::upstream::error::UpstreamError;
use crate::upstream::{RequestBody, TrafficClass, Upstream};

/// The latest result of the probe. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    upstream: Upstream,
    health: Arc<Mutex<Health>>,
}

impl Probe {
    /// Creates a probe without a result.
    pub(crate) fn new(upstream: Upstream) -> Self {
        let health = Err("the upstream was not asked yet".to_owned());
        Self { upstream, health: Arc::new(Mutex::new(health)) }
    }

    /// Returns the result of the latest probe.
    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Probes at start. Fails if the upstream rejects Weir's credentials, because no retry changes
    /// that. An unreachable upstream is only logged.
    pub(crate) async fn first(&self, timeout: Duration) -> anyhow::Result<()> {
        let response = match tokio::time::timeout(timeout, self.request_version()).await {
            Ok(response) => response,
            Err(_) => Err(UpstreamError::Timeout(timeout)),
        };
        if let Ok(StatusCode::UNAUTHORIZED) = response {
            bail!("{REFUSED}; check the user in the kubeconfig, or the service account");
        }
        self.note(to_health(response));
        Ok(())
    }

    /// Probes every [`INTERVAL`] until the future is dropped.
    pub(crate) async fn run(self) {
        loop {
            tokio::time::sleep(if self.health().is_ok() { INTERVAL } else { RETRY_INTERVAL }).await;
            let response = match tokio::time::timeout(TIMEOUT, self.request_version()).await {
                Ok(response) => response,
                Err(_) => Err(UpstreamError::Timeout(TIMEOUT)),
            };
            self.note(to_health(response));
        }
    }

    async fn request_version(&self) -> Result<StatusCode, UpstreamError> {
        let body = Empty::<Bytes>::new().map_err(|never| match never {});
        let mut request = Request::new(RequestBody::new(body));
        *request.uri_mut() = http::Uri::from_static("/version");
        let response = self.upstream.send(TrafficClass::Request, request).await?;
        Ok(response.status())
    }

    fn note(&self, health: Health) {
        let mut last = self.health.lock();
        match (&*last, &health) {
            (Err(_), Ok(())) => tracing::info!("the upstream answers"),
            (Ok(()), Err(reason)) => tracing::warn!(reason, "the upstream does not answer"),
            (Err(before), Err(reason)) if before != reason => {
                tracing::warn!(reason, "the upstream does not answer; trying on");
            }
            _ => {}
        }
        *last = health;
    }
}

fn to_health(response: Result<StatusCode, UpstreamError>) -> Health {
    match response {
        Ok(StatusCode::UNAUTHORIZED) => Err(REFUSED.to_owned()),
        // The response of a load balancer without a server.
        Ok(status) if status.is_server_error() => Err(format!("the upstream answers {status}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

const REFUSED: &str = "the upstream refuses Weir's credentials (401 Unauthorized)";

/// Long enough to cost nothing, short enough that `/readyz` is right within two probe periods of
/// the kubelet.
const INTERVAL: Duration = Duration::from_secs(10);

/// While the upstream is unreachable, so that a recovery is noticed soon.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// kube-apiserver answers this within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_401_or_a_5xx_fails_the_probe() {
        assert_eq!(to_health(Ok(StatusCode::OK)), Ok(()));
        assert_eq!(to_health(Ok(StatusCode::FORBIDDEN)), Ok(()));
        assert!(to_health(Ok(StatusCode::UNAUTHORIZED)).unwrap_err().contains("credentials"));
        assert!(to_health(Ok(StatusCode::BAD_GATEWAY)).unwrap_err().contains("502"));
        assert!(to_health(Err(UpstreamError::Timeout(TIMEOUT))).is_err());
    }
}
