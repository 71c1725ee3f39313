//! A list or watch of all namespaces that the API server refuses, answered with what its user may
//! see (`docs/decisions/filtered-lists.md`).
//!
//! The same decision refuses it as any other read: one of roles, or of an access review. So an
//! allowed request is never filtered. A refused one is not forwarded, since the API server would
//! refuse it too. If no cache can answer it, it gets an error of its own, or that refusal.

use http::StatusCode;

use super::Router;
use crate::api::status::Status;
use crate::auth::reauthorization::Reauthorization;
use crate::auth::visibility::UserView;
use crate::cache::refusal::Refusal;
use crate::server::cached::read::target;
use crate::server::cached::websocket::Handshake;
use crate::server::delegate::{CachedDecision, ReadAt, Reason, Start, Target};
use crate::server::http::headers::remove_tables;
use crate::server::http::refusal::refusal;
use crate::server::http::response::Reply;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Bypass, Rejection, RejectionCause};

/// A read that its user is allowed.
pub(super) struct UserRead {
    pub(super) target: Target,
    pub(super) handshake: Option<Box<Handshake>>,
    pub(super) reauthorization: Option<Box<Reauthorization>>,
    /// How the user may see the collection, if not all of it.
    pub(super) view: Option<Box<UserView>>,
}

/// The outcome of a request that may be answered in part.
pub(super) enum Outcome {
    /// It is to be answered as a whole. If it is allowed already, a watch is authorized again by
    /// this.
    Whole(Option<Option<Box<Reauthorization>>>),
    Answered(Box<Reply>),
}

impl Router {
    /// Returns the part of a list or watch that its user may see, if the whole is refused. Call
    /// this for a request that may be answered so.
    pub(super) async fn serve_filtered(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Outcome, Bypass> {
        if self.caches.find_resource(context).await.is_err() {
            return Ok(Outcome::Whole(None));
        }
        let denial = match self.review(context, caller).await {
            Err(Bypass::Refuse(denial)) if denial.cause == RejectionCause::Forbidden => denial,
            Ok(reauthorization) => {
                self.ensure_whole(context)?;
                return Ok(Outcome::Whole(Some(reauthorization)));
            }
            // `serve_cached` asks again if it needs a decision.
            Err(_) => return Ok(Outcome::Whole(None)),
        };
        match self.read_filtered(context, caller).await {
            Ok(reply) => Ok(Outcome::Answered(reply)),
            Err(Bypass::Forward(reason)) => Err(unanswered(reason, denial).into()),
            Err(refused) => Err(refused),
        }
    }

    /// Ensures that a client which goes on from a state has seen all of it, and not only a part.
    fn ensure_whole(&self, context: &RequestContext<'_>) -> Result<(), Rejection> {
        let goes_on = match &context.decision {
            Ok(CachedDecision::List(plan, _)) => matches!(plan.read_at, ReadAt::Exact(_)),
            Ok(CachedDecision::Watch(plan, _)) => matches!(plan.start, Start::After(_)),
            _ => false,
        };
        match self.access.forget_view(context) && goes_on {
            true => Err(expired(OLD, Reason::Exact)),
            false => Ok(()),
        }
    }

    async fn read_filtered(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Box<Reply>, Bypass> {
        let (view, reauthorization) =
            self.access.view(context, caller).ok_or(Reason::Authorization)?;
        remove_tables(&mut context.parts.headers);
        context.resolved.decision = context.decide_with_proofs(context.parts, false);
        let handshake = Self::handshake(context, caller)?;
        let target = target(context)?;
        let read = UserRead { target, handshake, reauthorization, view: Some(Box::new(view)) };
        self.read_cache(context, read).await
    }
}

/// Returns the refusal of a request that no cache answers, for a reason for which others are
/// forwarded.
fn unanswered(reason: Reason, denial: Rejection) -> Rejection {
    let status = match reason {
        Reason::Exact | Reason::BeforeCache => return expired(OLD, reason),
        Reason::Continue => return expired(OLD_PAGE, reason),
        Reason::Form => refusal(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", FORM.to_owned()),
        Reason::Consistent | Reason::Unproved => Status::initializing(),
        Reason::Refused(Refusal::Stopping) => Status::initializing(),
        reason if reason.wants_cache() => Status::initializing(),
        _ => return denial,
    };
    Rejection::new(status, RejectionCause::Forward(reason))
}

fn expired(message: &str, reason: Reason) -> Rejection {
    let status = refusal(StatusCode::GONE, "Expired", message.to_owned());
    Rejection::new(status, RejectionCause::Forward(reason))
}

/// The words of kube-apiserver (`storage/errors.go`).
const OLD: &str = "The resourceVersion for the provided list is too old.";
/// The words of kube-apiserver (`storage/etcd3/errors.go`).
const OLD_PAGE: &str = "The provided continue parameter is too old to display a consistent list \
                        result. You must start a new list without the continue parameter.";
const FORM: &str = "weir: what a user may see of all namespaces is answered in JSON and protobuf, \
                    and not as a Table";
