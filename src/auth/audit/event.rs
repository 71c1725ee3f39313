//! The data of an audit event: the request, its user, and Weir's response.
//!
//! These types do not implement `Debug`, because the head of a request contains credentials.

use std::borrow::Cow;
use std::time::SystemTime;

use http::request::Parts;
use http::{Method, StatusCode};

use crate::api::query::percent_decode;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::auth::peer::Peer;
use crate::auth::user::User;

/// A request and its user: everything that the policy depends on.
#[derive(Clone, Copy)]
pub struct AuditSubject<'a> {
    /// The head of the request.
    pub parts: &'a Parts,
    /// The parsed request.
    pub info: &'a RequestInfo,
    /// The authenticated user; `None` if authentication failed. With impersonation, the
    /// impersonating user.
    pub user: Option<&'a User>,
}

/// A response that Weir created itself.
#[derive(Clone, Copy)]
pub struct AuditResponse<'a> {
    /// The request and its user.
    pub subject: AuditSubject<'a>,
    /// The client of the connection.
    pub peer: &'a Peer,
    /// The impersonated user, whose permissions were checked, if any.
    pub impersonated: Option<&'a User>,
    /// Whether the request was allowed, and the upstream's reason; `None` if authorization did not
    /// take place.
    pub decision: Option<(bool, &'a str)>,
    /// The expired results that the response is based on.
    pub stale: Staleness,
    /// The HTTP status.
    pub code: StatusCode,
    /// The error in the response, if it is one.
    pub status: Option<&'a Status>,
    /// The `Audit-Id` header of the response.
    pub audit_id: &'a [u8],
    /// When the head of the request was read.
    pub received: SystemTime,
}

/// The results that were used after they expired, because the upstream was down
/// (`staleDecisionGrace`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Whether the user's identity had expired.
    pub identity: bool,
    /// Whether the access decision had expired.
    pub decision: bool,
}

crate::api::labels! {
    /// The stage of a request at which an event is logged (audit.k8s.io/v1 Stage).
    pub(super) enum Stage {
        /// The response has ended.
        ResponseComplete = "ResponseComplete",
        /// The head of a long-running response was sent. Also the only stage of a request that did
        /// not authenticate.
        ResponseStarted = "ResponseStarted",
    }
}

impl<'a> AuditSubject<'a> {
    /// Returns the verb of a resource request, empty if the method has none; for another path the
    /// method in lower case.
    pub(super) fn verb(&self) -> Cow<'a, str> {
        match (&self.info.resource, &self.parts.method) {
            (Some(_), _) if self.info.verb == Verb::Other => Cow::Borrowed(""),
            (Some(_), _) => Cow::Borrowed(self.info.verb.as_str()),
            (None, &Method::GET) => Cow::Borrowed("get"),
            (None, method) => Cow::Owned(method.as_str().to_ascii_lowercase()),
        }
    }

    /// Returns the decoded path, as the upstream's policy sees it.
    pub(super) fn path(&self) -> Cow<'a, str> {
        let path = self.parts.uri.path();
        if self.info.plain_path {
            return Cow::Borrowed(path);
        }
        match percent_decode(path.as_bytes(), false) {
            Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
            None => Cow::Borrowed(path),
        }
    }
}

impl AuditResponse<'_> {
    /// Returns the stages of a complete response. Upstream logs a failed authentication in a
    /// handler of its own, which logs only the start.
    pub(super) fn stages(&self) -> &'static [Stage] {
        if self.subject.user.is_none() {
            &[Stage::ResponseStarted]
        } else if self.subject.info.is_long_running() {
            &[Stage::ResponseStarted, Stage::ResponseComplete]
        } else {
            &[Stage::ResponseComplete]
        }
    }
}
