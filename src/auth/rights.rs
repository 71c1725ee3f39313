//! What Weir itself may do upstream, and which features go off for what it may not.
//!
//! Looked at from the start on and now and then, by SelfSubjectAccessReviews, which everybody may ask for. It only tells: in the log, once for
//! each change, with the rule that would give the right, and by a metric. What is off is off by itself, since the upstream refuses
//! it (a token review that is forbidden leaves the token to the upstream).

mod needed;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::rights::needed::Need;
pub use crate::auth::rights::needed::Right;
use crate::config::{AuthenticationConfig, AuthorizationConfig};
use crate::telemetry::auth_metrics::rights::RightsMetrics;
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// See the module. Dropping it ends the looking.
#[derive(Debug)]
pub struct Rights {
    /// By right, as last seen; those that were never told are not in it.
    held: Arc<Mutex<Vec<(Right, bool)>>>,
    _looking: DropGuard,
}

/// Posts a review and reads its answer.
type Ask = Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, UpstreamError>> + Send + Sync>;

impl Rights {
    /// Looks in the background, by `upstream`, which has Weir's own identity, for the rights that these settings need.
    pub fn start(
        authentication: &AuthenticationConfig,
        authorization: &AuthorizationConfig,
        upstream: Upstream,
        metrics: RightsMetrics,
    ) -> Arc<Self> {
        let ask = move |body| -> BoxFuture<'static, _> {
            let upstream = upstream.clone();
            Box::pin(async move { post_review(&upstream, PATH, body, ANSWER_BYTES_MAX).await })
        };
        Self::with(needed::by(authentication, authorization), Arc::new(ask), metrics)
    }

    fn with(needs: Vec<Need>, ask: Ask, metrics: RightsMetrics) -> Arc<Self> {
        let held = Arc::<Mutex<Vec<_>>>::default();
        let cancel = CancellationToken::new();
        let looking = Looking { needs, ask, metrics, held: held.clone() };
        tokio::spawn(cancel.clone().run_until_cancelled_owned(looking.run()));
        Arc::new(Self { held, _looking: cancel.drop_guard() })
    }

    /// Whether Weir has a right; `None` if that is not known (yet), or the configuration does not need it.
    pub fn has(&self, right: Right) -> Option<bool> {
        self.held.lock().iter().find(|(of, _)| *of == right).map(|(_, has)| *has)
    }

    /// Those that are missing.
    pub fn missing(&self) -> Vec<Right> {
        self.held.lock().iter().filter(|(_, has)| !has).map(|(right, _)| *right).collect()
    }
}

/// The task that looks.
struct Looking {
    needs: Vec<Need>,
    ask: Ask,
    metrics: RightsMetrics,
    held: Arc<Mutex<Vec<(Right, bool)>>>,
}

impl Looking {
    async fn run(self) {
        let mut told = false;
        loop {
            let looked = self.look().await;
            let next = match &looked {
                Ok(()) => INTERVAL,
                Err(_) => INTERVAL_AFTER_FAILURE,
            };
            if let Err(error) = &looked
                && !told
            {
                tracing::warn!(%error, "Weir's rights upstream cannot be looked at");
            }
            told = looked.is_err();
            tokio::time::sleep(next).await;
        }
    }

    /// Looks once at all; what was found until a failure is kept.
    async fn look(&self) -> Result<(), UpstreamError> {
        let mut changed = false;
        for need in &self.needs {
            changed |= self.found(need, self.has(need).await?);
        }
        let lacks = |need: &Need| need.required && self.held.lock().contains(&(need.right, false));
        if changed && !self.needs.iter().any(lacks) {
            tracing::info!("Weir has the rights upstream that its configuration needs");
        }
        Ok(())
    }

    /// Whether Weir has all that a right consists of.
    async fn has(&self, need: &Need) -> Result<bool, UpstreamError> {
        for attributes in need.attributes {
            let answer = (self.ask)(request(attributes)).await?;
            if !is_allowed(&answer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells what is new; returns whether anything is.
    fn found(&self, need: &Need, has: bool) -> bool {
        let before = {
            let mut held = self.held.lock();
            match held.iter_mut().find(|(right, _)| *right == need.right) {
                Some((_, before)) => Some(std::mem::replace(before, has)),
                None => {
                    held.push((need.right, has));
                    None
                }
            }
        };
        self.metrics.set(need.right.as_str(), !has);
        if before == Some(has) {
            return false;
        }
        let right = need.right.as_str();
        match (has, need.required) {
            (true, _) if before.is_some() => {
                tracing::info!(right, "Weir has this right upstream now")
            }
            (true, _) => {}
            (false, true) => {
                tracing::warn!(
                    right,
                    off = need.off,
                    rule = need.rule,
                    "Weir lacks a right upstream"
                );
            }
            (false, false) => {
                tracing::info!(
                    right,
                    off = need.off,
                    rule = need.rule,
                    "Weir lacks a right upstream"
                );
            }
        }
        true
    }
}

/// What is asked, in the words of a SelfSubjectAccessReview. Empty fields are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct ResourceAttributes {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'static str,
    verb: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'static str,
    resource: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'static str,
}

fn request(attributes: &ResourceAttributes) -> Bytes {
    let review = serde_json::json!({
        "kind": KIND,
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": { "resourceAttributes": attributes },
    });
    Bytes::from(review.to_string())
}

fn is_allowed(answer: &[u8]) -> Result<bool, UpstreamError> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        allowed: bool,
    }
    match serde_json::from_slice::<Review>(answer) {
        Ok(review) if review.kind == KIND => Ok(review.status.allowed),
        _ => Err(UpstreamError::Malformed(format!("not a {KIND}"))),
    }
}

const KIND: &str = "SelfSubjectAccessReview";
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The answer repeats the question; with managed fields it has less than a kilobyte.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Roles change seldom, and what Weir does follows from the upstream's refusals at once; this only tells of it.
const INTERVAL: Duration = Duration::from_secs(600);
/// The upstream was away, as while a cluster starts.
const INTERVAL_AFTER_FAILURE: Duration = Duration::from_secs(15);
