//! The gate before the caches: who asks, whether they may, and in whose name a request goes on (semantics.md §12; design, section 8).
//!
//! In sidecar mode there is none: every client is Weir. In gateway mode nothing is answered from memory before [`Access::admit`] has said yes, and
//! nothing is forwarded but in the name that [`Access::carry`] says. What a request is about comes from the one parse of its path
//! ([`RequestInfo`]), so that what is authorized is what is served.
//!
//! What cannot be told here (a review that is not answered) is never a yes and never a no: the request goes to the upstream with its own
//! credential. A wrong credential is a 401 wherever it would not be seen upstream: a certificate ends at Weir's own TLS, so that its request
//! would arrive as nobody's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, PresentedCredential};
use crate::auth::authorizer::Authorizer;
use crate::auth::bearer::BearerToken;
use crate::auth::decision::{Decision, DecisionSource};
use crate::auth::forbidden;
use crate::auth::reauthorization::Reauthorization;
use crate::auth::user::{Identity, User};
use crate::auth::x509::handshake::Hints;
use crate::config::Anonymous;
use crate::server::connection::Client;
use crate::server::delegate::Reason;
use crate::server::forward::identity::{Carry, IdentityNames};
use crate::server::http::response;

/// See the module.
pub struct Access {
    gateway: Option<Gateway>,
}

/// What judges clients in gateway mode.
pub struct Gateway {
    /// Tells who they are.
    pub authenticator: Arc<Authenticator>,
    /// Tells what they may.
    pub authorizer: Arc<Authorizer>,
    /// What becomes of requests without a credential.
    pub anonymous: Anonymous,
    /// How often the right to an open watch is looked at again.
    pub watch_recheck: Option<Duration>,
    /// How users go on whose credential cannot be relayed.
    pub vouching: Option<Vouching>,
}

/// How the upstream is told of a user whose credential ends at Weir (a certificate, a front proxy's word).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouching {
    /// By X-Remote-* headers on connections with Weir's front-proxy certificate.
    FrontProxy,
    /// By impersonation with Weir's own identity.
    Impersonate,
}

/// Who asks, as far as that can be told without asking anybody.
pub(crate) enum Caller {
    /// Weir itself: sidecar mode.
    Weir,
    /// A client of its own.
    Client(PresentedCredential),
}

impl Caller {
    /// Who it is, where that can be told without asking.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Client(PresentedCredential::User(identity)) => Some(identity),
            _ => None,
        }
    }

    /// Whether it is a token among a WebSocket's sub-protocols that tells who it is.
    pub(crate) fn is_known_by_protocol(&self, headers: &HeaderMap) -> bool {
        matches!(self, Self::Client(PresentedCredential::Token(_)))
            && BearerToken::is_in_protocols(headers)
    }
}

/// What was found out about a request on its way to a cache; for the audit log too.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Who asks.
    pub(crate) identity: Option<Identity>,
    /// Whether they may.
    pub(crate) decision: Option<Decision>,
    /// When the request's head was read.
    pub(crate) received: SystemTime,
}

/// Why a request is not answered from a cache.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// The upstream will judge.
    Forward(Reason),
    /// The upstream's own no, worded here.
    Refuse(Status, &'static str),
}

impl Judged {
    /// Nothing is known yet.
    pub(crate) fn now() -> Self {
        Self { identity: None, decision: None, received: SystemTime::now() }
    }

    /// Whether something was used beyond its time since the upstream cannot be asked.
    pub(crate) fn is_stale(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.stale)
            || self
                .decision
                .as_ref()
                .is_some_and(|decision| decision.source == DecisionSource::Stale)
    }

    /// Who asks, if that is known.
    pub(crate) fn user(&self) -> Option<&User> {
        self.identity.as_ref().map(|identity| &*identity.user)
    }
}

impl Access {
    /// Sidecar mode.
    pub fn sidecar() -> Self {
        Self { gateway: None }
    }

    /// Gateway mode.
    pub fn gateway(gateway: Gateway) -> Self {
        Self { gateway: Some(gateway) }
    }

    /// Whose certificates are asked for; `None` in sidecar mode, where none are.
    pub(crate) fn hints(&self) -> Option<Hints> {
        self.gateway.as_ref().map(|gateway| gateway.authenticator.hints())
    }

    /// What clients may not say of themselves.
    pub(crate) fn identity_names(&self) -> IdentityNames {
        match &self.gateway {
            Some(gateway) => IdentityNames::of(gateway.authenticator.proxy_headers()),
            None => IdentityNames::default(),
        }
    }

    /// Who asks. The error is the answer, and its word in metrics.
    pub(crate) fn caller(
        &self,
        client: &Client,
        headers: &HeaderMap,
    ) -> Result<Caller, (Status, &'static str)> {
        let Some(gateway) = &self.gateway else { return Ok(Caller::Weir) };
        match gateway.authenticator.presented_credential(&client.peer, headers) {
            PresentedCredential::Invalid => Err((forbidden::unauthorized(), UNAUTHENTICATED)),
            PresentedCredential::Unknown => Err((response::not_known_yet(), UNKNOWN)),
            PresentedCredential::None if gateway.anonymous == Anonymous::Refuse => {
                Err((forbidden::unauthorized(), UNAUTHENTICATED))
            }
            presented => Ok(Caller::Client(presented)),
        }
    }

    /// In whose name a request goes on. The error is the answer.
    pub(crate) fn carry(&self, caller: &Caller) -> Result<Carry, Status> {
        let identity = match caller {
            Caller::Weir => return Ok(Carry::Weir),
            Caller::Client(PresentedCredential::User(identity)) => identity,
            Caller::Client(_) => return Ok(Carry::AsIs),
        };
        let user = Arc::clone(&identity.user);
        match self.gateway.as_ref().and_then(|gateway| gateway.vouching) {
            Some(Vouching::FrontProxy) => Ok(Carry::FrontProxy(user)),
            Some(Vouching::Impersonate) => Ok(Carry::Impersonate(user)),
            None => Err(cannot_vouch()),
        }
    }

    /// Whether a request may be answered from a cache, and for a watch how its right is looked at again. To be asked before a cache is touched,
    /// so that none is started by somebody who may not use it.
    pub(crate) async fn admit(
        &self,
        client: &Client,
        caller: &Caller,
        info: &RequestInfo,
        judged: &mut Judged,
    ) -> Result<Option<Reauthorization>, NotAdmitted> {
        let (gateway, presented) = match (&self.gateway, caller) {
            (Some(gateway), Caller::Client(presented)) => (gateway, presented),
            (None, Caller::Weir) => return Ok(None),
            // Cannot be: callers come from `caller`.
            _ => return Err(NotAdmitted::Forward(Reason::Identity)),
        };
        let authenticator = &gateway.authenticator;
        let identity = authenticator.authenticate_from(presented, client.peer.address).await;
        let identity = identity.map_err(|error| match error {
            AuthenticationError::Unauthorized => {
                NotAdmitted::Refuse(forbidden::unauthorized(), UNAUTHENTICATED)
            }
            AuthenticationError::Unavailable => NotAdmitted::Forward(Reason::Identity),
            AuthenticationError::TooManyRequests => {
                NotAdmitted::Refuse(response::too_many(TOO_MANY), CROWDED)
            }
        })?;
        let identity = &*judged.identity.insert(identity);
        let attributes = Attributes::from_request(info);
        let decision = gateway.authorizer.authorize(&identity.user, &attributes).await;
        let decision = decision.map_err(|_| NotAdmitted::Forward(Reason::Authorization))?;
        let decision = judged.decision.insert(decision);
        if !decision.allowed {
            let status = forbidden::forbidden(&identity.user, &attributes, &decision.reason);
            return Err(NotAdmitted::Refuse(status, FORBIDDEN));
        }
        if info.verb != Verb::Watch {
            return Ok(None);
        }
        Ok(gateway.recheck(client, presented, identity, attributes))
    }
}

impl Gateway {
    fn recheck(
        &self,
        client: &Client,
        presented: &PresentedCredential,
        identity: &Identity,
        attributes: Attributes,
    ) -> Option<Reauthorization> {
        let interval = self.watch_recheck?;
        Some(Reauthorization {
            presented: presented.clone(),
            peer: client.peer.clone(),
            identity: identity.clone(),
            attributes,
            interval,
            authenticator: Arc::clone(&self.authenticator),
            authorizer: Arc::clone(&self.authorizer),
        })
    }
}

fn cannot_vouch() -> Status {
    let message = "weir: a request of a certificate's user that is not answered from the cache can't be passed on; \
                   weir's configuration needs authentication.frontProxy or authentication.impersonate for that";
    response::refusal(StatusCode::FORBIDDEN, "Forbidden", message.to_owned())
}

/// The words of Weir's refusals in metrics.
const UNAUTHENTICATED: &str = "unauthenticated";
const FORBIDDEN: &str = "forbidden";
const CROWDED: &str = "crowded";
const UNKNOWN: &str = "identity";
/// Of one address, which are not known yet.
const TOO_MANY: &str = "weir: too many tokens of this address are being looked at";
