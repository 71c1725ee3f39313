//! The way to the upstream: a request and its answer pass through unchanged but for what belongs to a
//! connection or tells an identity ([`Carry`]), streamed both ways without being gathered anywhere.
//!
//! A request is made ready first ([`Forwarder::carried`]), so that what Weir refuses is known before anything is sent. After an upgrade that came
//! to nothing the upstream's connection is closed, since nobody knows what was written to it; the client's is in [`crate::server::router`].

pub(crate) mod documents;
pub(crate) mod identity;
pub(crate) mod quota;
pub(crate) mod upgrade;
pub(crate) mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, IF_NONE_MATCH, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::api::list_options::decode_bool;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::cache::registry::ForwardPermit;
use crate::server::cached::watch_stream::Drain;
use crate::server::connection::Client;
use crate::server::connection::activity::Stall;
use crate::server::delegate::Reason;
use crate::server::forward::identity::{Carry, IdentityNames, Upstreams};
use crate::server::forward::quota::{Share, Shares};
use crate::server::forward::upgrade::Splicer;
use crate::server::forward::watch::ForwardedWatch;
use crate::server::http::headers;
use crate::server::http::response::{self, Body, Outcome};
use crate::server::metrics::Answer;
use crate::upstream::error::UpstreamError;
use crate::upstream::{RequestBody, TrafficClass, Upstream, empty_body, pool};

/// Sends requests on.
pub(crate) struct Forwarder {
    pub(crate) upstreams: Upstreams,
    /// What a client may not say of itself.
    pub(crate) names: IdentityNames,
    /// What one client may take up; `None` for all.
    pub(crate) shares: Option<Shares>,
    pub(crate) splicer: Splicer,
    /// How long a client may send nothing of a body that it owes.
    pub(crate) stall_timeout: Duration,
    pub(crate) failures: FailureLog,
    /// Over how long watches end, spread out, when Weir drains.
    pub(crate) drain: Duration,
}

/// A request as it goes on: with what headers, by which connections, and with what it takes up of them.
pub(crate) struct Carried<'a> {
    upstream: &'a Upstream,
    headers: HeaderMap,
    class: TrafficClass,
    /// What it asks to be upgraded to.
    upgrade: Option<HeaderValue>,
    share: Option<Arc<Share>>,
}

impl Carried<'_> {
    /// What an answer to it that is relayed holds.
    pub(crate) fn hold(&self) -> Hold {
        Hold { _permit: None, _share: self.share.clone() }
    }
}

impl Forwarder {
    /// Makes a request ready to go on in the name that it is to carry. Nothing is sent; errors are answers.
    pub(crate) fn carried(
        &self,
        client: &Client,
        carry: &Carry,
        request: &Parts,
        info: &RequestInfo,
    ) -> Result<Carried<'_>, Status> {
        let mut headers = request.headers.clone();
        carry.apply(&self.names, client, &mut headers)?;
        let upstream = self.upstreams.of(carry)?;
        let upgrade = upgrade_of(request);
        let class = traffic_class(info, upgrade.is_some());
        let share = match &self.shares {
            None => None,
            Some(shares) => {
                let share = shares.take(client, class, upstream.streams_max(class));
                Some(Arc::new(share.ok_or_else(|| response::too_many(TOO_MANY))?))
            }
        };
        Ok(Carried { upstream, headers, class, upgrade, share })
    }

    /// Sends a request on, and relays the answer. `permit` is held until the answer's body ends.
    pub(crate) async fn forward(
        &self,
        client: &Client,
        carried: Carried<'_>,
        request: Request<Incoming>,
        info: &RequestInfo,
        reason: Reason,
        permit: Option<ForwardPermit>,
    ) -> Outcome {
        let (mut parts, body) = request.into_parts();
        let Carried { upstream, headers, class, upgrade, share } = carried;
        let given = std::mem::replace(&mut parts.headers, headers);
        let refuse = |status: &Status| Outcome::error(&given, status, reason.as_str());
        if let Some(protocol) = upgrade {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            parts.headers.insert(UPGRADE, protocol);
        }
        parts.uri = path_only(parts.uri);
        let version = std::mem::take(&mut parts.version);
        let client_upgrade = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        parts.extensions.clear();

        let broken = Arc::new(AtomicBool::new(false));
        let body = relay(body, version, &broken, Stall::new(self.stall_timeout));
        match upstream.send(class, Request::from_parts(parts, body)).await {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                // Nobody asked for what is no upgrade.
                let client_upgrade = client_upgrade.filter(|_| class == TrafficClass::Upgrade);
                match self.splicer.splice(client_upgrade, answer, share) {
                    Some(response) => {
                        Outcome { response, answer: Answer::Forward, reason: reason.as_str() }
                    }
                    None => refuse(&Status::upstream_lost()),
                }
            }
            Ok(answer) => {
                let drain = (info.verb == Verb::Watch)
                    .then(|| Drain { begins: client.draining.clone(), over: self.drain });
                let response = relay_answer(answer, Hold { _permit: permit, _share: share }, drain);
                Outcome { response, answer: Answer::Forward, reason: reason.as_str() }
            }
            // The client's doing, and told to it alone. HTTP/2 resets its stream for a broken body and keeps the cause.
            Err(mut error) if error.is_request_error() || broken.load(Ordering::Relaxed) => {
                if !error.is_request_error() {
                    error = UpstreamError::Request("its body broke off".to_owned());
                }
                tracing::debug!(%error, "a request could not be forwarded");
                refuse(&unsendable(&error))
            }
            Err(error) => {
                self.failures.log(&error);
                refuse(&failure(&error))
            }
        }
    }

    /// Sends a GET on without its body, and with a condition of Weir's own in place of the client's. Errors are answers.
    pub(crate) async fn ask(
        &self,
        carried: &Carried<'_>,
        parts: &Parts,
        if_none_match: Option<&HeaderValue>,
        reason: Reason,
    ) -> Result<Response<pool::Body>, Outcome> {
        let refuse = |status: &Status| Outcome::error(&parts.headers, status, reason.as_str());
        let mut request = Request::new(empty_body());
        request.headers_mut().clone_from(&carried.headers);
        request.headers_mut().remove(IF_NONE_MATCH);
        if let Some(etag) = if_none_match {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        *request.uri_mut() = path_only(parts.uri.clone());
        carried.upstream.send(TrafficClass::Request, request).await.map_err(|error| {
            if error.is_request_error() {
                return refuse(&unsendable(&error));
            }
            self.failures.log(&error);
            refuse(&failure(&error))
        })
    }
}

/// Closes the client's connection after an upgrade that it hoped for and did not get.
pub(crate) fn close_if_not_upgraded(hoped: bool, response: &mut Response<Body>) {
    if hoped && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// What an answer's body holds until its end.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// A place in the forward budget.
    pub(crate) _permit: Option<ForwardPermit>,
    /// What its client takes up of the way.
    pub(crate) _share: Option<Arc<Share>>,
}

/// What a request asks to be upgraded to. HTTP/2 has no upgrades, and in HTTP/1.0 the header means nothing.
pub(crate) fn upgrade_of(request: &Parts) -> Option<HeaderValue> {
    (request.version == Version::HTTP_11).then(|| headers::upgrade(&request.headers)).flatten()
}

/// An answer of the upstream as it goes to the client.
pub(crate) fn relay_answer(
    answer: Response<pool::Body>,
    hold: Hold,
    drain: Option<Drain>,
) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    // An answer's Connection header can name no identity that would matter to a client.
    let _kept = headers::remove_hop_by_hop(&mut parts.headers);
    parts.version = Version::default();
    parts.extensions.clear();
    let body = match drain.filter(|_| ForwardedWatch::understands(&parts.headers)) {
        Some(drain) => {
            let body = Box::new(ForwardedWatch::new(body, drain));
            Body::ForwardedWatch { body, _hold: hold }
        }
        None => Body::Upstream { body: Box::new(body), _hold: hold },
    };
    Response::from_parts(parts, body)
}

/// The very bytes of path and query, from whatever form the client used.
fn path_only(uri: Uri) -> Uri {
    let path = uri.into_parts().path_and_query;
    Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

fn relay(body: Incoming, version: Version, broken: &Arc<AtomicBool>, stall: Stall) -> RequestBody {
    if body.is_end_stream() {
        return Empty::new().map_err(|never| match never {}).boxed_unsync();
    }
    let streams = version == Version::HTTP_2;
    Relayed { body, streams, broken: Arc::clone(broken), stall }.boxed_unsync()
}

/// A client's body on its way. One of an HTTP/2 stream ends only where the stream does: hyper takes a reset without an error code
/// for the end too, and half a body must not reach the upstream as a whole one.
struct Relayed {
    body: Incoming,
    streams: bool,
    /// Set when it breaks off.
    broken: Arc<AtomicBool>,
    /// Ends a body of which nothing more comes.
    stall: Stall,
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let polled = match self.stall.judge(context, polled) {
            Ok(polled) => polled,
            Err(stalled) => {
                self.broken.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(stalled.into())));
            }
        };
        let frame = match std::task::ready!(polled) {
            None if self.streams && !self.body.is_end_stream() => {
                Some(Err(pool::BodyError::Truncated))
            }
            frame => frame.map(|frame| frame.map_err(pool::BodyError::Http)),
        };
        if let Some(Err(_)) = frame {
            self.broken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What lasts is kept away from the connections of ordinary requests, and what reads objects may go by others still.
fn traffic_class(info: &RequestInfo, upgrade: bool) -> TrafficClass {
    if upgrade {
        return TrafficClass::Upgrade;
    }
    let subresource = info.resource.as_ref().map(|resource| &*resource.subresource);
    let lasting = match (info.verb, subresource) {
        (Verb::Watch | Verb::Proxy, _) => true,
        (_, Some("proxy" | "attach" | "exec" | "portforward")) => true,
        (_, Some("log")) => decode_bool(info.query.first("follow")),
        _ => false,
    };
    match (info.verb, subresource) {
        _ if lasting => TrafficClass::Stream,
        (Verb::Get | Verb::List, Some("" | "status" | "scale")) => TrafficClass::Read,
        _ => TrafficClass::Request,
    }
}

/// The client's own doing.
fn unsendable(error: &UpstreamError) -> Status {
    response::refusal(StatusCode::BAD_REQUEST, "BadRequest", format!("weir: {error}"))
}

/// Nothing sent: the client may try again. Sent and lost: only the client knows whether it may.
fn failure(error: &UpstreamError) -> Status {
    if error.is_not_sent() { Status::upstream_unreachable() } else { Status::upstream_lost() }
}

/// Tells of upstream failures, but not once for each of a thousand clients.
#[derive(Debug)]
pub(crate) struct FailureLog {
    start: Instant,
    /// Milliseconds since `start` from when on the next line may be written.
    next_ms: AtomicU64,
    /// Failures since the last line.
    untold: AtomicU64,
}

impl FailureLog {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), next_ms: AtomicU64::new(0), untold: AtomicU64::new(0) }
    }

    fn log(&self, error: &UpstreamError) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.next_ms.load(Ordering::Relaxed);
        let turn = now >= next
            && self
                .next_ms
                .compare_exchange(next, now + LOG_INTERVAL_MS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if turn {
            let suppressed = self.untold.swap(0, Ordering::Relaxed);
            tracing::warn!(%error, suppressed, "a request could not be forwarded");
        } else {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One client takes up too much of the way.
const TOO_MANY: &str = "weir: too many requests of this address are under way to the API server";

/// A line a second tells an operator as much as a thousand.
const LOG_INTERVAL_MS: u64 = 1000;

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn only_what_reads_objects_may_be_asked_twice() {
        let of =
            |method, path, query| traffic_class(&RequestInfo::parse(&method, path, query), false);
        let pod = "/api/v1/namespaces/a/pods/x";
        let of_pod = |rest| format!("{pod}/{rest}");
        let [log, proxy, exec, other] = ["log", "proxy/fire", "exec", "unheard-of"].map(of_pod);
        for (path, query, expected) in [
            (pod, "", TrafficClass::Read),
            ("/apis/apps/v1/deployments", "limit=5", TrafficClass::Read),
            ("/apis/apps/v1/namespaces/a/deployments/x/scale", "", TrafficClass::Read),
            (&*log, "", TrafficClass::Request),
            (&*log, "follow=true", TrafficClass::Stream),
            (&*proxy, "", TrafficClass::Stream),
            ("/api/v1/proxy/namespaces/a/pods/x/fire", "", TrafficClass::Stream),
            (&*exec, "command=ls", TrafficClass::Stream),
            (&*other, "", TrafficClass::Request),
            ("/apis/apps/v1/deployments", "watch=1", TrafficClass::Stream),
            ("/apis", "", TrafficClass::Request),
            ("/logs/kubelet.log", "", TrafficClass::Request),
        ] {
            assert_eq!(of(Method::GET, path, query), expected, "{path}?{query}");
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(of(method.clone(), pod, ""), TrafficClass::Request, "{method}");
        }
    }
}
