//! Writes a response as one log line: an audit.k8s.io/v1 Event with the fields in the order and
//! format of kube-apiserver's own log.
//!
//! The level is Metadata, so a body is never logged. The line is written directly into the caller's
//! buffer, because every logged read pays for it. The API server's `apiserver.latency.k8s.io/*`
//! annotations of slow requests are left out: they describe its own layers.

use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use jiff::tz::Offset;

use crate::api::json_string::push_string;
use crate::api::status::Status;
use crate::auth::audit::event::{AuditResponse, Stage, Staleness};
use crate::auth::audit::json::{ObjectWriter, push_strings};
use crate::auth::audit::source;
use crate::auth::user::User;

/// Appends the line of a stage that is reached `now`. Returns the offset of that time in the buffer
/// ([`TIME_LENGTH`] bytes).
pub(super) fn push_line(
    out: &mut Vec<u8>,
    response: &AuditResponse<'_>,
    stage: Stage,
    now: Timestamp,
) -> usize {
    let subject = &response.subject;
    out.extend_from_slice(
        br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"#,
    );
    push_string(out, response.audit_id);
    out.extend_from_slice(br#","stage":""#);
    out.extend_from_slice(stage.as_str().as_bytes());
    out.extend_from_slice(br#"","requestURI":"#);
    push_request_uri(out, response);
    out.extend_from_slice(br#","verb":"#);
    push_string(out, subject.verb().as_bytes());
    out.extend_from_slice(br#","user":"#);
    push_user(out, subject.user);
    if let Some(user) = response.impersonated {
        out.extend_from_slice(br#","impersonatedUser":"#);
        push_user(out, Some(user));
    }
    push_source(out, response, &subject.parts.headers);
    push_object_ref(out, response);
    out.extend_from_slice(br#","responseStatus":"#);
    push_status(out, response);
    out.extend_from_slice(br#","requestReceivedTimestamp":""#);
    push_time(out, Timestamp::try_from(response.received).unwrap_or(now));
    out.extend_from_slice(br#"","stageTimestamp":""#);
    let time = out.len();
    push_time(out, now);
    out.push(b'"');
    push_annotations(out, response);
    out.extend_from_slice(b"}\n");
    time
}

/// The constant length of a time such as `2026-11-21T15:14:21.948854Z`.
pub(super) const TIME_LENGTH: usize = 27;

/// Appends a time as Kubernetes' MicroTime: in UTC, truncated to microseconds.
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
        // The remainder is below ten.
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend(digits.iter().skip(digits.len() - width));
    out.push(after);
}

fn push_request_uri(out: &mut Vec<u8>, response: &AuditResponse<'_>) {
    let subject = &response.subject;
    let (path, query) = source::request_uri(&subject.parts.uri, subject.info.plain_path);
    push_string(out, path.as_bytes());
    if let Some(query) = query {
        // Joins two strings into one: removes the closing quote of the path, and replaces the
        // opening quote of the query with the question mark.
        out.pop();
        let at = out.len();
        push_string(out, query.as_bytes());
        if let Some(quote) = out.get_mut(at) {
            *quote = b'?';
        }
    }
}

/// Writes a user like the upstream: with extra fields, which identify the credential but contain
/// none.
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

fn push_source(out: &mut Vec<u8>, response: &AuditResponse<'_>, headers: &HeaderMap) {
    let mut opening: &[u8] = br#","sourceIPs":[""#;
    let addresses = source::addresses(headers, response.peer.address);
    for address in &addresses {
        out.extend_from_slice(opening);
        // Writing to a vector does not fail.
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

fn push_object_ref(out: &mut Vec<u8>, response: &AuditResponse<'_>) {
    let Some(resource) = &response.subject.info.resource else {
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

/// Writes an error as it was sent, without its kind; for any other response only the code.
fn push_status(out: &mut Vec<u8>, response: &AuditResponse<'_>) {
    let error = response.status.map(Status::to_json);
    match error.as_ref().and_then(|json| json.strip_prefix(STATUS_KIND)) {
        Some(fields) => {
            out.push(b'{');
            out.extend_from_slice(fields);
        }
        None => {
            out.extend_from_slice(br#"{"metadata":{},"code":"#);
            out.extend_from_slice(response.code.as_str().as_bytes());
            out.push(b'}');
        }
    }
}

/// Writes the annotations in the order of their keys, as Go writes a map.
fn push_annotations(out: &mut Vec<u8>, response: &AuditResponse<'_>) {
    let Staleness { identity, decision } = response.stale;
    if response.decision.is_none() && !identity && !decision {
        return;
    }
    out.extend_from_slice(br#","annotations":"#);
    let mut annotations = ObjectWriter::open(out);
    if let Some((allowed, reason)) = response.decision {
        let value: &[u8] = if allowed { b"allow" } else { b"forbid" };
        annotations.string("authorization.k8s.io/decision", value);
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

/// The annotation of a response that is based on an expired decision.
const STALE_DECISION: &str = "weir.dev/stale-decision";
/// The annotation of a response that is based on an expired identity.
const STALE_IDENTITY: &str = "weir.dev/stale-identity";

/// Longer user agents are truncated (k8s.io/apiserver `pkg/audit/request.go`).
const USER_AGENT_BYTES_MAX: usize = 1024;

/// The beginning of a `Status` that is a response of its own, which is left out within an event.
const STATUS_KIND: &[u8] = br#"{"kind":"Status","apiVersion":"v1","#;

#[cfg(test)]
mod tests;
