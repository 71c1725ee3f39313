//! The sender of a request: found without a review, with one, and named to the upstream.
//!
//! The first of them that shows a user moves the connection from its address to this user
//! (`docs/decisions/limits-by-user.md`).

use std::pin::pin;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::Router;
use crate::api::request_info::Verb;
use crate::auth::reauthorization::Reauthorization;
use crate::auth::user::Credential;
use crate::server::connection::permits::UserAtLimit;
use crate::server::delegate::Reason;
use crate::server::flow_control::requester::Requester;
use crate::server::forward::forwarder::PreparedRequest;
use crate::server::forward::upstream_gate::FAILOVER_WAIT_MAX;
use crate::server::http::refusal;
use crate::server::metrics::WaitCause;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::{Bypass, Rejection};
use crate::server::request::context::RequestContext;
use crate::server::request::refusal_reason::RefusalReason;

impl Router {
    /// Returns the sender of a request, without a review. A known one whose request the present
    /// stage of overload does not admit is refused.
    pub(super) fn caller(&self, context: &mut RequestContext<'_>) -> Result<Caller, Rejection> {
        let caller = self.access.caller(context)?;
        context.auth.identity = caller.identity().cloned();
        context.auth.requester = caller.requester();
        context.settle_trace();
        self.prove(context)?;
        if caller.is_known() {
            self.check_overload(context, false)?;
            context.is_checked = true;
        }
        Ok(caller)
    }

    /// Authenticates and authorizes a request ([`Access::admit`]). While no API server is usable,
    /// it waits for a review no longer than it would wait to be forwarded. A list or watch whose
    /// review found none is reviewed again when one is back, since a herd of them would be
    /// forwarded then.
    ///
    /// [`Access::admit`]: crate::server::request::access::Access::admit
    pub(super) async fn admit(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Reauthorization>, Bypass> {
        let availability = self.availability();
        let returns = availability.returns();
        let admitted = self.admit_once(context, caller).await;
        let is_unreviewed =
            matches!(admitted, Err(Bypass::Forward(Reason::Identity | Reason::Authorization)));
        let is_of_herd = matches!(context.info.verb, Verb::List | Verb::Watch);
        let was_usable = availability.is_usable() && availability.returns() == returns;
        if !is_unreviewed || !is_of_herd || was_usable {
            return admitted;
        }
        match availability.usable_by(context.started + FAILOVER_WAIT_MAX).await {
            true => self.admit_once(context, caller).await,
            false => admitted,
        }
    }

    async fn admit_once(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Reauthorization>, Bypass> {
        let deadline = context.started + FAILOVER_WAIT_MAX;
        let metrics = Arc::clone(&context.metrics);
        let admitted = {
            let reviewed = pin!(self.access.admit(context, caller, &self.caches.herd));
            let reviewed = metrics.waiting(WaitCause::Review, reviewed);
            tokio::select! {
                biased;
                admitted = reviewed => admitted,
                () = self.availability().until_unusable(deadline) => Err(Reason::Authorization.into()),
            }
        };
        // A user who is denied is known as well.
        context.settle_trace();
        self.prove(context)?;
        admitted
    }

    /// Prepares a request to be forwarded with the identity of its sender.
    pub(super) async fn prepare(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<PreparedRequest<'_>, Rejection> {
        let identity = self.access.forwarded_identity(caller);
        let standing = pin!(self.access.standing(context.client, caller));
        let standing = context.metrics.waiting(WaitCause::Review, standing).await;
        if let Some(requester) = Requester::from_token(&standing) {
            context.auth.requester = requester;
            context.settle_trace();
        }
        if let Some(user) = standing.token_user_key() {
            let moved = context.client.move_to(user);
            moved.map_err(|at_limit| self.too_many_connections(at_limit))?;
        }
        let prepare = |identity| self.forwarder.prepare(&identity, standing, context);
        identity.and_then(prepare).map_err(|status| {
            let throttled = status.code == StatusCode::TOO_MANY_REQUESTS;
            Rejection::new(
                status,
                if throttled { RefusalReason::Quota } else { RefusalReason::Identity },
            )
        })
    }

    /// Counts the connection for the user of the request, if known.
    fn prove(&self, context: &RequestContext<'_>) -> Result<(), Rejection> {
        let Some(identity) = &context.auth.identity else { return Ok(()) };
        let proved = context.client.prove(identity);
        proved.map_err(|at_limit| self.too_many_connections(at_limit))
    }

    /// Holds back a client that has too many requests refused: the next ones are read later, and it
    /// is asked to use another connection. A proxy's connection is that of many clients, who are
    /// not held back for one.
    pub(super) async fn hold_back(&self, context: &RequestContext<'_>, headers: &mut HeaderMap) {
        let client = context.client;
        let identity = context.auth.identity.as_ref();
        let is_proxied =
            identity.is_some_and(|identity| identity.credential == Credential::FrontProxy);
        if is_proxied || client.standing.is_shared() {
            return;
        }
        let Some(pace) = client.standing.refusal_pace() else { return };
        let Some(pause) = pace.refuse() else { return };
        self.metrics.limits().connections_slowed.inc();
        if context.parts.version == Version::HTTP_2 {
            pace.ask_to_leave();
        } else {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            tokio::time::sleep(pause).await;
        }
    }

    fn too_many_connections(&self, _: UserAtLimit) -> Rejection {
        self.metrics.connection_refused(USER_LIMIT);
        Rejection::new(refusal::too_many_requests(TOO_MANY_CONNECTIONS), RefusalReason::Connections)
    }
}

const TOO_MANY_CONNECTIONS: &str =
    "weir: this user has too many connections open; this one is closed";
/// The cause of the refused connection in metrics.
const USER_LIMIT: &str = "user-limit";
