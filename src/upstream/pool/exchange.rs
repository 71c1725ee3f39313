//! Sends a request on an acquired connection. The lease of the connection moves into the response's
//! body.
//!
//! Over HTTP/2, pings show whether a connection lives, so that an answer may take as long as it
//! takes. Over HTTP/1.1 nothing shows that: a read is tried once more on a new connection after
//! [`LATE_AFTER`] or [`LATE_AFTER_NEW`], and each request that has one ends with its
//! [`answer_timeout`](SendOptions::answer_timeout) (`docs/decisions/request-retries.md`).

use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use tokio::time::sleep;

use super::body::{Body, Lease};
use super::request_form::{http1_form, http2_form};
use super::send_error::SendError;
use super::{http1, http2};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::error::UpstreamError;
use crate::upstream::request_body::RequestBody;
use crate::upstream::send_options::SendOptions;

/// One attempt to send a request.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Attempt<'a> {
    pub(in crate::upstream) options: &'a SendOptions,
    /// Whether it may be given up.
    pub(in crate::upstream) leaving: Option<Leaving<'a>>,
}

/// Lets a read leave a connection whose peer does not answer.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Leaving<'a> {
    /// Takes the next attempt from a budget. If it returns false, the read waits on.
    pub(in crate::upstream) may_leave: &'a (dyn Fn() -> bool + Send + Sync),
    /// Whether this attempt is the first one.
    pub(in crate::upstream) is_first: bool,
}

impl Attempt<'_> {
    /// Waits until the attempt may be given up after `silence`.
    pub(super) async fn until_may_leave(&self, silence: impl Future<Output = ()>) {
        let Some(leaving) = self.leaving else { return std::future::pending().await };
        silence.await;
        if !(leaving.may_leave)() {
            std::future::pending().await
        }
    }
}

/// Sends a request over HTTP/1.1.
pub(super) async fn send_http1(
    mut lease: http1::Lease,
    request: Request<RequestBody>,
    gauge: GaugeGuard,
    attempt: Attempt<'_>,
) -> Result<Response<Body>, SendError> {
    let late_after = if lease.is_reused() { LATE_AFTER } else { LATE_AFTER_NEW };
    let is_first = attempt.leaving.is_some_and(|leaving| leaving.is_first);
    let leaves = async {
        // An API server that is slow would get each slow read three times, and each large list,
        // which may take longer until it begins, twice.
        if !is_first || attempt.options.is_wide {
            std::future::pending().await
        }
        attempt.until_may_leave(sleep(late_after)).await;
    };
    let sent = tokio::select! {
        biased;
        sent = lease.sender.try_send_request(http1_form(request)) => {
            sent.map_err(SendError::from_hyper)
        }
        () = leaves => Err(SendError::silent()),
        timeout = answer_timeout(attempt.options) => {
            Err(SendError::unanswered(UpstreamError::Timeout(timeout)))
        }
    };
    match sent {
        Ok(response) => {
            lease.answered();
            let lease = Lease::Http1(Box::new(lease));
            Ok(response.map(|incoming| Body::new(incoming, lease).counted(gauge)))
        }
        Err(failure) => {
            lease.fail();
            Err(failure)
        }
    }
}

/// Waits until a request over HTTP/1.1 is given up, and returns how long it waited.
pub(super) async fn answer_timeout(options: &SendOptions) -> Duration {
    let Some(timeout) = options.answer_timeout else { return std::future::pending().await };
    sleep(timeout).await;
    timeout
}

/// Sends a request over HTTP/2.
pub(super) async fn send_http2(
    mut lease: http2::Lease,
    request: Request<RequestBody>,
    gauge: GaugeGuard,
    attempt: Attempt<'_>,
) -> Result<Response<Body>, SendError> {
    lease.observe_reset(attempt.options.reset_observer.clone());
    let request = http2_form(request);
    let has_no_body = request.body().is_end_stream();
    let Some(mut sender) = lease.sender() else {
        lease.complete();
        return Err(SendError::not_sent(UpstreamError::Lost("the connection closed".to_owned())));
    };
    let sending = sender.try_send_request(request);
    drop(sender);
    let sent = tokio::select! {
        biased;
        sent = sending => sent.map_err(SendError::from_hyper),
        () = attempt.until_may_leave(lease.until_silent()) => Err(SendError::silent()),
    };
    match sent {
        Ok(response) => {
            lease.answered();
            Ok(response.map(|incoming| {
                let body = Body::new(incoming, Lease::Http2(lease)).counted(gauge);
                if has_no_body { body.strict() } else { body }
            }))
        }
        Err(failure) => {
            // The peer or the connection ended the stream, or the connection is dead. The client
            // reset nothing, unless its body broke off.
            if !failure.error.is_request_error() {
                lease.complete();
            }
            Err(failure)
        }
    }
}

/// After which time a read over HTTP/1.1 is tried on a new connection: on one that was idle, which
/// may have been dead for long.
const LATE_AFTER: Duration = Duration::from_secs(5);
/// The same on a new connection.
const LATE_AFTER_NEW: Duration = Duration::from_secs(10);
