//! One request from its head to the head of its response: resolved, checked, answered from a cache
//! or forwarded, counted.
//!
//! A request goes one way: [`answer`] decides whether Weir answers it, from a cache in most cases,
//! or why the API server does; then [`forward`] has it prepared, given seats, and sent.
//!
//! After a failed upgrade the client's connection is closed, whoever refused the upgrade. The
//! client may have sent bytes of the new protocol, which must never be parsed as another request
//! (CVE-2018-1002105).

mod answer;
mod filtered;
mod forward;
mod review;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use prometheus::IntCounter;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::api::request_info::Verb;
use crate::codec::rope::PIECE_BYTES;
use crate::server::cached::read::CacheServices;
use crate::server::cached::websocket::Sockets;
use crate::server::connection::activity::RequestGuard;
use crate::server::connection::client::Client;
use crate::server::connection::client_id::ClientId;
use crate::server::connection::guarded_body::{BodyGuards, GuardedBody};
use crate::server::connection::large_heads::LargeHead;
use crate::server::connection::list::ListedConnection;
use crate::server::connection::send_timeouts::SendTimeouts;
use crate::server::delegate::Reason;
use crate::server::flow_control::meter::{Answered as ChargedAnswer, Busy, Meter, Timed};
use crate::server::flow_control::{FlowControl, habit};
use crate::server::forward::documents::Documents;
use crate::server::forward::forwarder::Forwarder;
use crate::server::forward::relay::ClientBody;
use crate::server::forward::upgrade::{close_if_not_upgraded, requested_upgrade};
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::body::Body;
use crate::server::http::response::{Reply, set_cache_header};
use crate::server::metrics::{AnsweredRequest, CacheStatus, ServerMetrics};
use crate::server::open_watches::OpenWatches;
use crate::server::request::access::Access;
use crate::server::request::audit::Auditor;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::explain::{Ending, Explanation};
use crate::server::request::resolved::Resolved;
use crate::server::request::trace::{AnswerSummary, RequestTrace, RequestTracer};
use crate::server::shadow::Shadow;
use crate::tasks::keyed_counter::KeyedCounter;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::availability::Availability;

pub(crate) struct Router {
    pub(crate) caches: CacheServices,
    pub(crate) forwarder: Forwarder,
    pub(crate) documents: Documents,
    pub(crate) sockets: Sockets,
    pub(crate) metrics: ServerMetrics,
    pub(crate) access: Access,
    pub(crate) auditor: Auditor,
    pub(crate) tracer: RequestTracer,
    /// Adds up the costs of clients; `None` if flow control is off.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
    /// The open watches of each user; `None` in a sidecar.
    pub(crate) watches: Option<Arc<OpenWatches>>,
    /// Compares reads with the caches; `None` unless in shadow mode.
    pub(crate) shadow: Option<Arc<Shadow>>,
    /// The access reviews whose bodies are read, by client.
    pub(crate) review_bodies: KeyedCounter<ClientId>,
}

enum Answer {
    Own(Box<Reply>),
    Forward(Forwarding),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Own(Box::new(reply))
    }
}

struct Forwarding {
    caller: Caller,
    body: ClientBody,
    reason: Reason,
}

/// A request until its response is known.
struct OpenRequest<'a> {
    in_flight: GaugeGuard,
    /// The connection, if it is the first request there.
    first: Option<&'a ListedConnection>,
    upgrade_requested: bool,
    /// The span of the log.
    span: Span,
}

/// The parts that the connection of a request gives to it: the guard of the request and, for a
/// stream of HTTP/2, time-outs, both for its body; and what counts a large head until its answer.
type ConnectionPart = (RequestGuard, Option<SendTimeouts>, Option<LargeHead>);

impl Router {
    /// Answers a request. Never fails: an error is a response as well.
    ///
    /// A request may wait in this future, and each is as large as what lives in it at once. So its
    /// steps are futures of their own, it is no `async fn`, which would have its arguments twice,
    /// and nothing that a step returns lives beside the next one.
    pub(crate) fn handle(
        self: Arc<Self>,
        client: Arc<Client>,
        request: Request<Incoming>,
        part: ConnectionPart,
    ) -> impl Future<Output = Result<Response<GuardedBody>, Infallible>> + Send {
        let (mut parts, body) = request.into_parts();
        async move {
            let in_flight = self.metrics.in_flight();
            let first = client.listed.as_ref().filter(|listed| listed.begin_request());
            let has_body = !body.is_end_stream();
            let context = &mut self.begin(&client, &mut parts, has_body, first.is_some());
            let upgrade_requested = !context.is_plain && requested_upgrade(context.parts).is_some();
            let span = RequestTrace::log_span(context.trace.as_deref(), context.parts);
            let open = OpenRequest { in_flight, first, upgrade_requested, span };
            let busy = Busy::new(self.charges());
            let (forwarding, busy) = {
                let answered = Box::pin(self.answer(context, body)).instrument(open.span.clone());
                match Timed::new(answered, busy).await {
                    (Answer::Own(reply), busy) => {
                        return Ok(self.end(context, open, (*reply, busy), part));
                    }
                    (Answer::Forward(forwarding), busy) => (forwarding, busy),
                }
            };
            let (sendable, busy) = {
                let prepared = Box::pin(self.prepare_forwarded(context, forwarding));
                match Timed::new(prepared.instrument(open.span.clone()), busy).await {
                    (Ok(sendable), busy) => (sendable, busy),
                    (Err(reply), busy) => {
                        return Ok(self.end(context, open, (*reply, busy), part));
                    }
                }
            };
            let forwarded = Box::pin(self.forward(context, sendable));
            let answered = Timed::new(forwarded.instrument(open.span.clone()), busy).await;
            Ok(self.end(context, open, answered, part))
        }
    }

    /// Returns the context of a request that has just arrived. `is_first` is whether it is the
    /// first of its connection.
    fn begin<'a>(
        &self,
        client: &'a Arc<Client>,
        parts: &'a mut Parts,
        has_body: bool,
        is_first: bool,
    ) -> RequestContext<'a> {
        let registry = &self.caches.registry;
        let consistent_lists = || registry.config().consistent_lists;
        let impersonation = self.access.impersonation(parts);
        let mut resolved = Resolved::new(client, parts, has_body, consistent_lists, impersonation);
        let is_charged = self.charges();
        if is_charged {
            resolved.habit = habit(&resolved.info, &parts.headers);
        }
        let is_write = matches!(resolved.info.verb, Verb::Update | Verb::Patch);
        if is_charged || is_first || is_write {
            resolved.agent = parts.headers.get(USER_AGENT).cloned();
        }
        let request = resolved.info.resource.as_ref();
        let resource = request.and_then(|request| registry.peek(&request.gvr));
        // Clients choose the names of unknown resources, which must not become label values.
        let metrics = self.metrics.resource(resource.as_ref().map(|resource| &resource.gvr));
        let started = resolved.started;
        let is_timed = self.caches.live.load().slow_request.is_some();
        let explain = || Explanation::take(&mut parts.headers, started, is_timed);
        let explanation = (is_timed || !resolved.is_plain).then(explain).flatten();
        let trace = self.tracer.begin(parts, &resolved.info, resource.is_some(), started);
        let mut context = RequestContext::new(resolved, parts, metrics);
        context.resource = resource;
        context.explanation = explanation;
        context.trace = trace;
        context
    }

    fn charges(&self) -> bool {
        self.flow_control.as_ref().is_some_and(|flow| flow.charges())
    }

    pub(super) fn availability(&self) -> &Availability {
        self.caches.registry.availability()
    }

    /// Counts a request whose response is known. `busy` is for how long Weir has worked for it.
    fn end(
        &self,
        context: &mut RequestContext<'_>,
        open: OpenRequest<'_>,
        (reply, busy): (Reply, Busy),
        (guard, timeouts, large): ConnectionPart,
    ) -> Response<GuardedBody> {
        let OpenRequest { in_flight, first, upgrade_requested, span } = open;
        let Reply { mut response, cache_status, reason, unwritten, lane } = reply;
        first.inspect(|listed| note_client(listed, context));
        if !self.availability().is_usable() {
            self.availability().metrics().response(cache_status.as_str());
        }
        close_if_not_upgraded(upgrade_requested, &mut response);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            context.client.keep();
        }
        let now = Instant::now();
        let duration = now.saturating_duration_since(context.started);
        let code = response.status().as_u16();
        let sent = count(context, &response, (cache_status, reason), duration);
        let headers = response.headers();
        context.finish_trace(&AnswerSummary { code, status: cache_status, reason, headers });
        let status = cache_status.as_str();
        span.in_scope(|| tracing::debug!(code, cache_status = status, reason, ?duration));
        if let Some(explanation) = context.explanation.take() {
            let (upstream, is_stale) = (context.upstream_time, context.auth.is_stale());
            let ending = Ending { status: cache_status, reason, upstream, is_stale };
            if self.caches.live.load().slow_request.is_some_and(|limit| duration > limit) {
                let timing = explanation.timing(&ending);
                span.in_scope(|| log_slow(context, &response, &ending, (duration, &timing)));
            }
            explanation.add_to(response.headers_mut(), &ending);
        }
        set_cache_header(&mut response, cache_status, reason, context.auth.is_stale());
        drop((in_flight, large));
        let meter = self.charge(context, &response, cache_status, busy.run_time(duration));
        let guards = BodyGuards { timeouts, unwritten, sent, meter };
        response.map(|body| GuardedBody::new(body, guard, guards, lane))
    }

    /// Charges a request to its sender. Returns the meter of a longer response.
    fn charge(
        &self,
        context: &mut RequestContext<'_>,
        response: &Response<Body>,
        status: CacheStatus,
        busy: Duration,
    ) -> Option<Box<Meter>> {
        let flow = self.flow_control.as_ref().filter(|flow| flow.charges())?;
        let size = context.forwarded.and_then(|_| context.size(&self.caches.registry));
        flow.charge_request(context, &ChargedAnswer { response, status, busy, size })
    }
}

/// Counts a request. Returns the counter of the bytes of its response, unless that is short, or is
/// counted where it is made.
fn count(
    context: &RequestContext<'_>,
    response: &Response<Body>,
    (cache_status, reason): (CacheStatus, &'static str),
    duration: Duration,
) -> Option<IntCounter> {
    if let Some(upstream) = context.upstream_time {
        context.metrics.forward_overhead(duration.saturating_sub(upstream));
    }
    context.metrics.request(&AnsweredRequest {
        verb: context.info.verb_label(),
        scope: context.info.scope(),
        cache_status,
        reason,
        code: response.status().as_u16(),
        duration,
        bytes: short(context, response.body()),
    })
}

fn note_client(listed: &ListedConnection, context: &RequestContext<'_>) {
    let user = context.auth.user().map_or("", |user| &user.name);
    let agent = context.agent.as_ref().and_then(|agent| agent.to_str().ok());
    listed.note_client(user, agent.unwrap_or_default());
}

/// Returns the length of a body that needs no counter.
fn short(context: &RequestContext<'_>, body: &Body) -> Option<u64> {
    match body {
        // Counted with its events.
        Body::Watch(_) => Some(0),
        // Its length is that of the GET.
        _ if context.parts.method == Method::HEAD => Some(0),
        _ => body.size_hint().exact().filter(|bytes| *bytes <= PIECE_BYTES as u64),
    }
}

/// Logs a request that took longer than `logging.slowRequest`. Its line names no user, object or
/// selector: `audit_id` leads to the audit log.
fn log_slow(
    context: &RequestContext<'_>,
    response: &Response<Body>,
    ending: &Ending,
    (duration, stages): (Duration, &str),
) {
    let info = &context.info;
    let gvr = info.resource.as_ref().map(|resource| &resource.gvr);
    let resource = gvr.filter(|_| context.resource.is_some()).map(tracing::field::display);
    // A client may choose it.
    let is_id = |id: &&str| {
        id.len() <= AUDIT_ID_BYTES_MAX
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let audit_id = response.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()).filter(is_id);
    tracing::warn!(
        verb = info.verb_label(),
        resource,
        code = response.status().as_u16(),
        cache_status = ending.status.as_str(),
        reason = ending.reason,
        audit_id,
        ?duration,
        stages,
        "a request was slow"
    );
}

/// Longer than a UUID.
const AUDIT_ID_BYTES_MAX: usize = 64;
