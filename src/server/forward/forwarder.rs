//! Sends requests to the upstream, and relays the responses.
//!
//! A request and its response pass through unchanged, but for what belongs to a connection or
//! carries an identity ([`crate::server::forward::identity`]). Bodies are streamed both ways
//! without being buffered.
//!
//! A request is prepared first ([`Forwarder::prepare`]), so that everything that Weir refuses is
//! known before anything is sent. After a failed upgrade the connection to the upstream is closed,
//! since it is unknown what was written to it. The client's connection is closed by
//! [`mod@crate::server::router`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{EXPECT, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::time::Instant;

use crate::api::request_info::Verb;
use crate::api::status::Status;
use crate::auth::standing::Standing;
use crate::server::connection::client_id::ClientId;
use crate::server::connection::permitted_io::StallTimeout;
use crate::server::delegate::Reason;
use crate::server::forward::claim::ForwardClaim;
use crate::server::forward::identity::{ForwardedIdentity, IdentityNames, Upstreams};
use crate::server::forward::list_times::ListTimes;
use crate::server::forward::packed_head::{PackedHeaders, detach_target};
use crate::server::forward::quota::{AtLimit, Capacity, ClientIds, QuotaPermit, UpstreamQuota};
use crate::server::forward::relay::{ClientBody, path_only, relay_request_body, relay_response};
use crate::server::forward::share::ForwardShares;
use crate::server::forward::traffic_class::{
    is_answered_in_time, is_proxied, is_read, may_be_stale, older_collection, traffic_class,
};
use crate::server::forward::upgrade::{Splicer, ask_for_upgrade, requested_upgrade};
use crate::server::forward::upstream_gate::FAILOVER_WAIT_MAX;
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::request::context::RequestContext;
use crate::server::request::holds::Holds;
use crate::server::request::rejection::{Rejection, RejectionCause};
use crate::telemetry::log_throttle::LogThrottle;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::HEAD_TIMEOUT;
use crate::upstream::hops::VIA;
use crate::upstream::send_options::ResetObserver;
use crate::upstream::{
    Choice, RequestPurpose, SendOptions, TrafficClass, Upstream, empty_body, pool,
};

pub(crate) struct Forwarder {
    pub(crate) upstreams: Upstreams,
    /// The identity headers that a client may not send.
    pub(crate) names: IdentityNames,
    /// The limit of one client.
    pub(crate) quota: UpstreamQuota,
    /// The share of one client in the forward budgets.
    pub(crate) shares: ForwardShares,
    /// Whether all requests have Weir's identity (sidecar mode). A client is then a connection.
    pub(crate) shares_identity: bool,
    pub(crate) splicer: Splicer,
    /// The longest pause of a client within a request body.
    pub(crate) stall_timeout: Duration,
    pub(crate) failures: LogThrottle,
    pub(crate) list_times: Arc<ListTimes>,
}

/// A request that is ready to be sent: its headers and its connections.
pub(crate) struct PreparedRequest<'a> {
    upstream: &'a Upstream,
    headers: HeaderMap,
    class: TrafficClass,
    /// The protocol of the upgrade that it asks for.
    upgrade: Option<Box<HeaderValue>>,
    client: ClientIds,
    /// The client as a number, for what stays at one API server of several.
    pin: Option<u64>,
    /// Whether it may show an older state ([`SendOptions::pin`]).
    is_stale: bool,
    collection: Option<Arc<str>>,
    is_read: bool,
    /// Whether an answer that comes later than [`HEAD_TIMEOUT`] never comes.
    is_answered_in_time: bool,
    standing: Standing,
    /// Its headers and those of its client, while it waits for seats; both are empty then.
    packed: Option<PackedHeaders>,
}

impl PreparedRequest<'_> {
    /// Returns how it uses the connections, which is made when it is sent: it takes more memory
    /// than what follows from the request, and requests may wait.
    fn options(&self, context: &RequestContext<'_>) -> SendOptions {
        let Holds { quota, seats, .. } = &context.holds;
        let reset_observer = quota.clone().map(|quota| quota as Arc<dyn ResetObserver>);
        SendOptions {
            purpose: RequestPurpose::Forward,
            is_read: self.is_read,
            unproven: !self.standing.is_proven,
            is_wide: self.class == TrafficClass::Request
                && seats.as_ref().is_some_and(|seats| seats.seats() > 1),
            pin: self.pin.filter(|_| self.is_stale),
            choice: self.pin.map_or(Choice::Spread, Choice::Sticky),
            collection: self.collection.clone(),
            wait_until: Some(context.started + FAILOVER_WAIT_MAX),
            answer_timeout: self.is_answered_in_time.then_some(HEAD_TIMEOUT),
            reset_observer,
            attempt_observer: seats.as_ref().and_then(|seats| seats.observer.clone()),
        }
    }

    /// Makes the request small while it waits for seats. `head` is that of its client, and has no
    /// headers until [`Self::unpack`].
    pub(crate) fn pack(&mut self, head: &mut Parts) {
        self.packed = Some(PackedHeaders::new(&head.headers, &self.headers));
        (head.headers, self.headers) = Default::default();
        detach_target(head);
    }

    pub(crate) fn unpack(&mut self, head: &mut Parts) {
        if let Some(packed) = self.packed.take() {
            [head.headers, self.headers] = packed.unpack();
        }
    }
}

impl Forwarder {
    /// Prepares a request that is forwarded with `identity`, of which `standing` is known. Nothing
    /// is sent. Errors are Weir's own responses.
    pub(crate) fn prepare(
        &self,
        identity: &ForwardedIdentity,
        standing: Standing,
        context: &RequestContext<'_>,
    ) -> Result<PreparedRequest<'_>, Status> {
        let address = context.client.peer.address;
        let mut headers = context.parts.headers.clone();
        identity.apply(&self.names, address, &mut headers)?;
        let upstream = self.upstreams.for_identity(identity)?;
        let upgrade = requested_upgrade(context.parts);
        let class = traffic_class(&context.info, upgrade.is_some());
        let client = match self.shares_identity {
            true => ClientIds::from_connection(context.client.number),
            false => ClientIds::from_address(address, standing.user),
        };
        let is_stale = may_be_stale(&context.info);
        let has_pin = is_stale || class == TrafficClass::Stream;
        let pin = has_pin.then(|| self.quota.pin(client));
        let has_choice = upstream.endpoints().has_several();
        let collection = has_choice.then(|| older_collection(&context.info)).flatten();
        Ok(PreparedRequest {
            upstream,
            headers,
            class,
            is_read: upgrade.is_none() && is_read(&context.parts.method, &context.info),
            is_answered_in_time: is_answered_in_time(&context.info),
            upgrade: upgrade.map(Box::new),
            client,
            pin,
            is_stale,
            collection: collection.map(Arc::from),
            standing,
            packed: None,
        })
    }

    /// Takes the part of the upstream that a request needs, of which one client may have half.
    pub(crate) fn take_quota(
        &self,
        prepared: &PreparedRequest<'_>,
    ) -> Result<Arc<QuotaPermit>, Rejection> {
        let PreparedRequest { upstream, class, client, standing, .. } = prepared;
        let unproven = !standing.is_proven;
        let capacity = Capacity {
            streams_max: upstream.streams_max(*class, unproven),
            resets_max: Upstream::resets_max(*class),
        };
        let quota = self.quota.try_acquire(*client, *class, unproven, capacity);
        quota.map(Arc::new).map_err(|limit| {
            let message = match limit {
                AtLimit::Open => TOO_MANY_OPEN,
                AtLimit::Cancelled => TOO_MANY_CANCELLED,
            };
            Rejection::new(refusal::too_many_requests(message), RejectionCause::Quota)
        })
    }

    /// Returns whom a request with a quota counts for in the forward budgets, and the counts;
    /// `None` in sidecar mode, where all clients are one.
    pub(crate) fn share_of(
        &self,
        context: &RequestContext<'_>,
    ) -> Option<(&ForwardShares, ClientId)> {
        let quota = context.holds.quota.as_ref().filter(|_| !self.shares_identity)?;
        Some((&self.shares, quota.client()))
    }

    /// Refuses a request that came back to this Weir, or through too many.
    pub(crate) fn check_hops(&self, headers: &HeaderMap) -> Result<(), Status> {
        if !headers.contains_key(VIA) {
            return Ok(());
        }
        let checked = self.upstreams.own_identity.endpoints().hop.check(headers);
        checked.map_err(|error| {
            let message = format!("weir: {error}");
            refusal::refusal(StatusCode::LOOP_DETECTED, "LoopDetected", message)
        })
    }

    /// Sends a request for `reason`, and relays the response, which holds `claim`. Takes the head
    /// of the request out of `context`, and what the body of the response holds.
    pub(crate) async fn forward(
        &self,
        context: &mut RequestContext<'_>,
        body: ClientBody,
        prepared: PreparedRequest<'_>,
        (reason, claim): (Reason, Option<ForwardClaim>),
    ) -> Reply {
        let (empty, ()) = Request::new(()).into_parts();
        let mut parts = std::mem::replace(context.parts, empty);
        let is_proxied = is_proxied(&context.info);
        let is_list = context.info.verb == Verb::List;
        let is_consistent = matches!(reason, Reason::Consistent | Reason::Unproved);
        let timer = (is_list && is_consistent).then(|| self.list_times.time(&parts)).flatten();
        let options = prepared.options(context);
        let PreparedRequest { upstream, headers, class, upgrade, standing, .. } = prepared;
        let original = std::mem::replace(&mut parts.headers, headers);
        let refuse = |status: &Status| Reply::error(&original, status, reason.as_str());
        if let Some(protocol) = upgrade {
            ask_for_upgrade(&mut parts.headers, *protocol, &original);
        }
        parts.uri = path_only(parts.uri);
        let version = std::mem::take(&mut parts.version);
        let client_upgrade = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        parts.extensions.clear();

        let broken = Arc::new(AtomicBool::new(false));
        let stall = StallTimeout::new(self.stall_timeout);
        let is_continue =
            |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let is_expected = original.get(EXPECT).is_some_and(is_continue);
        let body = relay_request_body(body, (version, is_expected), &broken, stall);
        let call = context.begin_call(&mut parts.headers);
        let sending = Instant::now();
        let sent = upstream.send_with(class, Request::from_parts(parts, body), &options).await;
        context.end_call(call, &sent);
        context.upstream_time = sent.is_ok().then(|| sending.elapsed());
        drop(options);
        if let Ok(response) = &sent {
            standing.answered(response.status(), is_proxied);
        }
        match sent {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                // A 101 without a requested upgrade is a protocol error.
                let client_upgrade = client_upgrade.filter(|_| class == TrafficClass::Upgrade);
                // A watch over a WebSocket counts until the WebSocket is closed.
                let holds = context.holds.take_for_upgrade();
                match self.splicer.splice(client_upgrade, response, holds) {
                    Some(response) => {
                        context.client.splice();
                        Reply::forwarded(response, reason.as_str())
                    }
                    None => refuse(&Status::upstream_lost()),
                }
            }
            Ok(response) => {
                let is_watch = context.info.verb == Verb::Watch;
                let drain = is_watch.then(|| context.client.drain.watch(false));
                let timer = timer.filter(|_| response.status() == StatusCode::OK);
                let mut holds = context.holds.take_for_body();
                // A watch takes seats until it has begun, as in kube-apiserver.
                holds.seats.take_if(|_| is_watch);
                holds.timer = timer.map(Box::new);
                if let Some(copy) = &mut holds.copy {
                    copy.begin(&response);
                }
                let response = relay_response(response, holds, drain, claim);
                Reply::forwarded(response, reason.as_str())
            }
            // After a broken body HTTP/2 resets its stream and hides the cause.
            Err(error) if broken.load(Ordering::Relaxed) && !error.is_request_error() => {
                refuse(&self.failed(&UpstreamError::Request("its body broke off".to_owned())))
            }
            Err(error) => refuse(&self.failed(&error)),
        }
    }

    /// Sends a GET without its body, with `if_none_match` instead of the client's own condition.
    /// Errors are Weir's own responses.
    pub(crate) async fn fetch(
        &self,
        prepared: &PreparedRequest<'_>,
        context: &RequestContext<'_>,
        if_none_match: Option<&HeaderValue>,
        reason: Reason,
    ) -> Result<Response<pool::Body>, Reply> {
        let parts = &context.parts;
        let refuse = |status: &Status| Reply::error(&parts.headers, status, reason.as_str());
        let mut request = Request::new(empty_body());
        request.headers_mut().clone_from(&prepared.headers);
        request.headers_mut().remove(IF_NONE_MATCH);
        if let Some(etag) = if_none_match {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        *request.uri_mut() = path_only(parts.uri.clone());
        // A document is read without an effect.
        let options = SendOptions { is_read: true, ..prepared.options(context) };
        let PreparedRequest { upstream, standing, .. } = prepared;
        let call = context.begin_call(request.headers_mut());
        let sent = upstream.send_with(TrafficClass::Request, request, &options).await;
        context.end_call(call, &sent);
        let response = sent.map_err(|error| refuse(&self.failed(&error)))?;
        standing.answered(response.status(), false);
        Ok(response)
    }

    /// Returns the status for a request that could not be forwarded, and logs it. Only the client
    /// is informed of an error that it caused. If nothing was sent, the client may retry. If the
    /// request was sent and lost, only the client knows whether it may.
    fn failed(&self, error: &UpstreamError) -> Status {
        if error.is_request_error() {
            tracing::debug!(%error, "a request could not be forwarded");
            return refusal::bad_request(format!("weir: {error}"));
        }
        if let Some(suppressed) = self.failures.try_acquire() {
            tracing::warn!(%error, suppressed, "a request could not be forwarded");
        }
        match error {
            error if error.is_not_sent() => refusal::unreachable(),
            UpstreamError::Timeout(_) => Status::upstream_timeout(),
            _ => Status::upstream_lost(),
        }
    }
}

/// One log line a second informs an operator as well as a thousand.
pub(crate) const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(1);
const TOO_MANY_OPEN: &str = "weir: this client has too many requests open to the API server";
const TOO_MANY_CANCELLED: &str =
    "weir: this client cancelled too many requests to the API server within half a minute";
