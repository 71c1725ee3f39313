//! The metrics of authentication, authorization and audit, as one bundle.

use prometheus::Registry;

use crate::auth::audit::metrics::AuditMetrics;
use crate::auth::authenticator::metrics::AuthenticationMetrics;
use crate::auth::token_review::metrics::TokenReviewMetrics;
use crate::telemetry::auth_metrics::authorization::AuthorizationMetrics;
use crate::telemetry::auth_metrics::rbac::RbacMetrics;
use crate::telemetry::auth_metrics::rights::RightsMetrics;

/// The metrics of all parts of `auth`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthMetrics {
    /// Authentication of clients.
    pub authentication: AuthenticationMetrics,
    /// Token reviews and their cache.
    pub token_review: TokenReviewMetrics,
    /// Access reviews and decisions.
    pub authorization: AuthorizationMetrics,
    /// Evaluation of RBAC rules.
    pub rbac: RbacMetrics,
    /// Permissions of Weir's own identity.
    pub rights: RightsMetrics,
    /// The audit log.
    pub audit: AuditMetrics,
}

impl AuthMetrics {
    /// Registers all metrics. Fails if called twice with the same registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            authentication: AuthenticationMetrics::register(registry)?,
            token_review: TokenReviewMetrics::register(registry)?,
            authorization: AuthorizationMetrics::register(registry)?,
            rbac: RbacMetrics::register(registry)?,
            rights: RightsMetrics::register(registry)?,
            audit: AuditMetrics::register(registry)?,
        })
    }
}
