//! A request that is forwarded: prepared, admitted, given seats, sent.
//!
//! It is a future of its own, and those of its steps that are over before it waits for seats are
//! boxed. A request may wait for seconds, with thousands of others, and meanwhile holds neither the
//! room for the whole way of a request to a cache nor that for its preparation
//! (`docs/decisions/fair-queueing.md`).

use std::pin::pin;

use super::Router;
use super::unanswered::Unanswered;
use crate::server::forward::claim::ForwardClaim;
use crate::server::forward::forwarder::PreparedRequest;
use crate::server::forward::upstream_gate;
use crate::server::http::response::Reply;
use crate::server::metrics::timing_wait;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::Rejection;
use crate::server::request::context::RequestContext;

impl Router {
    /// Forwards a request as soon as there are seats for it.
    pub(super) async fn forward(
        &self,
        context: &mut RequestContext<'_>,
        Unanswered { caller, body, reason }: Unanswered,
    ) -> Reply {
        let prepared = Box::pin(self.prepare_forwarded(context, &caller)).await;
        let mut prepared = match prepared {
            Ok(prepared) => prepared,
            Err(rejection) => return Box::pin(self.reject(context, &rejection)).await,
        };
        let (seat, waited) = timing_wait(pin!(self.wait_for_seats(context))).await;
        context.ended_wait("seats", waited.is_some());
        match seat {
            Ok(seat) => prepared.seat = seat,
            Err(shed) => return Box::pin(self.shed(context, shed)).await,
        }
        let client = self.forwarder.share_of(&prepared);
        let claim = match ForwardClaim::acquire(&self.caches, context, reason, client) {
            Ok(claim) => claim,
            Err(rejection) => return Box::pin(self.reject(context, &rejection)).await,
        };
        Box::pin(self.forwarder.forward(context, body, *prepared, reason, claim)).await
    }

    /// Prepares a request once an API server is usable, and admits it as far as rules and limits
    /// go. An error is a refusal.
    async fn prepare_forwarded(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Box<PreparedRequest<'_>>, Rejection> {
        let usable = upstream_gate::pass(self.availability(), context).await;
        let prepared = match usable {
            Ok(()) => self.prepare(context, caller).await,
            Err(rejection) => Err(rejection),
        };
        // Also where it fails: a refusal may come after a wait for an API server.
        context.ended("prepare");
        let prepared = prepared?;
        self.admit_forwarded(context)?;
        Ok(Box::new(prepared))
    }
}
