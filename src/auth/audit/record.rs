//! An answer as one line: an audit.k8s.io/v1 Event, its fields in the order and form of kube-apiserver's own log.
//!
//! Level Metadata: never a body. Straight into the caller's buffer, since every read that is told pays for it. Left out of what the
//! API server writes: `apiserver.latency.k8s.io/*` annotations of slow requests, which speak of its own layers.

use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use jiff::tz::Offset;

use crate::api::status::Status;
use crate::auth::audit::event::{AuditResponse, Stage, Staleness};
use crate::auth::audit::json::{ObjectWriter, push_string, push_strings};
use crate::auth::audit::source;
use crate::auth::user::User;

/// Appends the line of a stage that is reached `now`, and tells where in the buffer that time stands ([`TIME_LENGTH`] bytes).
pub(super) fn push_line(
    out: &mut Vec<u8>,
    answer: &AuditResponse<'_>,
    stage: Stage,
    now: Timestamp,
) -> usize {
    let subject = &answer.subject;
    out.extend_from_slice(
        br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"#,
    );
    push_string(out, answer.audit_id);
    out.extend_from_slice(br#","stage":""#);
    out.extend_from_slice(stage.as_str().as_bytes());
    out.extend_from_slice(br#"","requestURI":"#);
    push_request_uri(out, answer);
    out.extend_from_slice(br#","verb":"#);
    push_string(out, subject.verb().as_bytes());
    out.extend_from_slice(br#","user":"#);
    push_user(out, subject.user);
    if let Some(user) = answer.impersonated {
        out.extend_from_slice(br#","impersonatedUser":"#);
        push_user(out, Some(user));
    }
    push_source(out, answer, &subject.parts.headers);
    push_object_ref(out, answer);
    out.extend_from_slice(br#","responseStatus":"#);
    push_status(out, answer);
    out.extend_from_slice(br#","requestReceivedTimestamp":""#);
    push_time(out, Timestamp::try_from(answer.received).unwrap_or(now));
    out.extend_from_slice(br#"","stageTimestamp":""#);
    let time = out.len();
    push_time(out, now);
    out.push(b'"');
    push_annotations(out, answer);
    out.extend_from_slice(b"}\n");
    time
}

/// `2026-11-21T15:14:21.948854Z`, always so long.
pub(super) const TIME_LENGTH: usize = 27;

/// Appends a time as Kubernetes' MicroTime, in UTC, cut to microseconds.
pub(super) fn push_time(out: &mut Vec<u8>, time: Timestamp) {
    let time = Offset::UTC.to_datetime(time);
    push_digits(out, i32::from(time.year()), 4, b'-');
    push_digits(out, i32::from(time.month()), 2, b'-');
    push_digits(out, i32::from(time.day()), 2, b'T');
    push_digits(out, i32::from(time.hour()), 2, b':');
    push_digits(out, i32::from(time.minute()), 2, b':');
    push_digits(out, i32::from(time.second()), 2, b'.');
    push_digits(out, time.subsec_nanosecond() / 1000, 6, b'Z');
}

fn push_digits(out: &mut Vec<u8>, number: i32, width: usize, after: u8) {
    let mut digits = [b'0'; 6];
    let mut rest = number.unsigned_abs();
    for digit in digits.iter_mut().rev() {
        // Below ten.
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend(digits.iter().skip(digits.len() - width));
    out.push(after);
}

fn push_request_uri(out: &mut Vec<u8>, answer: &AuditResponse<'_>) {
    let subject = &answer.subject;
    let (path, query) = source::request_uri(&subject.parts.uri, subject.info.plain_path);
    push_string(out, path.as_bytes());
    if let Some(query) = query {
        // One string of two parts: the closing quote goes, the opening one of the query becomes the question mark.
        out.pop();
        let at = out.len();
        push_string(out, query.as_bytes());
        if let Some(quote) = out.get_mut(at) {
            *quote = b'?';
        }
    }
}

/// As the upstream writes it: extra fields too, for they tell which credential it was, and are none.
fn push_user(out: &mut Vec<u8>, user: Option<&User>) {
    let mut object = ObjectWriter::open(out);
    if let Some(user) = user {
        object.string("username", user.name.as_bytes());
        object.string("uid", user.uid.as_bytes());
        object.strings("groups", &user.groups);
        if !user.extra.is_empty() {
            let mut extra = ObjectWriter::open(object.key("extra"));
            for (key, values) in &user.extra {
                push_strings(extra.escaped_key(key), values);
            }
            extra.close();
        }
    }
    object.close();
}

fn push_source(out: &mut Vec<u8>, answer: &AuditResponse<'_>, headers: &HeaderMap) {
    let mut opening: &[u8] = br#","sourceIPs":[""#;
    let addresses = source::addresses(headers, answer.peer.address);
    for address in &addresses {
        out.extend_from_slice(opening);
        // Writing to a vector cannot fail.
        drop(std::io::Write::write_fmt(out, format_args!("{address}")));
        opening = br#"",""#;
    }
    if !addresses.is_empty() {
        out.extend_from_slice(br#""]"#);
    }
    let agent = headers.get(USER_AGENT).map_or(&b""[..], |agent| agent.as_bytes());
    if !agent.is_empty() {
        out.extend_from_slice(br#","userAgent":"#);
        match agent.get(..USER_AGENT_BYTES_MAX) {
            Some(begin) if begin.len() < agent.len() => {
                push_string(out, begin);
                out.pop();
                out.extend_from_slice(br#"...TRUNCATED""#);
            }
            _ => push_string(out, agent),
        }
    }
}

fn push_object_ref(out: &mut Vec<u8>, answer: &AuditResponse<'_>) {
    let Some(resource) = &answer.subject.info.resource else {
        return;
    };
    out.extend_from_slice(br#","objectRef":"#);
    let mut object = ObjectWriter::open(out);
    object.string("resource", resource.gvr.resource.as_bytes());
    object.string("namespace", resource.namespace.as_bytes());
    object.string("name", resource.name.as_bytes());
    object.string("apiGroup", resource.gvr.group.as_bytes());
    object.string("apiVersion", resource.gvr.version.as_bytes());
    object.string("subresource", resource.subresource.as_bytes());
    object.close();
}

/// An error is told as it was sent, without its kind; of anything else only the code is.
fn push_status(out: &mut Vec<u8>, answer: &AuditResponse<'_>) {
    let error = answer.status.map(Status::to_json);
    match error.as_ref().and_then(|json| json.strip_prefix(STATUS_KIND)) {
        Some(fields) => {
            out.push(b'{');
            out.extend_from_slice(fields);
        }
        None => {
            out.extend_from_slice(br#"{"metadata":{},"code":"#);
            out.extend_from_slice(answer.code.as_str().as_bytes());
            out.push(b'}');
        }
    }
}

/// In the order of their keys, as Go writes a map.
fn push_annotations(out: &mut Vec<u8>, answer: &AuditResponse<'_>) {
    let Staleness { identity, decision } = answer.stale;
    if answer.decision.is_none() && !identity && !decision {
        return;
    }
    out.extend_from_slice(br#","annotations":"#);
    let mut annotations = ObjectWriter::open(out);
    if let Some((allowed, reason)) = answer.decision {
        let word: &[u8] = if allowed { b"allow" } else { b"forbid" };
        annotations.string("authorization.k8s.io/decision", word);
        push_string(annotations.key("authorization.k8s.io/reason"), reason.as_bytes());
    }
    if decision {
        annotations.string(STALE_DECISION, b"true");
    }
    if identity {
        annotations.string(STALE_IDENTITY, b"true");
    }
    annotations.close();
}

/// The annotation of an answer that rests on a decision beyond its time.
const STALE_DECISION: &str = "weir.dev/stale-decision";
/// The same of a user's identity.
const STALE_IDENTITY: &str = "weir.dev/stale-identity";

/// Longer user agents are cut (k8s.io/apiserver `pkg/audit/request.go`).
const USER_AGENT_BYTES_MAX: usize = 1024;

/// What a `Status` begins with where it stands alone, and not within an event.
const STATUS_KIND: &[u8] = br#"{"kind":"Status","apiVersion":"v1","#;

#[cfg(test)]
mod tests;
