//! The metrics of authentication, authorization and audit. Every label value is one of a fixed set.

use prometheus::Registry;

use crate::auth::audit::metrics::AuditMetrics;
use crate::auth::authenticator::metrics::AuthenticationMetrics;
use crate::auth::authorizer::metrics::AuthorizationMetrics;
use crate::auth::permission_check::PermissionMetrics;
use crate::auth::rbac::metrics::RbacMetrics;
use crate::auth::reauthorization::schedule::RecheckMetrics;
use crate::auth::token_review::metrics::TokenReviewMetrics;
use crate::telemetry::events::Events;

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthMetrics {
    /// Authentication.
    pub authentication: AuthenticationMetrics,
    /// Token reviews.
    pub token_review: TokenReviewMetrics,
    /// Authorization, and access reviews.
    pub authorization: AuthorizationMetrics,
    /// Decisions by the cluster's roles and bindings.
    pub rbac: RbacMetrics,
    /// Checks of open watches.
    pub rechecks: RecheckMetrics,
    /// The permissions of Weir's own identity.
    pub permissions: PermissionMetrics,
    /// The audit log.
    pub audit: AuditMetrics,
}

impl AuthMetrics {
    /// Registers the metrics. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            authentication: AuthenticationMetrics::register(registry)?,
            token_review: TokenReviewMetrics::register(registry)?,
            authorization: AuthorizationMetrics::register(registry)?,
            rbac: RbacMetrics::register(registry)?,
            rechecks: RecheckMetrics::register(registry)?,
            permissions: PermissionMetrics::register(registry)?,
            audit: AuditMetrics::register(registry)?,
        })
    }

    /// Returns the bytes of token reviews, of cached decisions, and of queued audit events.
    pub fn memory(&self) -> [f64; 3] {
        let Self { token_review, authorization, audit, .. } = self;
        [
            token_review.cached_bytes.get(),
            authorization.access_reviews.cached_bytes(),
            audit.queue_bytes.get(),
        ]
        .map(|bytes| bytes as f64)
    }

    /// Notes changes of Weir's own permissions among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { permissions: self.permissions.with_events(events), ..self }
    }
}
