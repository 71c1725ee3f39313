//! The audit log of the responses that Weir gives itself. The API server's own audit log cannot
//! contain them.
//!
//! A response is logged completely just before it is sent, a watch at its head and at its end. A
//! request that is forwarded, or served after the upstream has revalidated a document, is in the
//! upstream's log.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures_util::{Stream, stream};
use http::{HeaderValue, Response, StatusCode};

use crate::api::status::Status;
use crate::auth::DecisionSource;
use crate::auth::audit::{AuditLog, AuditResponse, AuditSubject, OpenWatch, Staleness};
use crate::codec::rope::Rope;
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::body::{Body, Frames};
use crate::server::request::auth::AuthContext;
use crate::server::request::context::RequestContext;

pub(crate) struct Auditor {
    log: Option<Arc<AuditLog>>,
}

impl Auditor {
    pub(crate) fn new(log: Option<Arc<AuditLog>>) -> Self {
        Self { log }
    }

    /// Logs a response from memory. `code` is the status that the client receives.
    pub(crate) async fn log_response(
        &self,
        context: &RequestContext<'_>,
        response: &mut Response<Body>,
        code: StatusCode,
    ) {
        let Some((log, subject)) = self.wanted(context) else { return };
        let audit_id = response.headers().get(AUDIT_ID).cloned();
        let audit_id = audit_id.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        let event = audit_response(context, subject, code, None, audit_id);
        if let Body::Watch(frames) = response.body_mut() {
            let open = Some(log.response_started(&event).await);
            let frames = std::mem::replace(frames, Box::pin(stream::empty()));
            *response.body_mut() = Body::Watch(Box::pin(LoggedFrames { frames, open }));
        } else {
            log.response_complete(&event).await;
        }
    }

    /// Logs a refusal of Weir's own. `audit_id` is that of the response.
    pub(crate) async fn log_refusal(
        &self,
        context: &RequestContext<'_>,
        status: &Status,
        audit_id: Option<HeaderValue>,
    ) {
        let Some((log, subject)) = self.wanted(context) else { return };
        let audit_id = audit_id.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        let event = audit_response(context, subject, status.code, Some(status), audit_id);
        log.response_complete(&event).await;
    }

    /// Returns the log, if the policy selects the request.
    fn wanted<'a>(&self, context: &'a RequestContext<'_>) -> Option<(&AuditLog, AuditSubject<'a>)> {
        let RequestContext { resolved, parts, auth, .. } = context;
        let subject = AuditSubject { parts, info: &resolved.info, user: auth.user() };
        self.log.as_deref().filter(|log| log.should_log(&subject)).map(|log| (log, subject))
    }
}

fn audit_response<'a>(
    context: &'a RequestContext<'_>,
    subject: AuditSubject<'a>,
    code: StatusCode,
    status: Option<&'a Status>,
    audit_id: &'a [u8],
) -> AuditResponse<'a> {
    let AuthContext { identity, impersonated, decision } = &context.auth;
    let now = SystemTime::now();
    AuditResponse {
        subject,
        peer: &context.client.peer,
        impersonated: impersonated.as_deref(),
        decision: decision.as_ref().map(|decision| (decision.allowed, &*decision.reason)),
        stale: Staleness {
            identity: identity.as_ref().is_some_and(|identity| identity.stale),
            decision: decision
                .as_ref()
                .is_some_and(|decision| decision.source == DecisionSource::Stale),
        },
        code,
        status,
        audit_id,
        received: now.checked_sub(context.started.elapsed()).unwrap_or(now),
    }
}

/// The frames of a watch that is logged, and its end with it.
struct LoggedFrames {
    frames: Frames,
    /// Logs the end of the watch when it is dropped.
    open: Option<OpenWatch>,
}

impl Stream for LoggedFrames {
    type Item = Rope;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Rope>> {
        let polled = self.frames.as_mut().poll_next(context);
        if matches!(polled, Poll::Ready(None)) {
            self.open = None;
        }
        polled
    }
}
