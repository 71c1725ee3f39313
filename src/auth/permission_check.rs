//! Checks which upstream permissions Weir's own identity has, and reports those that are missing.
//!
//! The permissions are checked by SelfSubjectAccessReviews, which every authenticated user may
//! create: at the start and at intervals. A missing permission is only reported: by a log line for
//! each change, with the rule that would grant it, and by a metric. The check disables nothing. A
//! feature without its permission stops because the upstream refuses its requests; for example, a
//! token whose review is forbidden is left to the upstream.
//!
//! Lock order: the results, alone and never across an await.

mod spec;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use crate::auth::permission_check::spec::Permission;
use crate::auth::permission_check::spec::PermissionSpec;
use crate::config::{AuthenticationConfig, AuthorizationConfig};
use crate::telemetry::events::EventKind;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::families;
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::self_review;
use prometheus::IntGaugeVec;

/// The results of the checks. Dropping it ends the checks.
#[derive(Debug)]
pub struct PermissionCheck {
    results: Results,
    /// The number of permissions.
    count: usize,
    _task: DropGuard,
}

/// Whether each permission was granted at its last check. Permissions not checked yet are absent.
type Results = Arc<Mutex<Vec<(Permission, bool)>>>;

/// Posts a review and returns the response.
type PostReview =
    Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, UpstreamError>> + Send + Sync>;

impl PermissionCheck {
    /// Starts to check the permissions that these settings need. Reviews are sent through
    /// `upstream`, which has Weir's own identity. Must be called within a tokio runtime.
    pub fn start(
        authentication: &AuthenticationConfig,
        authorization: &AuthorizationConfig,
        upstream: Upstream,
        metrics: PermissionMetrics,
    ) -> Arc<Self> {
        let post = move |body| -> BoxFuture<'static, _> {
            let upstream = upstream.clone();
            Box::pin(async move { self_review::post(&upstream, body).await })
        };
        Self::with_post(spec::needed(authentication, authorization), Arc::new(post), metrics)
    }

    fn with_post(
        specs: Vec<PermissionSpec>,
        post: PostReview,
        metrics: PermissionMetrics,
    ) -> Arc<Self> {
        let results = Results::default();
        let cancel = CancellationToken::new();
        let count = specs.len();
        let checker = Checker { specs, post, metrics, results: results.clone() };
        tokio::spawn(cancel.clone().run_until_cancelled_owned(checker.run()));
        Arc::new(Self { results, count, _task: cancel.drop_guard() })
    }

    /// Returns whether Weir has a permission. `None` if it was not checked yet, or if the
    /// configuration does not need it.
    pub fn is_granted(&self, permission: Permission) -> Option<bool> {
        let results = self.results.lock();
        results.iter().find(|(checked, _)| *checked == permission).map(|(_, granted)| *granted)
    }

    /// Whether each permission was checked.
    pub fn is_complete(&self) -> bool {
        self.results.lock().len() == self.count
    }

    /// Returns the missing permissions.
    pub fn missing(&self) -> Vec<Permission> {
        let results = self.results.lock();
        results.iter().filter(|(_, granted)| !granted).map(|(permission, _)| *permission).collect()
    }
}

/// The task that checks the permissions.
struct Checker {
    specs: Vec<PermissionSpec>,
    post: PostReview,
    metrics: PermissionMetrics,
    results: Results,
}

impl Checker {
    async fn run(self) {
        let mut is_failing = false;
        loop {
            let checked = self.check_all().await;
            let interval = if checked.is_ok() { INTERVAL } else { INTERVAL_AFTER_FAILURE };
            if let Err(error) = &checked
                && !is_failing
            {
                tracing::warn!(%error, "cannot check Weir's own permissions on the upstream");
            }
            is_failing = checked.is_err();
            tokio::time::sleep(interval).await;
        }
    }

    /// Checks each permission once. Stops at an error and keeps the earlier results.
    async fn check_all(&self) -> Result<(), UpstreamError> {
        let mut has_changed = false;
        for spec in &self.specs {
            has_changed |= self.update(spec, self.is_granted(spec).await?);
        }
        let is_missing = |spec: &PermissionSpec| {
            spec.required && self.results.lock().contains(&(spec.permission, false))
        };
        if has_changed && !self.specs.iter().any(is_missing) {
            tracing::info!("Weir has the upstream permissions that its configuration requires");
        }
        Ok(())
    }

    /// Returns whether all reviews of a permission allow it.
    async fn is_granted(&self, spec: &PermissionSpec) -> Result<bool, UpstreamError> {
        for attributes in spec.attributes {
            let response = (self.post)(self_review::request(attributes)).await?;
            if !self_review::is_allowed(&response)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores a result and logs a change. Returns whether it changed.
    fn update(&self, spec: &PermissionSpec, granted: bool) -> bool {
        let before = {
            let mut results = self.results.lock();
            match results.iter_mut().find(|(permission, _)| *permission == spec.permission) {
                Some((_, before)) => Some(std::mem::replace(before, granted)),
                None => {
                    results.push((spec.permission, granted));
                    None
                }
            }
        };
        let permission = spec.permission.as_str();
        self.metrics.set_missing(permission, spec.required && !granted);
        if before == Some(granted) {
            return false;
        }
        let PermissionSpec { effect, rule, .. } = *spec;
        match (granted, spec.required) {
            (true, true) if before.is_some() => {
                let text = "The permission was granted.";
                self.metrics.events.notable_end(EventKind::Rights, permission, text, |left_out| {
                    tracing::info!(permission, left_out, "an upstream permission was granted");
                });
            }
            (true, false) if before.is_some() => {
                tracing::info!(permission, "an upstream permission was granted");
            }
            (true, _) => {}
            (false, true) => {
                let text = format!("The permission is missing: {effect}.");
                self.metrics.events.notable_begin(
                    EventKind::Rights,
                    permission,
                    &text,
                    |left_out| {
                        tracing::warn!(
                            permission,
                            effect,
                            rule,
                            left_out,
                            "an upstream permission is missing"
                        );
                    },
                );
            }
            (false, false) => {
                tracing::info!(permission, effect, rule, "an upstream permission is missing");
            }
        }
        true
    }
}

/// Roles rarely change, and the checks only report: each part of Weir reacts to refusals of the
/// upstream itself.
const INTERVAL: Duration = Duration::from_secs(600);
/// The interval after a failed check. The upstream may be starting.
const INTERVAL_AFTER_FAILURE: Duration = Duration::from_secs(15);

families! {
    /// Handles of the metrics. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct PermissionMetrics {
        /// 1 if Weir's own identity lacks an upstream permission that its configuration requires; 0
        /// if it has it, or if the permission is optional.
        missing: IntGaugeVec = gauge_vec("weir_missing_permissions", &["permission"]),
        ..default {
            events: Events,
        }
    }
}

impl PermissionMetrics {
    /// Notes changes of permissions among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Sets whether a permission is missing. `permission` is one of a fixed set of label values.
    pub(crate) fn set_missing(&self, permission: &'static str, is_missing: bool) {
        self.missing.with_label_values(&[permission]).set(i64::from(is_missing));
    }
}
