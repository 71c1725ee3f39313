//! Authenticates clients (`docs/semantics.md` §12.1).
//!
//! The order is that of upstream: the headers of a front proxy, a client certificate, a bearer
//! token, no credential. The first one that names a user counts. An invalid credential ends in
//! status 401 unless a later one names a user; it never makes the request anonymous. So a valid
//! certificate takes precedence over any token, and beside an invalid one the token decides. A
//! request without any credential is forwarded by default (`docs/decisions/authentication.md`).

pub mod error;
pub mod metrics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use crate::auth::authenticator::error::{AuthSetupError, AuthenticationError};
use crate::auth::authenticator::metrics::{AuthenticationMetrics, AuthenticationResult};
use crate::auth::bearer::{Bearer, BearerToken};
use crate::auth::metrics::AuthMetrics;
use crate::auth::peer::Peer;
use crate::auth::standing::Standing;
use crate::auth::token_review::{FlowKey, TokenMemo, TokenReviews};
use crate::auth::trust::{CertificateIdentity, ProxyHeaders, Reloader, TrustStore};
use crate::auth::user::{Credential, Identity, User};
use crate::auth::x509::handshake::Hints;
use crate::config::{Anonymous, AuthenticationConfig};
use crate::upstream::Upstream;

/// Authenticates clients by certificate, front-proxy headers or token.
#[derive(Debug)]
pub struct Authenticator {
    trust: Arc<TrustStore>,
    anonymous: Anonymous,
    anonymous_user: Arc<User>,
    reviews: TokenReviews,
    metrics: AuthenticationMetrics,
    /// Stops the task that reloads the settings when the authenticator is dropped.
    _reloading: DropGuard,
}

/// The credential of a request, verified as far as possible without I/O.
#[derive(Clone, Debug)]
pub enum PresentedCredential {
    /// No credential.
    None,
    /// A token that was not reviewed yet.
    Token(BearerToken),
    /// The user of a valid certificate, or the one that a front proxy names.
    User(Identity),
    /// One that is invalid, and no other: status 401.
    Invalid(Credential),
    /// A token that only the upstream can read the same way as itself. The request is forwarded
    /// unchanged, without Weir's own credential.
    Ambiguous,
    /// A certificate that cannot be verified, since the CA is not known yet: status 503. The
    /// request is not forwarded even if it has another credential, because the certificate would
    /// take precedence.
    Unknown,
}

impl Authenticator {
    /// Creates an authenticator and starts the task that reloads its settings. Settings that come
    /// from the upstream are read by that task. `stale_grace` is `staleDecisionGrace`.
    #[expect(
        clippy::unused_async,
        reason = "the files may have to be read off the workers one day"
    )]
    pub async fn start(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        upstream: Upstream,
        metrics: &AuthMetrics,
    ) -> Result<Arc<Self>, AuthSetupError> {
        let reviews = metrics.token_review.clone();
        let reviews = TokenReviews::new(config, stale_grace, upstream.clone(), reviews);
        let metrics = metrics.authentication.clone();
        let trust = Arc::new(TrustStore::new(metrics.clone()));
        let reloader = Reloader::new(config, Arc::clone(&trust), upstream)?;
        let cancel = CancellationToken::new();
        tokio::spawn(reloader.run(cancel.clone()));
        Ok(Arc::new(Self {
            trust,
            anonymous: config.anonymous,
            anonymous_user: Arc::new(User::anonymous()),
            reviews,
            metrics,
            _reloading: cancel.drop_guard(),
        }))
    }

    /// Returns the names of the accepted CAs, for TLS handshakes.
    pub fn hints(&self) -> Hints {
        self.trust.hints().clone()
    }

    /// Returns the headers that only front proxies may send.
    pub fn proxy_headers(&self) -> ProxyHeaders {
        self.trust.proxy_headers().clone()
    }

    /// Returns the credential of a request. Does no I/O.
    pub fn presented_credential(&self, peer: &Peer, headers: &HeaderMap) -> PresentedCredential {
        let bearer = || BearerToken::from_headers(headers, &peer.token);
        let token_or = |otherwise| match (bearer(), otherwise) {
            (Bearer::Token(token), _) => PresentedCredential::Token(token),
            (Bearer::Malformed, _) => PresentedCredential::Invalid(Credential::Token),
            (Bearer::Ambiguous, PresentedCredential::None) => PresentedCredential::Ambiguous,
            // Beside an invalid certificate an ambiguous token is not forwarded: upstream may read
            // it as no credential, and would then treat the request as anonymous, because it does
            // not see the certificate.
            (Bearer::Ambiguous | Bearer::None, otherwise) => otherwise,
        };
        let judge = |_| peer.verdict(&self.trust.load(), seconds_since_1970());
        let Some(verdict) = peer.certificates.as_ref().and_then(judge) else {
            return token_or(PresentedCredential::None);
        };
        if let Some(front_proxy) = &verdict.front_proxy {
            match front_proxy.rules.names.user(headers) {
                Ok(Some(user)) => {
                    let (user, until) = (Arc::new(user), front_proxy.trusted_until);
                    return user_credential(user, Credential::FrontProxy, until);
                }
                Ok(None) => {}
                // Upstream would accept a user whose name Weir cannot represent.
                Err(error) => {
                    tracing::debug!(%error, "refused a request of a front proxy");
                    return PresentedCredential::Invalid(Credential::FrontProxy);
                }
            }
        }
        match &verdict.identity {
            CertificateIdentity::User { user, trusted_until } => {
                user_credential(Arc::clone(user), Credential::Certificate, *trusted_until)
            }
            CertificateIdentity::None => token_or(PresentedCredential::None),
            CertificateIdentity::Invalid => {
                token_or(PresentedCredential::Invalid(Credential::Certificate))
            }
            CertificateIdentity::Unknown => PresentedCredential::Unknown,
        }
    }

    /// Authenticates the client of an open watch again. Such token reviews have a limit of their
    /// own.
    pub async fn authenticate(
        &self,
        presented: &PresentedCredential,
    ) -> Result<Identity, AuthenticationError> {
        self.authenticate_as(presented, FlowKey::Watches, &TokenMemo::default()).await
    }

    /// Authenticates a client. Its address decides which limit applies to its token reviews.
    pub fn authenticate_from(
        &self,
        presented: &PresentedCredential,
        peer: &Peer,
    ) -> impl Future<Output = Result<Identity, AuthenticationError>> {
        self.authenticate_as(presented, FlowKey::from_address(peer.address), &peer.token)
    }

    /// Returns the standing of the credential of a request that is forwarded with it.
    pub(crate) async fn standing(&self, presented: &PresentedCredential, peer: &Peer) -> Standing {
        match presented {
            PresentedCredential::User(identity) => Standing::from_user(&identity.user),
            PresentedCredential::Token(token) => {
                let flow = FlowKey::from_address(peer.address);
                Standing::from_token(self.reviews.standing(token, flow, &peer.token).await)
            }
            PresentedCredential::None
            | PresentedCredential::Invalid(_)
            | PresentedCredential::Ambiguous
            | PresentedCredential::Unknown => Standing::unproven(),
        }
    }

    async fn authenticate_as(
        &self,
        presented: &PresentedCredential,
        flow: FlowKey,
        memo: &TokenMemo,
    ) -> Result<Identity, AuthenticationError> {
        let (credential, identity) = match presented {
            PresentedCredential::None => (Credential::None, self.anonymous_identity()),
            PresentedCredential::Token(token) => {
                (Credential::Token, self.reviews.review(token, flow, memo).await)
            }
            PresentedCredential::User(identity) => (identity.credential, unexpired(identity)),
            PresentedCredential::Invalid(credential) => {
                (*credential, Err(AuthenticationError::Unauthorized))
            }
            PresentedCredential::Ambiguous => {
                (Credential::Token, Err(AuthenticationError::Unavailable))
            }
            PresentedCredential::Unknown => {
                (Credential::Certificate, Err(AuthenticationError::Unavailable))
            }
        };
        let result = match &identity {
            Ok(_) => AuthenticationResult::Ok,
            Err(AuthenticationError::Unauthorized) => AuthenticationResult::Unauthorized,
            Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {
                AuthenticationResult::Unavailable
            }
        };
        self.metrics.authenticated(credential, result);
        identity
    }

    /// Verifies the certificates of a connection again by the current settings: they must still
    /// name the same user, or belong to a front proxy. Does no I/O.
    pub(crate) fn recheck_certificate(
        &self,
        peer: &Peer,
        identity: &Identity,
    ) -> Result<Identity, AuthenticationError> {
        let Some(verdict) = peer.verdict(&self.trust.load(), seconds_since_1970()) else {
            return Err(AuthenticationError::Unauthorized);
        };
        let until = match (identity.credential, &verdict.identity, &verdict.front_proxy) {
            (_, CertificateIdentity::Unknown, _) => return Err(AuthenticationError::Unavailable),
            (Credential::FrontProxy, _, Some(front_proxy)) => front_proxy.trusted_until,
            (Credential::Certificate, CertificateIdentity::User { user, trusted_until }, _)
                if *user == identity.user =>
            {
                *trusted_until
            }
            _ => return Err(AuthenticationError::Unauthorized),
        };
        unexpired(&Identity { not_after: system_time(until), ..identity.clone() })
    }

    fn anonymous_identity(&self) -> Result<Identity, AuthenticationError> {
        match self.anonymous {
            Anonymous::Forward => Err(AuthenticationError::Unavailable),
            Anonymous::Refuse => Err(AuthenticationError::Unauthorized),
            Anonymous::Authorize => Ok(Identity {
                user: Arc::clone(&self.anonymous_user),
                credential: Credential::None,
                not_after: None,
                stale: false,
            }),
        }
    }
}

fn user_credential(user: Arc<User>, credential: Credential, until: i64) -> PresentedCredential {
    let not_after = system_time(until);
    PresentedCredential::User(Identity { user, credential, not_after, stale: false })
}

/// Converts seconds since 1970. Returns `None`, which means no expiry, beyond the range of the
/// system's clock.
fn system_time(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Returns the identity if it has not expired: an open watch may outlive its client's certificate.
fn unexpired(identity: &Identity) -> Result<Identity, AuthenticationError> {
    match identity.not_after {
        Some(end) if SystemTime::now() >= end => Err(AuthenticationError::Unauthorized),
        _ => Ok(identity.clone()),
    }
}

/// Returns the current time on the clock that certificates use.
fn seconds_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
