//! Builds the authentication, authorization and forwarded identities of gateway mode from the
//! configuration. A sidecar has none.

use std::sync::Arc;

use anyhow::{Context, bail};

use crate::app::metrics::Metrics;
use crate::auth::authenticator::Authenticator;
use crate::auth::authorizer::Authorizer;
use crate::auth::permission_check::PermissionCheck;
use crate::auth::rbac::Rbac;
use crate::auth::reauthorization::schedule::RecheckSchedule;
use crate::cache::registry::Registry;
use crate::config::{Config, Mode};
use crate::server::{Access, Gateway, Upstreams, UserAssertion};
use crate::upstream::Upstream;

/// The parts that the server needs.
pub(super) struct Identities {
    pub(super) access: Access,
    pub(super) upstreams: Upstreams,
    /// Reports missing permissions until it is dropped.
    pub(super) permissions: Option<Arc<PermissionCheck>>,
}

/// Builds the parts; `upstream` has Weir's own identity. Errors name what to check.
pub(super) async fn build(
    config: &Config,
    upstream: &Upstream,
    registry: &Registry,
    metrics: &Metrics,
) -> anyhow::Result<Identities> {
    if config.authentication.mode == Mode::Sidecar {
        let upstreams = Upstreams::with_own_identity(upstream.clone());
        return Ok(Identities { access: Access::sidecar(), upstreams, permissions: None });
    }
    let upstreams = upstreams(config, upstream).await?;
    let (authentication, authorization) = (&config.authentication, &config.authorization);
    let grace = authorization.stale_decision_grace;
    let authenticator =
        Authenticator::start(authentication, grace, upstream.clone(), &metrics.auth)
            .await
            .context("cannot set up authentication")?;
    let rbac = &authorization.rbac;
    let rbac = rbac.enabled.then(|| Rbac::start(rbac, registry, metrics.auth.rbac.clone()));
    let authorizer =
        Authorizer::new(authorization, upstream.clone(), rbac, metrics.auth.authorization.clone());
    let user_assertion = match (&upstreams.front_proxy, authentication.impersonate) {
        (Some(_), _) => Some(UserAssertion::FrontProxy),
        (None, true) => Some(UserAssertion::Impersonate),
        (None, false) => None,
    };
    let rechecks = authorization.watch_recheck.map(|interval| {
        let rate = authorization.watch_reviews_per_second;
        RecheckSchedule::new(interval, rate, metrics.auth.rechecks.clone())
    });
    let access = Access::gateway(Gateway {
        authenticator,
        authorizer,
        anonymous: authentication.anonymous,
        filtered_lists: authorization.filtered_lists,
        rechecks,
        user_assertion,
    });
    let permissions = PermissionCheck::start(
        authentication,
        authorization,
        upstream.clone(),
        metrics.auth.permissions.clone(),
    );
    Ok(Identities { access, upstreams, permissions: Some(permissions) })
}

/// The three sets of connections to the upstream: Weir's own, without a credential, and with the
/// front-proxy certificate. A request never uses another set than its identity's.
async fn upstreams(config: &Config, upstream: &Upstream) -> anyhow::Result<Upstreams> {
    let authentication = &config.authentication;
    if authentication.impersonate && upstream.impersonates() {
        bail!(
            "authentication.impersonate cannot go together with a kubeconfig that impersonates already (as)"
        );
    }
    let bare = upstream.bare().await?;
    let front_proxy = match &authentication.front_proxy {
        None => None,
        Some(files) => {
            let upstream = upstream.front_proxy(files).await;
            Some(upstream.context("authentication.frontProxy cannot be used")?)
        }
    };
    Ok(Upstreams { own_identity: upstream.clone(), bare: Some(bare), front_proxy })
}
