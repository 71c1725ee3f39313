//! An access review that roles answer, or that the API server answers with the body that was read
//! of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;

use super::Router;
use crate::auth::attributes::Attributes;
use crate::auth::authorizer::Authorizer;
use crate::auth::user::Identity;
use crate::server::connection::client_id::ClientId;
use crate::server::delegate::Reason;
use crate::server::forward::relay::ClientBody;
use crate::server::forward::upstream_gate::FAILOVER_WAIT_MAX;
use crate::server::http::body::Body;
use crate::server::http::refusal;
use crate::server::http::response::{self, Reply};
use crate::server::metrics::WaitCause;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Rejection, RejectionCause};
use crate::server::reviews::{self, Review, ReviewRequest};

pub(super) enum Unreviewed {
    Forward(ClientBody),
    Refuse(Rejection),
}

impl From<Rejection> for Unreviewed {
    fn from(rejection: Rejection) -> Self {
        Self::Refuse(rejection)
    }
}

impl Router {
    /// Answers a review whose sender may create it, by roles, if these allow what it asks.
    pub(super) async fn serve_review(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        body: Incoming,
        request: &ReviewRequest,
    ) -> Result<Reply, Unreviewed> {
        let forward = |body: Incoming| Unreviewed::Forward(body.into());
        let Some((authorizer, identity)) = self.reviewer(context, caller).await else {
            return Err(forward(body));
        };
        context.settle_trace();
        self.prove(context)?;
        let attributes = Attributes::from_request(&context.info);
        let may_create =
            |attributes: &Attributes| authorizer.allow_by_roles(&identity.user, attributes);
        let decision = Some(&attributes).filter(|at| !at.are_too_long()).and_then(may_create);
        // Without a place the body is streamed to the API server, within the limits for that.
        let address = context.client.peer.address;
        let client = ClientId::from_user_or_address(Some(&identity.user), address);
        let place = self.review_bodies.try_add(client, |before| {
            let has_place = before.count < BODIES_OF_CLIENT_MAX && before.total < BODIES_MAX;
            has_place.then_some(()).ok_or(())
        });
        let (Some(decision), Ok(_place)) = (decision, place) else {
            return Err(forward(body));
        };
        self.admit(context, None)?;
        let read = ClientBody::read(body, request.length, BODY_TIMEOUT).await;
        let body = read.ok_or_else(|| {
            let status = refusal::bad_request(BROKE_OFF.to_owned());
            Rejection::new(status, RejectionCause::Forward(Reason::Write))
        })?;
        let Some(answer) = self.review_by_roles(authorizer, &identity, request, &body) else {
            return Err(Unreviewed::Forward(ClientBody::Read(body)));
        };
        context.auth.decision = Some(decision);
        context.ended("authorize");
        let share = self.share(context, true)?;
        let content_type = request.form.encoding.content_type(false);
        let answer = Body::long_chunks(vec![answer], share.held.clone());
        let mut response = response::ok(&context.parts.headers, content_type, answer, &[]);
        *response.status_mut() = reviews::CODE;
        self.auditor.log_response(context, &mut response, reviews::CODE).await;
        let unwritten = share.is_paced.then_some(share.held);
        Ok(Reply { unwritten, lane: share.lane, ..Reply::hit(response, "") })
    }

    /// Returns the sender of a review, and what knows the roles. While no API server is usable, it
    /// waits no longer than the review would wait to be forwarded.
    async fn reviewer(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Option<(&Authorizer, Identity)> {
        let deadline = context.started + FAILOVER_WAIT_MAX;
        let metrics = Arc::clone(&context.metrics);
        let reviewer = pin!(self.access.reviewer(context, caller));
        tokio::select! {
            biased;
            (reviewer, _) = metrics.wait(WaitCause::Review, reviewer) => reviewer,
            () = self.availability().until_unusable(deadline) => None,
        }
    }

    /// Returns the body of the answer, if roles allow what the review asks.
    fn review_by_roles(
        &self,
        authorizer: &Authorizer,
        identity: &Identity,
        request: &ReviewRequest,
        body: &Bytes,
    ) -> Option<Bytes> {
        let omits_zero_times = self.caches.registry.upstream_omits_zero_times()?;
        match request.read(body)? {
            Review::SelfSubject => request.self_subject(identity, omits_zero_times),
            Review::Access { spec, user, attributes } => {
                let user = user.as_ref().unwrap_or(&identity.user);
                let reason = authorizer.reason_of_roles(user, &attributes)?;
                request.allowed(&spec, &reason, omits_zero_times)
            }
        }
    }
}

/// The most access reviews whose bodies are read at once, and those of one client.
const BODIES_MAX: usize = 256;
const BODIES_OF_CLIENT_MAX: usize = BODIES_MAX / 2;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const BROKE_OFF: &str = "weir: the body of the review broke off, or took more than 10 seconds";
