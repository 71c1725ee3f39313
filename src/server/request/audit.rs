//! What the audit log is told: each answer that Weir gives itself, since the API server's own log can't know of it.
//!
//! A whole answer is told just before it is sent, a watch at its head and at its end. What is forwarded, or served after the upstream has confirmed
//! it, is in the upstream's log.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};

use crate::api::request_info::RequestInfo;
use crate::api::status::Status;
use crate::auth::audit::{AuditLog, AuditResponse, AuditSubject, Staleness};
use crate::auth::decision::DecisionSource;
use crate::server::connection::Client;
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::response::Body;
use crate::server::request::access::Judged;

/// See the module. Tells nothing without a log.
pub(crate) struct Auditor {
    log: Option<Arc<AuditLog>>,
}

/// A request, for the log.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) client: &'a Client,
    pub(crate) parts: &'a Parts,
    pub(crate) info: &'a RequestInfo,
    pub(crate) judged: &'a Judged,
}

impl Auditor {
    pub(crate) fn new(log: Option<Arc<AuditLog>>) -> Self {
        Self { log }
    }

    /// Tells of an answer from a cache; `code` is the one that the client will see.
    pub(crate) async fn answered(
        &self,
        asked: Asked<'_>,
        response: Response<Body>,
        code: StatusCode,
    ) -> Response<Body> {
        let Some((log, subject)) = self.wanting(asked) else { return response };
        let (parts, body) = response.into_parts();
        let audit_id = parts.headers.get(AUDIT_ID).map_or(&b""[..], |id| id.as_bytes());
        let answer = answer(asked, subject, code, None, audit_id);
        let body = match body {
            Body::Watch(frames) => {
                let open = log.response_started(&answer).await;
                // Dropped with the stream, it tells of its end.
                let held = stream::unfold((frames, open), |(mut frames, open)| async move {
                    let frame = frames.next().await?;
                    Some((frame, (frames, open)))
                });
                Body::Watch(Box::pin(held))
            }
            body => {
                log.response_complete(&answer).await;
                body
            }
        };
        Response::from_parts(parts, body)
    }

    /// Tells of a refusal of Weir's own; `audit_id` is its answer's.
    pub(crate) async fn refused(
        &self,
        asked: Asked<'_>,
        status: &Status,
        audit_id: Option<HeaderValue>,
    ) {
        let Some((log, subject)) = self.wanting(asked) else { return };
        let audit_id = audit_id.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        log.response_complete(&answer(asked, subject, status.code, Some(status), audit_id)).await;
    }

    /// The log, if the policy wants the request told.
    fn wanting<'a>(&self, asked: Asked<'a>) -> Option<(&AuditLog, AuditSubject<'a>)> {
        let Asked { parts, info, judged, .. } = asked;
        let subject = AuditSubject { parts, info, user: judged.user() };
        self.log.as_deref().filter(|log| log.should_log(&subject)).map(|log| (log, subject))
    }
}

fn answer<'a>(
    asked: Asked<'a>,
    subject: AuditSubject<'a>,
    code: StatusCode,
    status: Option<&'a Status>,
    audit_id: &'a [u8],
) -> AuditResponse<'a> {
    let Judged { identity, decision, received } = asked.judged;
    AuditResponse {
        subject,
        peer: &asked.client.peer,
        impersonated: None,
        decision: decision.as_ref().map(|decision| (decision.allowed, &*decision.reason)),
        stale: Staleness {
            identity: identity.as_ref().is_some_and(|identity| identity.stale),
            decision: decision.as_ref().is_some_and(|it| it.source == DecisionSource::Stale),
        },
        code,
        status,
        audit_id,
        received: *received,
    }
}
