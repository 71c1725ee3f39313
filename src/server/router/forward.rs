//! A request that is forwarded: prepared, admitted, given seats, sent.
//!
//! A request may wait for seats for seconds, with thousands of others. So preparing it is a future
//! of its own, which ends before the wait, and a request that has to wait is packed meanwhile
//! (`docs/decisions/fair-queueing.md`).

use std::pin::pin;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{Forwarding, Router};
use crate::server::delegate::Reason;
use crate::server::flow_control::queue::Seats;
use crate::server::flow_control::requester::Requester;
use crate::server::forward::forwarder::PreparedRequest;
use crate::server::forward::relay::ClientBody;
use crate::server::forward::upstream_gate;
use crate::server::http::response::Reply;
use crate::server::metrics::WaitCause;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Rejection, RejectionCause};

/// A request that is sent as soon as there are seats for it.
pub(super) struct Sendable<'a> {
    prepared: PreparedRequest<'a>,
    body: ClientBody,
    reason: Reason,
}

impl Router {
    /// Prepares a request once an API server is usable, and admits it as far as nothing has to be
    /// waited for. An error is a refusal.
    pub(super) async fn prepare_forwarded(
        &self,
        context: &mut RequestContext<'_>,
        Forwarding { caller, body, reason }: Forwarding,
    ) -> Result<Box<Sendable<'_>>, Box<Reply>> {
        let prepared = match upstream_gate::pass(self.availability(), context).await {
            Ok(()) => self.prepare(context, &caller).await,
            Err(rejection) => Err(rejection),
        };
        // Also where it fails: a refusal may come after a wait for an API server.
        context.ended("prepare");
        let admitted = prepared.and_then(|prepared| {
            self.admit(context, Some(&prepared))?;
            Ok(Box::new(Sendable { prepared, body, reason }))
        });
        match admitted {
            Ok(sendable) => Ok(sendable),
            Err(rejection) => Err(self.reject(context, &rejection).await),
        }
    }

    /// Prepares a request to be forwarded with the identity of its sender.
    pub(super) async fn prepare(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<PreparedRequest<'_>, Rejection> {
        let identity = self.access.forwarded_identity(caller);
        let standing = pin!(self.access.standing(context.client, caller));
        let (standing, _) = context.metrics.wait(WaitCause::Review, standing).await;
        if let Some(sender) = Requester::from_token(&standing) {
            if context.auth.identity.is_none() {
                context.resolved.identify(sender);
            }
            context.settle_trace();
        }
        if let Some(user) = standing.token_user_key() {
            let moved = context.client.move_to(user);
            moved.map_err(|at_limit| self.too_many_connections(at_limit))?;
        }
        let prepare = |identity| self.forwarder.prepare(&identity, standing, context);
        let prepared = identity.and_then(prepare);
        prepared.map_err(|status| Rejection::new(status, RejectionCause::Identity))
    }

    /// Forwards a request as soon as there are seats for it. Nothing larger than a pointer lives
    /// beside the wait.
    pub(super) async fn forward(
        &self,
        context: &mut RequestContext<'_>,
        mut request: Box<Sendable<'_>>,
    ) -> Reply {
        let mut has_waited = false;
        let seat = match self.ask_for_seats(context) {
            Ok(Seats::Now(seat)) => Ok(seat),
            Ok(Seats::Later(wait)) => {
                let mut decided = wait.wait().boxed();
                // It may have been decided at once.
                let seat = match (&mut decided).now_or_never() {
                    Some(seat) => seat,
                    None => {
                        has_waited = true;
                        request.prepared.pack(context.parts);
                        let seat = decided.await;
                        request.prepared.unpack(context.parts);
                        seat
                    }
                };
                seat.map(Some).map_err(Rejection::from)
            }
            Err(rejection) => Err(rejection),
        };
        context.ended_wait("seats", has_waited);
        // Many are refused at once, so a refusal has no room for the way to an API server.
        let sent = match seat {
            Ok(seat) => {
                context.holds.seats = seat.map(Box::new);
                self.forward_seated(context, request).boxed()
            }
            Err(rejection) => async move { *self.reject(context, &rejection).await }.boxed(),
        };
        sent.await
    }

    async fn forward_seated(
        &self,
        context: &mut RequestContext<'_>,
        request: Box<Sendable<'_>>,
    ) -> Reply {
        let Sendable { prepared, body, reason } = *request;
        match self.draw_on_budget(context, reason) {
            Ok(claim) => {
                context.forwarded = Some(Instant::now());
                let reply = self.forwarder.forward(context, body, prepared, (reason, claim)).await;
                if reason == Reason::Write && reply.response.status().is_success() {
                    self.caches.note_write(context);
                }
                reply
            }
            Err(rejection) => *self.reject(context, &rejection).await,
        }
    }
}
