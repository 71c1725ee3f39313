//! Probes whether the upstream answers Weir. `/readyz` uses the latest result, and every change is
//! logged. The results decide whether the upstream is away
//! ([`availability`](crate::upstream::availability)), which also says when a probe is due.
//!
//! `GET /version` is open to every authenticated identity (the ClusterRole
//! system:public-info-viewer), and cheap. Any response but 401 shows that the upstream is reachable
//! and accepts Weir's credentials. Weir learns its permissions for each resource separately.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::admin::health::Health;
use crate::telemetry::events::{EventKind, Events};
use crate::upstream::availability::{CheckCause, is_gateway_error};
use crate::upstream::error::UpstreamError;
use crate::upstream::{TrafficClass, Upstream, version};

/// The latest result of the probe. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
    events: Events,
}

/// The state that follows from the results until now.
struct State {
    /// The latest result.
    health: Health,
    /// Whether the upstream refused Weir's credentials since it accepted them last.
    is_refused: bool,
}

impl Probe {
    /// Creates a probe without a result.
    pub(crate) fn new(upstream: Upstream, events: Events) -> Self {
        let health = Err("the upstream was not asked yet".to_owned());
        let state = State { health, is_refused: false };
        Self { upstream, state: Arc::new(Mutex::new(state)), events }
    }

    /// Returns the result of the latest probe.
    pub(crate) fn health(&self) -> Health {
        self.state.lock().health.clone()
    }

    /// Probes at start. Fails if the upstream rejects Weir's credentials, because no retry changes
    /// that. An unreachable upstream is only logged.
    pub(crate) async fn first(&self, timeout: Duration) -> anyhow::Result<()> {
        let response = within(timeout, self.request_version()).await;
        if is_answered(&response) == Some(false) {
            self.upstream.availability().suspect();
        }
        if let Ok(StatusCode::UNAUTHORIZED) = response {
            bail!("{REFUSED}; check the user in the kubeconfig, or the service account");
        }
        self.note(to_health(response));
        Ok(())
    }

    /// Probes whenever a check is due, until the future is dropped.
    pub(crate) async fn run(self) {
        let availability = self.upstream.availability();
        let mut last = Instant::now();
        loop {
            let cause = availability.next_check(last).await;
            last = Instant::now();
            let mut response = match cause {
                CheckCause::Interval => within(TIMEOUT, self.request_version()).await,
                CheckCause::Suspicion => within(CHECK_TIMEOUT, self.upstream.check()).await,
            };
            if cause == CheckCause::Interval && is_answered(&response) != Some(true) {
                last = Instant::now();
                response = within(CHECK_TIMEOUT, self.upstream.check()).await;
            }
            if let Some(is_answered) = is_answered(&response) {
                availability.note_check(last, is_answered);
            }
            self.note(to_health(response));
        }
    }

    async fn request_version(&self) -> Result<StatusCode, UpstreamError> {
        let sent = self.upstream.send(TrafficClass::Request, version::request());
        Ok(sent.await?.status())
    }

    fn note(&self, health: Health) {
        let is_refusal = health.as_ref().is_err_and(|reason| reason == REFUSED);
        let (last, was_refused) = {
            let mut state = self.state.lock();
            let was_refused = state.is_refused;
            // Between a refusal and its end the upstream may be away.
            state.is_refused = is_refusal || (was_refused && health.is_err());
            (std::mem::replace(&mut state.health, health.clone()), was_refused)
        };
        match (&last, &health) {
            (_, Err(_)) if !was_refused && is_refusal => {
                let text = "The upstream refuses Weir's credentials.";
                self.events.notable_begin(EventKind::Credentials, "", text, |left_out| {
                    tracing::warn!(reason = REFUSED, left_out, "the upstream does not answer");
                });
            }
            (Err(_), Ok(())) if was_refused => {
                let text = "The upstream accepts Weir's credentials again.";
                self.events.notable_end(EventKind::Credentials, "", text, |left_out| {
                    tracing::info!(
                        left_out,
                        "the upstream answers, and accepts Weir's credentials"
                    );
                });
            }
            (Err(_), Ok(())) => tracing::info!("the upstream answers"),
            (Ok(()), Err(reason)) => tracing::warn!(reason, "the upstream does not answer"),
            (Err(before), Err(reason)) if before != reason => {
                tracing::warn!(reason, "the upstream does not answer; trying on");
            }
            _ => {}
        }
    }
}

async fn within(
    timeout: Duration,
    response: impl Future<Output = Result<StatusCode, UpstreamError>>,
) -> Result<StatusCode, UpstreamError> {
    let response = tokio::time::timeout(timeout, response).await;
    response.unwrap_or(Err(UpstreamError::Timeout(timeout)))
}

/// Returns whether an API server answered. `None` if the request could not be made, which says
/// nothing about the upstream.
fn is_answered(response: &Result<StatusCode, UpstreamError>) -> Option<bool> {
    match response {
        Ok(status) => Some(!is_gateway_error(*status)),
        Err(error) if error.may_be_outage() => Some(false),
        Err(_) => None,
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

/// kube-apiserver answers this within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The same over a new connection, when something indicates a failure.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

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
