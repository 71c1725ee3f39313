//! A request from its head to the head of its response: its context, its steps, and what is
//! counted.

use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use prometheus::IntCounter;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::Router;
use super::counts;
use crate::api::request_info::RequestInfo;
use crate::flow::habit::Habit;
use crate::server::connection::client::Client;
use crate::server::connection::list::ListedConnection;
use crate::server::flow_control::habit;
use crate::server::flow_control::meter::{Answered as ChargedAnswer, Busy, Meter, Timed};
use crate::server::forward::upgrade::{close_if_not_upgraded, requested_upgrade};
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::body::Body;
use crate::server::http::cache_header::set_cache_header;
use crate::server::http::response::Reply;
use crate::server::metrics::CacheStatus;
use crate::server::request::auth::AuthContext;
use crate::server::request::context::RequestContext;
use crate::server::request::explain::{Ending, Explanation};
use crate::server::request::trace::{AnswerSummary, RequestTrace};
use crate::telemetry::metrics::GaugeGuard;

/// The response to a request. One that is longer than a piece has a counter of its bytes, and a
/// meter, if clients' costs are added up.
pub(crate) type Answered = (Response<Body>, Option<IntCounter>, Option<Box<Meter>>);

/// A request until its response is known.
struct OpenRequest<'a> {
    in_flight: GaugeGuard,
    /// The connection, if it is the first request there.
    first: Option<&'a ListedConnection>,
    upgrade_requested: bool,
    /// The span of the log.
    span: Span,
}

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
    ) -> impl Future<Output = Answered> + Send {
        let (mut parts, body) = request.into_parts();
        async move {
            let in_flight = self.metrics.in_flight();
            let first = client.listed.as_ref().filter(|listed| listed.begin_request());
            let upgrade_requested = requested_upgrade(&parts).is_some();
            let has_body = !body.is_end_stream();
            let context = &mut self.begin(&client, &mut parts, has_body, first.is_some());
            let span = RequestTrace::log_span(context.trace.as_deref(), context.parts);
            let open = OpenRequest { in_flight, first, upgrade_requested, span };
            let busy = Busy::new(self.charges());
            let (unanswered, busy) = {
                let answered = self.answer(context, body).instrument(open.span.clone());
                let (answered, busy) = Timed::new(Box::pin(answered), busy).await;
                match answered {
                    Ok(reply) => return self.end(context, open, reply, busy),
                    Err(unanswered) => (unanswered, busy),
                }
            };
            let (request, busy) = {
                let prepared = self.prepare_forwarded(context, unanswered);
                let prepared = prepared.instrument(open.span.clone());
                let (prepared, busy) = Timed::new(Box::pin(prepared), busy).await;
                match prepared {
                    Ok(request) => (request, busy),
                    Err(refusal) => return self.end(context, open, *refusal, busy),
                }
            };
            let forwarded = self.forward(context, request).instrument(open.span.clone());
            let (reply, busy) = Timed::new(Box::pin(forwarded), busy).await;
            self.end(context, open, reply, busy)
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
        let started = Instant::now();
        let is_timed = self.caches.live.load().slow_request.is_some();
        let explanation = Explanation::take(&mut parts.headers, started, is_timed);
        let query = parts.uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
        let gvr = info.resource.as_ref().map(|resource| &resource.gvr);
        let resource = gvr.and_then(|gvr| self.caches.registry.peek(gvr));
        // Clients choose the names of unknown resources, which must not become label values.
        let metrics = self.metrics.resource(gvr.filter(|_| resource.is_some()));
        let trace = self.tracer.begin(parts, &info, resource.is_some(), started);
        let is_charged = self.charges();
        let habit = if is_charged { habit(&info, &parts.headers) } else { Habit::default() };
        let agent = parts.headers.get(USER_AGENT);
        let agent = agent.filter(|_| is_charged || is_first).cloned();
        RequestContext {
            started,
            client,
            version: parts.version,
            parts,
            has_body,
            info,
            resource,
            metrics,
            auth: AuthContext::new(),
            agent,
            habit,
            explanation,
            trace,
            admission: None,
            watch: None,
            is_checked: false,
            forwarded: None,
            upstream_time: None,
            copy: None,
        }
    }

    /// Whether clients' costs are added up.
    fn charges(&self) -> bool {
        self.flow_control.as_ref().is_some_and(|flow| flow.charges())
    }

    /// Counts a request whose response is known. `busy` is for how long Weir has worked for it.
    fn end(
        &self,
        context: &mut RequestContext<'_>,
        open: OpenRequest<'_>,
        reply: Reply,
        busy: Busy,
    ) -> Answered {
        let OpenRequest { in_flight, first, upgrade_requested, span } = open;
        let Reply { mut response, cache_status, reason } = reply;
        first.inspect(|listed| counts::note_client(listed, context));
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
        let sent = counts::count(context, &response, (cache_status, reason), duration);
        let headers = response.headers();
        context.finish_trace(&AnswerSummary { code, status: cache_status, reason, headers });
        let status = cache_status.as_str();
        span.in_scope(|| tracing::debug!(code, cache_status = status, reason, ?duration));
        let live = self.caches.live.load();
        if let Some(explanation) = context.explanation.take() {
            let (upstream, is_stale) = (context.upstream_time, context.auth.is_stale());
            let ending = Ending { status: cache_status, reason, upstream, is_stale };
            if live.slow_request.is_some_and(|limit| duration > limit) {
                let timing = explanation.timing(&ending);
                span.in_scope(|| log_slow(context, &response, &ending, (duration, &timing)));
            }
            explanation.add_to(response.headers_mut(), &ending);
        }
        set_cache_header(&mut response, cache_status, reason, context.auth.is_stale());
        drop(in_flight);
        let meter = self.charge(context, &response, cache_status, busy.run_time(duration));
        (response, sent, meter)
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
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let gvr = gvr.filter(|_| context.forwarded.is_some());
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        flow.charge_request(context, &ChargedAnswer { response, status, busy, size })
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
