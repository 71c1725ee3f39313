//! The results of authentication and authorization of a request.

use std::sync::Arc;

use http::HeaderMap;

use crate::auth::authenticator::PresentedCredential;
use crate::auth::bearer::BearerToken;
use crate::auth::user::{Identity, User};
use crate::auth::{Decision, DecisionSource};
use crate::server::flow_control::requester::Requester;

/// The sender of a request, as far as it is known without a review.
pub(crate) enum Caller {
    /// Weir itself: sidecar mode.
    Weir,
    Client(PresentedCredential),
}

impl Caller {
    /// Returns the identity, if no review is needed for it.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Client(PresentedCredential::User(identity)) => Some(identity),
            _ => None,
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(
            self,
            Self::Weir | Self::Client(PresentedCredential::None | PresentedCredential::User(_))
        )
    }

    /// Returns the sender for accounting, as far as it is known without a review.
    pub(crate) fn requester(&self) -> Requester {
        match self {
            Self::Weir => Requester::Sidecar,
            Self::Client(PresentedCredential::None) => Requester::anonymous(),
            Self::Client(PresentedCredential::User(identity)) => {
                Requester::User(Arc::clone(&identity.user))
            }
            Self::Client(_) => Requester::Unidentified,
        }
    }

    /// Whether the credential is a token among a WebSocket's sub-protocols.
    pub(crate) fn has_protocol_token(&self, headers: &HeaderMap) -> bool {
        matches!(self, Self::Client(PresentedCredential::Token(_)))
            && BearerToken::is_in_protocols(headers)
    }
}

/// The identity and the decision of a request, as far as they are known. The audit log reads them.
#[derive(Debug, Default)]
pub(crate) struct AuthContext {
    pub(crate) identity: Option<Identity>,
    /// The user as whom the client asked to act, once that is allowed.
    pub(crate) impersonated: Option<Arc<User>>,
    /// Whether the client, or the user as whom it acts, is allowed to read from a cache.
    pub(crate) decision: Option<Decision>,
}

impl AuthContext {
    /// Notes that the client is allowed to see a part of what it asks for.
    pub(crate) fn allow_in_part(&mut self) {
        let reason = "weir: filtered to the namespaces in which roles allow it".into();
        self.decision = Some(Decision { allowed: true, reason, source: DecisionSource::Rbac });
    }

    /// Whether the identity or the decision was used beyond its time because the upstream is
    /// unavailable.
    pub(crate) fn is_stale(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.stale)
            || self
                .decision
                .as_ref()
                .is_some_and(|decision| decision.source == DecisionSource::Stale)
    }

    pub(crate) fn user(&self) -> Option<&User> {
        self.identity.as_ref().map(|identity| &*identity.user)
    }
}
