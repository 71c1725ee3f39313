//! Whether the upstream answers Weir: asked now and then, remembered for `/readyz`, and logged when
//! it changes.
//!
//! `GET /version` is open to every authenticated identity (the ClusterRole
//! system:public-info-viewer), and cheap. An answer of any kind but 401 shows that the upstream is
//! there and knows Weir; what Weir may do is learnt per resource.

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

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    upstream: Upstream,
    health: Arc<Mutex<Health>>,
}

impl Probe {
    /// Asks nobody yet.
    pub(crate) fn new(upstream: Upstream) -> Self {
        let health = Err("the upstream was not asked yet".to_owned());
        Self { upstream, health: Arc::new(Mutex::new(health)) }
    }

    /// What the last probe found.
    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// The probe at start: fails if the upstream refuses Weir's credentials, since no retry will
    /// mend that. An upstream that is not there is logged.
    pub(crate) async fn first(&self, timeout: Duration) -> anyhow::Result<()> {
        let found = match tokio::time::timeout(timeout, self.ask()).await {
            Ok(found) => found,
            Err(_) => Err(UpstreamError::Timeout(timeout)),
        };
        if let Ok(StatusCode::UNAUTHORIZED) = found {
            bail!("{REFUSED}; check the user in the kubeconfig, or the service account");
        }
        self.note(judge(found));
        Ok(())
    }

    /// Asks every [`INTERVAL`], until dropped.
    pub(crate) async fn run(self) {
        loop {
            tokio::time::sleep(if self.health().is_ok() { INTERVAL } else { RETRY_INTERVAL }).await;
            let found = match tokio::time::timeout(TIMEOUT, self.ask()).await {
                Ok(found) => found,
                Err(_) => Err(UpstreamError::Timeout(TIMEOUT)),
            };
            self.note(judge(found));
        }
    }

    async fn ask(&self) -> Result<StatusCode, UpstreamError> {
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

fn judge(found: Result<StatusCode, UpstreamError>) -> Health {
    match found {
        Ok(StatusCode::UNAUTHORIZED) => Err(REFUSED.to_owned()),
        // From a load balancer with nothing behind it.
        Ok(status) if status.is_server_error() => Err(format!("the upstream answers {status}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

const REFUSED: &str = "the upstream refuses Weir's credentials (401 Unauthorized)";

/// Seldom enough to cost nothing, often enough that `/readyz` is right within a probe period or two
/// of the kubelet's.
const INTERVAL: Duration = Duration::from_secs(10);

/// While it is away: recovery should be seen soon.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// kube-apiserver answers this within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_answer_but_these_shows_that_it_is_there() {
        assert_eq!(judge(Ok(StatusCode::OK)), Ok(()));
        assert_eq!(judge(Ok(StatusCode::FORBIDDEN)), Ok(()));
        assert!(judge(Ok(StatusCode::UNAUTHORIZED)).unwrap_err().contains("credentials"));
        assert!(judge(Ok(StatusCode::BAD_GATEWAY)).unwrap_err().contains("502"));
        assert!(judge(Err(UpstreamError::Timeout(TIMEOUT))).is_err());
    }
}
