//! What an audit event is told from: the request, who asked, and how Weir answered.
//!
//! Nothing here is `Debug`: a request's head carries credentials.

use std::borrow::Cow;
use std::time::SystemTime;

use http::request::Parts;
use http::{Method, StatusCode};

use crate::api::query::percent_decode;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::auth::peer::Peer;
use crate::auth::user::User;

/// Who asks for what: all that the policy looks at.
#[derive(Clone, Copy)]
pub struct AuditSubject<'a> {
    /// The head of the request.
    pub parts: &'a Parts,
    /// The same, parsed.
    pub info: &'a RequestInfo,
    /// Who authenticated; `None` if nobody did, as with a wrong credential. With impersonation the one who impersonates.
    pub user: Option<&'a User>,
}

/// An answer that Weir gives itself.
#[derive(Clone, Copy)]
pub struct AuditResponse<'a> {
    /// See [`AuditSubject`].
    pub subject: AuditSubject<'a>,
    /// Where the request came from.
    pub peer: &'a Peer,
    /// Whose rights were looked at instead of the user's, if anybody's.
    pub impersonated: Option<&'a User>,
    /// Whether it was allowed, and why, in the upstream's words; `None` if it did not come to that.
    pub decision: Option<(bool, &'a str)>,
    /// What was used beyond its time for it.
    pub stale: Staleness,
    /// The HTTP status.
    pub code: StatusCode,
    /// The error that was sent, if one was.
    pub status: Option<&'a Status>,
    /// The `Audit-Id` header of the answer.
    pub audit_id: &'a [u8],
    /// When the head of the request was read.
    pub received: SystemTime,
}

/// What was used beyond its time, since the upstream could not be asked (`staleDecisionGrace`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Who the user is.
    pub identity: bool,
    /// Whether it is allowed.
    pub decision: bool,
}

/// When in the course of a request an event was written (audit.k8s.io/v1 Stage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The answer's end.
    ResponseComplete,
    /// The answer's head, for what lasts; and the only one of a request that did not authenticate.
    ResponseStarted,
}

impl Stage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ResponseComplete => "ResponseComplete",
            Self::ResponseStarted => "ResponseStarted",
        }
    }
}

impl<'a> AuditSubject<'a> {
    /// The verb of a resource, empty for a method that has none; of another path the method in lower case.
    pub(super) fn verb(&self) -> Cow<'a, str> {
        match (&self.info.resource, &self.parts.method) {
            (Some(_), _) if self.info.verb == Verb::Other => Cow::Borrowed(""),
            (Some(_), _) => Cow::Borrowed(self.info.verb.as_str()),
            (None, &Method::GET) => Cow::Borrowed("get"),
            (None, method) => Cow::Owned(method.as_str().to_ascii_lowercase()),
        }
    }

    /// The path without its escapes, as the upstream's policy sees it.
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
    /// The stages of an answer that is given whole. Upstream writes the failure to authenticate from a handler of its own, which tells
    /// the head and no end.
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
