//! A request that is forwarded: prepared, admitted, given seats, sent.
//!
//! A request may wait for seats for seconds, with thousands of others. So each step is a future of
//! its own, which ends before the wait, and a request that has to wait is packed meanwhile
//! (`docs/decisions/fair-queueing.md`).

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::Router;
use super::unanswered::Unanswered;
use crate::flow::schedule::request::Rejected;
use crate::server::delegate::Reason;
use crate::server::flow_control::queue::SeatHold;
use crate::server::flow_control::seats::Seats;
use crate::server::forward::claim::ForwardClaim;
use crate::server::forward::forwarder::PreparedRequest;
use crate::server::forward::upstream_gate;
use crate::server::http::response::Reply;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::Rejection;
use crate::server::request::context::RequestContext;

/// A request that is sent as soon as there are seats for it.
pub(super) struct Sendable<'a> {
    prepared: PreparedRequest<'a>,
    body: Incoming,
    /// Why it is forwarded.
    reason: Reason,
}

/// Seats, if a request needs any, or a refusal.
type SeatResult = Result<Option<SeatHold>, Rejected>;

/// The next step of a request that asks for seats.
enum NextStep<'a, 'b> {
    /// It is sent or refused by this.
    Decided(BoxFuture<'a, Reply>),
    /// It is packed until it gets its seats, or is refused.
    Waits(&'a mut RequestContext<'b>, Box<Sendable<'a>>, BoxFuture<'static, SeatResult>),
}

impl Router {
    /// Prepares a request once an API server is usable, and admits it as far as rules and limits
    /// go. An error is a refusal.
    pub(super) async fn prepare_forwarded(
        &self,
        context: &mut RequestContext<'_>,
        Unanswered { caller, body, reason }: Unanswered,
    ) -> Result<Box<Sendable<'_>>, Box<Reply>> {
        let prepared = self.prepare_admitted(context, &caller).await;
        match prepared {
            Ok(prepared) => Ok(Box::new(Sendable { prepared, body, reason })),
            Err(rejection) => Err(Box::new(self.reject(context, &rejection).await)),
        }
    }

    async fn prepare_admitted(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<PreparedRequest<'_>, Rejection> {
        let usable = upstream_gate::pass(self.availability(), context).await;
        let prepared = match usable {
            Ok(()) => self.prepare(context, caller).await,
            Err(rejection) => Err(rejection),
        };
        // Also where it fails: a refusal may come after a wait for an API server.
        context.ended("prepare");
        let prepared = prepared?;
        self.admit_forwarded(context)?;
        Ok(prepared)
    }

    /// Forwards a request as soon as there are seats for it.
    ///
    /// It is no `async fn`, which would have its arguments twice, and nothing larger than a pointer
    /// lives beside the wait.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has its arguments twice")]
    pub(super) fn forward<'a, 'b: 'a>(
        &'a self,
        context: &'a mut RequestContext<'b>,
        request: Box<Sendable<'a>>,
    ) -> impl Future<Output = Reply> + Send + use<'a, 'b> {
        async move {
            let (context, mut request, seat) = match self.ask(context, request) {
                NextStep::Decided(sent) => return sent.await,
                NextStep::Waits(context, request, seat) => (context, request, seat),
            };
            let sent = {
                let seat = seat.await;
                request.prepared.unpack(context.parts);
                context.ended_wait("seats", true);
                self.decided(context, request, seat)
            };
            sent.await
        }
    }

    /// Asks for the seats of a request, and packs it if it has to wait.
    fn ask<'a, 'b: 'a>(
        &'a self,
        context: &'a mut RequestContext<'b>,
        mut request: Box<Sendable<'a>>,
    ) -> NextStep<'a, 'b> {
        let seat = match self.ask_for_seats(context) {
            Ok(Seats::Now(seat)) => Ok(seat),
            Ok(Seats::Later(wait)) => {
                let mut seat = wait.wait().boxed();
                // It may have been decided at once.
                match (&mut seat).now_or_never() {
                    Some(seat) => seat,
                    None => {
                        request.prepared.pack(context.parts);
                        return NextStep::Waits(context, request, seat);
                    }
                }
            }
            Err(shed) => Err(shed),
        };
        context.ended_wait("seats", false);
        NextStep::Decided(self.decided(context, request, seat))
    }

    /// Sends a request that has its seats, or refuses it. Many are refused at once, so a refusal
    /// has no room for the way to an API server.
    fn decided<'a, 'b: 'a>(
        &'a self,
        context: &'a mut RequestContext<'b>,
        request: Box<Sendable<'a>>,
        seat: SeatResult,
    ) -> BoxFuture<'a, Reply> {
        match seat {
            Ok(seat) => self.forward_seated(context, request, seat).boxed(),
            Err(shed) => self.shed(context, shed).boxed(),
        }
    }

    /// Sends a request that has its seats.
    async fn forward_seated(
        &self,
        context: &mut RequestContext<'_>,
        request: Box<Sendable<'_>>,
        seat: Option<SeatHold>,
    ) -> Reply {
        let Sendable { prepared, body, reason } = *request;
        let client = self.forwarder.share_of(&prepared);
        match ForwardClaim::acquire(&self.caches, context, reason, client) {
            Ok(claim) => {
                context.forwarded = Some(Instant::now());
                self.forwarder.forward(context, body, prepared, reason, (claim, seat)).await
            }
            Err(rejection) => {
                // A rejection may wait, for the audit log or to hold its client back. Others use
                // the seats meanwhile.
                drop((seat, prepared));
                Box::pin(self.reject(context, &rejection)).await
            }
        }
    }
}
