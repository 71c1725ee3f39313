//! Who a client is (semantics.md §12.1).
//!
//! As upstream, in this order: what a front proxy says, a client certificate, a bearer token, nothing. The first that knows a user is right. One
//! that finds fault ends in 401 unless a later one knows a user: a wrong credential is never anonymous. So a good certificate wins over any token,
//! and beside a bad one the token decides.

pub mod metrics;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::authenticator::metrics::{AuthenticationMetrics, AuthenticationResult};
use crate::auth::bearer::{Bearer, BearerToken};
use crate::auth::cluster::{Certified, Follower, ProxyHeaders, Settings};
use crate::auth::metrics::AuthMetrics;
use crate::auth::peer::Peer;
use crate::auth::token_review::{FlowKey, TokenReviews};
use crate::auth::user::{Credential, Identity, User};
use crate::auth::x509::handshake::Hints;
use crate::config::{Anonymous, AuthenticationConfig};
use crate::upstream::Upstream;

/// See the module.
#[derive(Debug)]
pub struct Authenticator {
    settings: Arc<Settings>,
    anonymous: Anonymous,
    anonymous_user: Arc<User>,
    reviews: TokenReviews,
    metrics: AuthenticationMetrics,
    /// Ends the task that follows the settings with the last clone.
    _following: DropGuard,
}

/// What a request shows of who it is from, as far as that can be told without asking anybody.
#[derive(Clone, Debug)]
pub enum PresentedCredential {
    /// Nothing.
    None,
    /// A token, which nobody looked at yet.
    Token(BearerToken),
    /// A certificate's user, or the one that a front proxy names.
    User(Identity),
    /// A certificate that is not valid, or a token that cannot be one, and nothing else: 401.
    Invalid,
    /// A token of which only the upstream can tell whose it is: forwarded as it came, with no credential of Weir's.
    Ambiguous,
    /// A certificate of which nothing can be told, since the CA is not known yet: 503, and nothing is forwarded. Whoever else the request may
    /// say that it is from, the certificate would come first.
    Unknown,
}

/// Why it is not told who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The credential is wrong: 401.
    #[error("the credential is wrong")]
    Unauthorized,
    /// It cannot be told here; the upstream will judge.
    #[error("who it is cannot be told here")]
    Unavailable,
    /// Too many who are not known yet ask at once: 429.
    #[error("too many tokens are being looked at")]
    TooManyRequests,
}

impl Authenticator {
    /// Reads what it needs; what must come from the upstream comes later, if need be. `stale_grace` is `staleDecisionGrace`.
    #[expect(
        clippy::unused_async,
        reason = "the files may have to be read off the workers one day"
    )]
    pub async fn start(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        upstream: Upstream,
        metrics: &AuthMetrics,
    ) -> Result<Arc<Self>, AuthError> {
        let reviews = metrics.token_review.clone();
        let reviews = TokenReviews::new(config, stale_grace, upstream.clone(), reviews);
        let metrics = metrics.authentication.clone();
        let settings = Arc::new(Settings::new(metrics.clone()));
        let follower = Follower::new(config, Arc::clone(&settings), upstream)?;
        let cancel = CancellationToken::new();
        tokio::spawn(follower.run(cancel.clone()));
        Ok(Arc::new(Self {
            settings,
            anonymous: config.anonymous,
            anonymous_user: Arc::new(User::anonymous()),
            reviews,
            metrics,
            _following: cancel.drop_guard(),
        }))
    }

    /// The names of the CAs whose certificates are good, for handshakes.
    pub fn hints(&self) -> Hints {
        self.settings.hints().clone()
    }

    /// The headers that only front proxies may send.
    pub fn proxy_headers(&self) -> ProxyHeaders {
        self.settings.proxy_headers().clone()
    }

    /// What a request shows. No I/O.
    pub fn presented_credential(&self, peer: &Peer, headers: &HeaderMap) -> PresentedCredential {
        let by_token = |otherwise| match (BearerToken::from_headers(headers), otherwise) {
            (Bearer::Token(token), _) => PresentedCredential::Token(token),
            (Bearer::Malformed, _) => PresentedCredential::Invalid,
            (Bearer::Ambiguous, PresentedCredential::None) => PresentedCredential::Ambiguous,
            // Beside a wrong certificate it may be no credential at all, and be taken for nobody's upstream, where the certificate is not seen.
            (Bearer::Ambiguous | Bearer::None, otherwise) => otherwise,
        };
        let trust = self.settings.load();
        let Some(verdict) = peer.verdict(&trust, seconds_since_1970()) else {
            return by_token(PresentedCredential::None);
        };
        if let Some(front_proxy) = &verdict.front_proxy {
            match front_proxy.rights.names.user(headers) {
                Ok(Some(user)) => {
                    let user = Arc::new(user);
                    return presented(user, Credential::FrontProxy, front_proxy.ends);
                }
                Ok(None) => {}
                // Upstream would know somebody by it whom nobody can name here.
                Err(error) => {
                    tracing::debug!(%error, "a front proxy's request is refused");
                    return PresentedCredential::Invalid;
                }
            }
        }
        match &verdict.certified {
            Certified::User(user, ends) => {
                presented(Arc::clone(user), Credential::Certificate, *ends)
            }
            Certified::Nobody => by_token(PresentedCredential::None),
            Certified::Wrong => by_token(PresentedCredential::Invalid),
            Certified::Unknown => PresentedCredential::Unknown,
        }
    }

    /// Who it still is, of an open watch, which nobody waits for: it has its own part of the token reviews.
    pub async fn authenticate(
        &self,
        presented: &PresentedCredential,
    ) -> Result<Identity, AuthenticationError> {
        self.authenticate_as(presented, FlowKey::Watches).await
    }

    /// Who it is, for a client at an address, for fairness among clients whose tokens are not known yet.
    pub async fn authenticate_from(
        &self,
        presented: &PresentedCredential,
        address: Option<IpAddr>,
    ) -> Result<Identity, AuthenticationError> {
        self.authenticate_as(presented, FlowKey::from_address(address)).await
    }

    async fn authenticate_as(
        &self,
        presented: &PresentedCredential,
        asker: FlowKey,
    ) -> Result<Identity, AuthenticationError> {
        let (credential, found) = match presented {
            PresentedCredential::None => (Credential::None, self.anonymous_identity()),
            PresentedCredential::Token(token) => {
                (Credential::Token, self.reviews.review(token, asker).await)
            }
            PresentedCredential::User(identity) => (identity.credential, still_good(identity)),
            PresentedCredential::Invalid => {
                (Credential::Certificate, Err(AuthenticationError::Unauthorized))
            }
            PresentedCredential::Ambiguous => {
                (Credential::Token, Err(AuthenticationError::Unavailable))
            }
            PresentedCredential::Unknown => {
                (Credential::Certificate, Err(AuthenticationError::Unavailable))
            }
        };
        let result = match &found {
            Ok(_) => AuthenticationResult::Ok,
            Err(AuthenticationError::Unauthorized) => AuthenticationResult::Unauthorized,
            Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {
                AuthenticationResult::Unavailable
            }
        };
        self.metrics.authenticated(credential, result);
        found
    }

    /// Whether the certificates of a connection still say what they said: by the settings of now the same user, or a front proxy that may speak
    /// for one. No I/O.
    pub(crate) fn recheck_certificate(
        &self,
        peer: &Peer,
        identity: &Identity,
    ) -> Result<Identity, AuthenticationError> {
        let Some(verdict) = peer.verdict(&self.settings.load(), seconds_since_1970()) else {
            return Err(AuthenticationError::Unauthorized);
        };
        let ends = match (identity.credential, &verdict.certified, &verdict.front_proxy) {
            (_, Certified::Unknown, _) => return Err(AuthenticationError::Unavailable),
            (Credential::FrontProxy, _, Some(front_proxy)) => front_proxy.ends,
            (Credential::Certificate, Certified::User(user, ends), _) if *user == identity.user => {
                *ends
            }
            _ => return Err(AuthenticationError::Unauthorized),
        };
        still_good(&Identity { not_after: end(ends), ..identity.clone() })
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

fn presented(user: Arc<User>, credential: Credential, ends: i64) -> PresentedCredential {
    PresentedCredential::User(Identity { user, credential, not_after: end(ends), stale: false })
}

/// A time beyond what the system can count is no end.
fn end(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// A user that was found before: an open watch outlives the request's certificate.
fn still_good(identity: &Identity) -> Result<Identity, AuthenticationError> {
    match identity.not_after {
        Some(end) if SystemTime::now() >= end => Err(AuthenticationError::Unauthorized),
        _ => Ok(identity.clone()),
    }
}

/// The clock that certificates are made for.
fn seconds_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Why authentication cannot be set up. Each names what to check.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A file of the configuration is unusable.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}
