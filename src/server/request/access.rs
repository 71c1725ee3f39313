//! Access control in front of the caches: authentication, authorization, and the identity of
//! forwarded requests (`docs/semantics.md` §12).
//!
//! Sidecar mode has none: every client acts as Weir. In gateway mode no response comes from a cache
//! before [`Access::authorize`] has allowed it, and no request is forwarded but with the identity
//! that [`Access::forwarded_identity`] returns. Both use the one parse of the request's path
//! ([`Resolved::info`]), so that the authorized request is the one that is served.
//!
//! If a review fails, the request is neither allowed nor denied here. It is forwarded with the
//! client's own credential, and the API server decides. A wrong credential is a 401 wherever the
//! API server would not see it: a client certificate ends at Weir's own TLS, so that its request
//! would arrive without a credential.

use std::sync::Arc;

use http::HeaderValue;
use http::Method;
use http::request::Parts;

use crate::api::request_info::Verb;
use crate::api::status::Status;
use crate::auth::Decision;
use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, PresentedCredential};
use crate::auth::authorizer::{Authorizer, NoDecision};
use crate::auth::forbidden;
use crate::auth::impersonation::Impersonation;
use crate::auth::reauthorization::Reauthorization;
use crate::auth::reauthorization::schedule::RecheckSchedule;
use crate::auth::standing::Standing;
use crate::auth::user::{Identity, User};
use crate::auth::visibility::UserView;
use crate::auth::x509::handshake::Hints;
use crate::config::{Anonymous, FilteredLists};
use crate::server::appointments::HerdAppointments;
use crate::server::connection::client::Client;
use crate::server::delegate::Reason;
use crate::server::flow_control::requester::Requester;
use crate::server::forward::identity::{ForwardedIdentity, IdentityNames};
use crate::server::http::headers::{self, FILTER_HEADER};
use crate::server::http::refusal;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Bypass, Rejection, RejectionCause};
use crate::server::request::resolved::Resolved;

/// The access control of a server.
pub struct Access {
    /// `None` in sidecar mode.
    gateway: Option<Gateway>,
}

/// The access control of gateway mode.
pub struct Gateway {
    /// Authenticates clients.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes requests.
    pub authorizer: Arc<Authorizer>,
    /// The treatment of requests without a credential.
    pub anonymous: Anonymous,
    /// The schedule by which open watches are authorized again; `None` for never.
    pub rechecks: Option<Arc<RecheckSchedule>>,
    /// Whether lists and watches that the API server refuses are answered in part.
    pub filtered_lists: FilteredLists,
    /// The way in which users are asserted upstream whose credential cannot be forwarded.
    pub user_assertion: Option<UserAssertion>,
}

/// The way in which a user is asserted upstream whose credential ends at Weir (a certificate, or
/// the headers of a front proxy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAssertion {
    /// `X-Remote-*` headers on connections with Weir's front-proxy certificate.
    FrontProxy,
    /// Impersonation with Weir's own identity.
    Impersonate,
}

impl Access {
    /// Returns the access control of sidecar mode.
    pub fn sidecar() -> Self {
        Self { gateway: None }
    }

    /// Returns the access control of gateway mode.
    pub fn gateway(gateway: Gateway) -> Self {
        Self { gateway: Some(gateway) }
    }

    /// Whether a caller may do what Weir may: in a sidecar.
    pub(crate) fn trusts(&self, caller: &Caller) -> bool {
        matches!((&self.gateway, caller), (None, Caller::Weir))
    }

    /// Returns the CAs that clients are asked for certificates of; `None` in sidecar mode, where
    /// clients are asked for none.
    pub(crate) fn hints(&self) -> Option<Hints> {
        self.gateway.as_ref().map(|gateway| gateway.authenticator.hints())
    }

    /// Returns the names of the identity headers that clients may not send.
    pub(crate) fn identity_names(&self) -> IdentityNames {
        match &self.gateway {
            Some(gateway) => IdentityNames::new(gateway.authenticator.proxy_headers()),
            None => IdentityNames::default(),
        }
    }

    /// Returns the impersonation that a read asks for, if roles may decide about it.
    pub(crate) fn impersonation(&self, parts: &Parts) -> Option<Impersonation> {
        let gateway = self.gateway.as_ref()?;
        let is_decided = parts.method == Method::GET && gateway.authorizer.follows_roles();
        if !is_decided || !headers::impersonates(&parts.headers) {
            return None;
        }
        Impersonation::from_headers(&parts.headers)
    }

    /// Finds the sender of a request, without a review.
    pub(crate) fn caller(&self, context: &mut RequestContext<'_>) -> Result<Caller, Rejection> {
        let caller = self.present(context)?;
        context.auth.identity = caller.identity().cloned();
        context.resolved.identify(caller.requester());
        Ok(caller)
    }

    fn present(&self, context: &RequestContext<'_>) -> Result<Caller, Rejection> {
        let Some(gateway) = &self.gateway else { return Ok(Caller::Weir) };
        let unauthorized =
            || Err(Rejection::new(forbidden::unauthorized(), RejectionCause::Unauthenticated));
        match gateway
            .authenticator
            .presented_credential(&context.client.peer, &context.parts.headers)
        {
            PresentedCredential::Invalid(_) => unauthorized(),
            PresentedCredential::Unknown => {
                Err(Rejection::new(refusal::settings_unknown(), RejectionCause::Identity))
            }
            PresentedCredential::None if gateway.anonymous == Anonymous::Refuse => unauthorized(),
            presented => Ok(Caller::Client(presented)),
        }
    }

    pub(crate) fn forwarded_identity(&self, caller: &Caller) -> Result<ForwardedIdentity, Status> {
        let identity = match caller {
            Caller::Weir => return Ok(ForwardedIdentity::Weir),
            Caller::Client(PresentedCredential::User(identity)) => identity,
            Caller::Client(_) => return Ok(ForwardedIdentity::AsIs),
        };
        let user = Arc::clone(&identity.user);
        match self.gateway.as_ref().and_then(|gateway| gateway.user_assertion) {
            Some(UserAssertion::FrontProxy) => Ok(ForwardedIdentity::FrontProxy(user)),
            Some(UserAssertion::Impersonate) => Ok(ForwardedIdentity::Impersonate(user)),
            None => Err(cannot_assert_user()),
        }
    }

    /// Returns the standing of the credential with which a request is forwarded. Reviews an unknown
    /// token. Only a [`Caller::Client`] of a gateway has a credential of its own.
    pub(crate) async fn standing(&self, client: &Client, caller: &Caller) -> Standing {
        match (&self.gateway, caller) {
            (Some(gateway), Caller::Client(presented)) => {
                gateway.authenticator.standing(presented, &client.peer).await
            }
            _ => Standing::own_credential(),
        }
    }

    /// Notes that the upstream answered a forwarded request with a success, so that its sender is
    /// allowed to send it. While no API server is usable, this decision counts as one of a review.
    pub(crate) async fn learn_allowed(&self, context: &RequestContext<'_>, caller: &Caller) {
        let (Some(gateway), Caller::Client(presented)) = (&self.gateway, caller) else { return };
        let peer = &context.client.peer;
        let identity = gateway.authenticator.authenticate_from(presented, peer).await;
        let Some(identity) = identity.ok().filter(|identity| !identity.stale) else { return };
        let attributes = Attributes::from_request(&context.info);
        gateway.authorizer.learn_allowed(&identity.user, &attributes, context.started);
    }

    /// Authenticates the sender of an access review that roles may answer. `None` if they may not,
    /// or if the sender is not known now.
    pub(crate) async fn reviewer(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Option<(&Authorizer, Identity)> {
        let (Some(gateway), Caller::Client(presented)) = (&self.gateway, caller) else {
            return None;
        };
        if !gateway.authorizer.follows_roles() {
            return None;
        }
        let identity = gateway.authenticate(context, presented).await.ok()?;
        (!identity.stale).then_some((&gateway.authorizer, identity))
    }

    /// Whether a request is answered with what its user may see, if the API server refuses it: a
    /// list or watch of a collection in all namespaces, for which the configuration or the client
    /// asks.
    pub(crate) fn may_filter(&self, context: &RequestContext<'_>) -> Result<bool, Rejection> {
        let info = &context.info;
        let (Some(gateway), Some(request)) = (&self.gateway, &info.resource) else {
            return Ok(false);
        };
        if !matches!(info.verb, Verb::List | Verb::Watch)
            || !request.namespace.is_empty()
            || !(request.name.is_empty() || request.name_lifted)
            || !gateway.authorizer.follows_roles()
            || headers::bypasses_cache(&context.parts.headers)
            || headers::impersonates(&context.parts.headers)
        {
            return Ok(false);
        }
        match context.parts.headers.get(FILTER_HEADER).map(HeaderValue::as_bytes) {
            None => Ok(gateway.filtered_lists == FilteredLists::Namespaces),
            Some(b"namespaces") => Ok(true),
            Some(b"off") => Ok(false),
            Some(_) => {
                let message = "weir: X-Weir-Filter is namespaces or off".to_owned();
                Err(Rejection::new(refusal::bad_request(message), RejectionCause::Framing))
            }
        }
    }

    /// Returns how the user of a request that was refused may see the collection, and how a watch
    /// of it is authenticated again.
    pub(crate) fn view(
        &self,
        context: &RequestContext<'_>,
        caller: &Caller,
    ) -> Option<(UserView, Option<Box<Reauthorization>>)> {
        let (Some(gateway), Caller::Client(presented)) = (&self.gateway, caller) else {
            return None;
        };
        let identity = context.auth.identity.as_ref()?;
        let view = gateway.view_of(context)?;
        let (visible, _) = view.visible(|| None)?;
        if view.seen(&visible).as_ref().is_some_and(|objects| objects.is_empty()) {
            return None;
        }
        gateway.authorizer.check_view(&view, &visible);
        let reauthorization =
            gateway.reauthorization(context.client, presented, identity, None, None);
        Some((view, reauthorization))
    }

    /// Notes that the user of a request may read the whole collection. Returns whether a part was
    /// remembered.
    pub(crate) fn forget_view(&self, context: &RequestContext<'_>) -> bool {
        let view = self.gateway.as_ref().and_then(|gateway| gateway.view_of(context));
        view.is_some_and(|view| view.forget())
    }

    /// Authenticates and authorizes a request that a cache could answer. Returns how a watch is
    /// authorized again. Call this before a cache is used, so that no client starts a cache that it
    /// may not read.
    pub(crate) async fn authorize(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        herd: &HerdAppointments,
    ) -> Result<Option<Box<Reauthorization>>, Bypass> {
        let (gateway, presented) = match (&self.gateway, caller) {
            (Some(gateway), Caller::Client(presented)) => (gateway, presented),
            (None, Caller::Weir) => return Ok(None),
            // Unreachable: `caller` returns `Caller::Weir` only in sidecar mode.
            _ => return Err(Reason::Identity.into()),
        };
        let identity = gateway.authenticate(context, presented).await;
        let identity = &identity.map_err(|error| match error {
            AuthenticationError::Unauthorized => {
                Rejection::new(forbidden::unauthorized(), RejectionCause::Unauthenticated).into()
            }
            AuthenticationError::Unavailable => Bypass::Forward(Reason::Identity),
            AuthenticationError::TooManyRequests => {
                Rejection::new(refusal::too_many_requests(TOO_MANY), RejectionCause::Throttled)
                    .into()
            }
        })?;
        let RequestContext { resolved, auth, .. } = context;
        let Resolved { client, info, impersonation, .. } = &*resolved;
        let attributes = Attributes::from_request(info);
        let (user, decision) = match impersonation {
            Some(asked) => {
                let decision = gateway.allow_impersonation(&identity.user, asked, &attributes);
                let decision = decision.ok_or(Reason::Impersonation)?;
                (&*auth.impersonated.insert(Arc::clone(&asked.user)), decision)
            }
            None => {
                let decision = gateway.authorizer.authorize(&identity.user, &attributes).await;
                let no_decision = |failure| gateway.without_decision(failure, info.verb, herd);
                (&identity.user, decision.map_err(no_decision)?)
            }
        };
        let decision = auth.decision.insert(decision);
        if !decision.allowed {
            let status = forbidden::forbidden(user, &attributes, &decision.reason);
            return Err(Rejection::new(status, RejectionCause::Forbidden).into());
        }
        if info.verb != Verb::Watch {
            return Ok(None);
        }
        let impersonation = impersonation.clone();
        Ok(gateway.reauthorization(client, presented, identity, impersonation, Some(attributes)))
    }
}

impl Gateway {
    fn view_of(&self, context: &RequestContext<'_>) -> Option<UserView> {
        let attributes = Attributes::from_request(&context.info);
        let is_namespaced = context.resource.as_ref()?.namespaced;
        let user = &context.auth.identity.as_ref()?.user;
        self.authorizer.view(user, &attributes, is_namespaced)
    }

    /// Allows a read of `sender` as another user if roles allow both; `None` if they do not. No
    /// review asks about the other user: the limits of reviews are the sender's.
    fn allow_impersonation(
        &self,
        sender: &Arc<User>,
        Impersonation { user, permissions }: &Impersonation,
        attributes: &Attributes,
    ) -> Option<Decision> {
        if attributes.are_too_long() {
            return None;
        }
        let mut parts = permissions.iter();
        parts.try_for_each(|part| self.authorizer.allow_by_roles(sender, part).map(drop))?;
        self.authorizer.allow_by_roles(user, attributes)
    }

    fn without_decision(&self, failure: NoDecision, verb: Verb, herd: &HerdAppointments) -> Bypass {
        match failure {
            NoDecision::Limited if matches!(verb, Verb::List | Verb::Watch) => {
                let seconds = herd.for_review(self.authorizer.pending_reviews());
                Rejection::new(
                    refusal::come_again(seconds, TOO_MANY_REVIEWS),
                    RejectionCause::Reviews,
                )
                .into()
            }
            NoDecision::Limited | NoDecision::Unavailable => Bypass::from(Reason::Authorization),
        }
    }

    async fn authenticate(
        &self,
        context: &mut RequestContext<'_>,
        presented: &PresentedCredential,
    ) -> Result<Identity, AuthenticationError> {
        let RequestContext { resolved, auth, .. } = context;
        let peer = &resolved.client.peer;
        let identity = self.authenticator.authenticate_from(presented, peer).await?;
        auth.identity = Some(identity.clone());
        if !resolved.sender().is_user(&identity.user) {
            resolved.identify(Requester::User(Arc::clone(&identity.user)));
        }
        Ok(identity)
    }

    fn reauthorization(
        &self,
        client: &Client,
        presented: &PresentedCredential,
        identity: &Identity,
        impersonation: Option<Impersonation>,
        attributes: Option<Attributes>,
    ) -> Option<Box<Reauthorization>> {
        let schedule = Arc::clone(self.rechecks.as_ref()?);
        Some(Box::new(Reauthorization {
            presented: presented.clone(),
            peer: client.peer.clone(),
            identity: identity.clone(),
            impersonation,
            attributes,
            schedule,
            authenticator: Arc::clone(&self.authenticator),
            authorizer: Arc::clone(&self.authorizer),
        }))
    }
}

fn cannot_assert_user() -> Status {
    let message = "weir: a request of a certificate's user that is not answered from the cache cannot be forwarded; \
                   weir's configuration needs authentication.frontProxy or authentication.impersonate for that";
    refusal::forbidden(message.to_owned())
}

const TOO_MANY_REVIEWS: &str = "weir: too many permissions are under review";
/// The tokens are those of one address that are not known yet.
const TOO_MANY: &str = "weir: too many tokens of this address are under review";
