//! Metrics of authentication, authorization and audit. All names begin with `weir_`; every label is an enum of Weir's.

pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod rbac;
pub mod rights;
pub mod token_review;

use prometheus::Registry;

use crate::telemetry::auth_metrics::audit::AuditMetrics;
use crate::telemetry::auth_metrics::authentication::AuthenticationMetrics;
use crate::telemetry::auth_metrics::authorization::AuthorizationMetrics;
use crate::telemetry::auth_metrics::rbac::RbacMetrics;
use crate::telemetry::auth_metrics::rights::RightsMetrics;
use crate::telemetry::auth_metrics::token_review::TokenReviewMetrics;

/// All of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthMetrics {
    /// Who clients are.
    pub authentication: AuthenticationMetrics,
    /// Whose tokens are shown.
    pub token_review: TokenReviewMetrics,
    /// What they may do.
    pub authorization: AuthorizationMetrics,
    /// RBAC decided here.
    pub rbac: RbacMetrics,
    /// Weir's own rights.
    pub rights: RightsMetrics,
    /// The audit log.
    pub audit: AuditMetrics,
}

impl AuthMetrics {
    /// Registers them once.
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
