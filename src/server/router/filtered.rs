//! A list or watch of all namespaces that the API server refuses, answered with what its user may
//! see (`docs/decisions/filtered-lists.md`).
//!
//! It is refused by the same decision as any other read, by roles or by an access review: what is
//! allowed is never filtered. Nothing of it is forwarded, since the API server would refuse it:
//! what no cache answers gets an error of its own, or that refusal.

use http::StatusCode;

use super::Router;
use crate::api::status::Status;
use crate::config::ConsistentLists;
use crate::server::cached::read::target;
use crate::server::delegate::{self, Reason};
use crate::server::http::headers::remove_tables;
use crate::server::http::refusal::refusal;
use crate::server::http::response::Reply;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Bypass, Rejection, RejectionCause};
use crate::server::router::answer::UserRead;

impl Router {
    /// Returns the part of a list or watch that its user may see. `None` if the request is to be
    /// answered like any other.
    pub(super) async fn serve_filtered(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Reply>, Bypass> {
        if !self.access.may_filter(context)? || self.caches.find_resource(context).await.is_err() {
            return Ok(None);
        }
        let denial = match self.review(context, caller).await {
            Err(Bypass::Refuse(denial)) if denial.cause == RejectionCause::Forbidden => denial,
            Err(Bypass::Refuse(refused)) => return Err(refused.into()),
            Ok(_) | Err(Bypass::Forward(_)) => return Ok(None),
        };
        match self.read_filtered(context, caller).await {
            Ok(reply) => Ok(Some(reply)),
            Err(Bypass::Forward(reason)) => Err(unanswered(reason, denial).into()),
            Err(refused) => Err(refused),
        }
    }

    async fn read_filtered(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Reply, Bypass> {
        let (view, reauthorization) =
            self.access.view(context, caller).ok_or(Reason::Authorization)?;
        remove_tables(&mut context.parts.headers);
        context.resolved.decision = delegate::decide(
            context.parts,
            context.has_body,
            &context.info,
            ConsistentLists::Always,
            false,
        );
        let handshake = Self::handshake(context, caller)?;
        let target = target(context)?;
        let read = UserRead { target, handshake, reauthorization, view: Some(view) };
        self.read_cache(context, read).await
    }
}

/// Returns the refusal of a request that no cache answers, for a reason for which others are
/// forwarded.
fn unanswered(reason: Reason, denial: Rejection) -> Rejection {
    let status = match reason {
        Reason::Exact | Reason::BeforeCache => refusal(StatusCode::GONE, "Expired", OLD.to_owned()),
        Reason::Continue => refusal(StatusCode::GONE, "Expired", OLD_PAGE.to_owned()),
        Reason::Form => refusal(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", FORM.to_owned()),
        Reason::Consistent | Reason::Unproved => Status::initializing(),
        reason if reason.wants_cache() => Status::initializing(),
        _ => return denial,
    };
    Rejection::new(status, RejectionCause::Forward(reason))
}

/// The words of kube-apiserver (`storage/errors.go`).
const OLD: &str = "The resourceVersion for the provided list is too old.";
/// The words of kube-apiserver (`storage/etcd3/errors.go`).
const OLD_PAGE: &str = "The provided continue parameter is too old to display a consistent list \
                        result. You must start a new list without the continue parameter.";
const FORM: &str = "weir: what a user may see of all namespaces is answered in JSON and protobuf, \
                    and not as a Table";
