//! One request head of HTTP/1.1, parsed as hyper parses it: with the same parser and the same rules
//! for the length of the body. A head that the two could read differently is refused.

use std::mem::MaybeUninit;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use httparse::{Error, Header, Request, Status};

use super::aside::{HEADERS_MAX as FIELDS_MAX, RefusedHead};
use super::target::{self, TARGET_BYTES_MAX};
use crate::server::http::headers;

/// A head that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the head as the client sent it.
    pub(super) length: usize,
    /// The bytes that hyper gets in place of the head, where it may not have the head itself.
    pub(super) replacement: Option<Vec<u8>>,
    /// The fields that are not in the replacement.
    pub(super) fields: Option<Box<HeaderMap>>,
    pub(super) body: BodyFraming,
    /// The start of its header block, if the same block belongs to no body in another head as well.
    pub(super) block: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Empty,
    Length(u64),
    Chunked,
    /// Another protocol, or nothing: the connection is closed if the upgrade fails.
    Upgrade,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoHead {
    Incomplete,
    Refused(RefusedHead),
}

impl From<RefusedHead> for NoHead {
    fn from(refused: RefusedHead) -> Self {
        Self::Refused(refused)
    }
}

/// Reads the head at the beginning of `bytes`, which is no empty line.
pub(super) fn read(bytes: &[u8]) -> Result<Head, NoHead> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_USUAL_MAX];
    let mut request = Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut fields);
    match parsed {
        Err(Error::TooManyHeaders) => read_long(bytes),
        parsed => resolve(bytes, parsed, &request),
    }
}

/// Reads what httparse refuses and Go's server takes, or what httparse has read.
fn resolve(
    bytes: &[u8],
    parsed: Result<Status<usize>, Error>,
    request: &Request<'_, '_>,
) -> Result<Head, NoHead> {
    let changed = match parsed {
        Err(Error::HeaderName) => read_folded(bytes),
        Err(Error::Token) => read_foreign(bytes),
        _ => None,
    };
    changed.unwrap_or_else(|| complete(bytes, parsed, request))
}

/// Reads a head whose target is not UTF-8, which httparse refuses; `None` for any other one.
fn read_foreign(bytes: &[u8]) -> Option<Result<Head, NoHead>> {
    let start = memchr::memchr2(b' ', b'\n', bytes)? + 1;
    let (before, rest) = bytes.split_at_checked(start)?;
    let (target, after) = rest.split_at_checked(memchr::memchr2(b' ', b'\n', rest)?)?;
    if std::str::from_utf8(target).is_ok() {
        return None;
    }
    let escaped = match carried(target) {
        Ok(escaped) => escaped?,
        Err(refused) => return Some(Err(refused.into())),
    };
    // Only the head is copied: many may follow it.
    let Some(length) = end(bytes, 0) else { return Some(Err(NoHead::Incomplete)) };
    let after = after.get(..length.checked_sub(start + target.len())?)?;
    Some(read_changed(&[before, &escaped, after].concat(), length))
}

/// Reads a head with folded fields (RFC 9112 §5.2), which httparse refuses; `None` for any other
/// one. Go's server joins the lines of a field with a blank.
fn read_folded(bytes: &[u8]) -> Option<Result<Head, NoHead>> {
    let Some(length) = end(bytes, 0) else { return Some(Err(NoHead::Incomplete)) };
    let head = bytes.get(..length)?;
    let mut joined = Vec::with_capacity(head.len());
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // The first field begins no line with a blank.
        if number > 1 && matches!(line, [b' ' | b'\t', ..]) {
            let before = joined.strip_suffix(b"\n").unwrap_or(&joined);
            let before = before.strip_suffix(b"\r").unwrap_or(before);
            joined.truncate(before.len());
            let blanks = joined.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t'));
            joined.truncate(joined.len() - blanks.count());
            joined.push(b' ');
            let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
            joined.extend_from_slice(line.get(start?..)?);
        } else {
            joined.extend_from_slice(line);
        }
    }
    (joined != head).then(|| read_changed(&joined, length))
}

/// Reads a whole head that was changed. hyper gets it in place of as many bytes as `taken`.
fn read_changed(changed: &[u8], taken: usize) -> Result<Head, NoHead> {
    let head = read(changed)?;
    // The bytes after the head were not changed.
    let length = taken - (changed.len() - head.length);
    let replacement = head.replacement.or_else(|| changed.get(..head.length).map(<[u8]>::to_vec));
    Ok(Head { length, replacement, block: None, ..head })
}

fn read_long(bytes: &[u8]) -> Result<Head, NoHead> {
    let length = end(bytes, 0).ok_or(NoHead::Incomplete)?;
    let lines = memchr::memchr_iter(b'\n', bytes.get(..length).unwrap_or_default()).count();
    if lines > FIELDS_MAX + LINES_BESIDE_FIELDS {
        return Err(RefusedHead::too_many_fields().into());
    }
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    let mut request = Request::new(&mut fields);
    let parsed = request.parse(bytes);
    resolve(bytes, parsed, &request)
}

fn complete(
    bytes: &[u8],
    parsed: Result<Status<usize>, Error>,
    request: &Request<'_, '_>,
) -> Result<Head, NoHead> {
    let length = match parsed {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Err(NoHead::Incomplete),
        Err(error) => return Err(unreadable(error, bytes).into()),
    };
    let bytes = bytes.get(..length).unwrap_or_default();
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(NoHead::Incomplete);
    };
    let target_start = method.len() + 1;
    let escaped = carried(target.as_bytes())?;
    let is_http11 = request.version == Some(1);
    let (body, is_plain) = framing(is_http11, request.headers)?;
    if request.headers.len() > FIELDS_USUAL_MAX {
        let carried = escaped.as_deref().unwrap_or(target.as_bytes());
        let version: &[u8] = if is_http11 { VERSION_AND_CRLF } else { b" HTTP/1.0\r\n" };
        let line = [method.as_bytes(), b" ", carried, version].concat();
        let (replacement, fields) = split(line, request.headers)?;
        return Ok(Head { length, replacement: Some(replacement), fields, body, block: None });
    }
    let replacement = escaped.map(|escaped| {
        let before = bytes.get(..target_start).unwrap_or_default();
        let after = bytes.get(target_start + target.len()..).unwrap_or_default();
        [before, &escaped, after].concat()
    });
    let line = target_start + target.len() + VERSION_AND_CRLF.len();
    let block = (is_plain && replacement.is_none()).then_some(line);
    Ok(Head { length, replacement, fields: None, body, block })
}

/// Returns a head of the fields that hyper itself reads, and a map of the others. hyper would make
/// room for the limit on fields with each head.
fn split(
    mut head: Vec<u8>,
    fields: &[Header<'_>],
) -> Result<(Vec<u8>, Option<Box<HeaderMap>>), RefusedHead> {
    let (mut other_fields, mut kept) = (HeaderMap::new(), 0);
    for Header { name, value } in fields {
        if READ_BY_HYPER.iter().any(|other| name.eq_ignore_ascii_case(other.as_str())) {
            kept += 1;
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).ok();
        let value = HeaderValue::from_bytes(value).ok();
        let added =
            name.zip(value).and_then(|(name, value)| other_fields.try_append(name, value).ok());
        added.ok_or_else(RefusedHead::too_many_fields)?;
    }
    if kept > FIELDS_USUAL_MAX {
        return Err(RefusedHead::too_many_fields());
    }
    head.extend_from_slice(b"\r\n");
    Ok((head, Some(Box::new(other_fields))))
}

/// Returns the target as `http::Uri` carries it; `None` if it carries it as it is.
fn carried(target: &[u8]) -> Result<Option<Vec<u8>>, RefusedHead> {
    let bad = |why: &str| Err(RefusedHead::bad_request(why));
    let escaped = match target::escape(target) {
        Ok(escaped) => escaped,
        Err(error) => return bad(&error.to_string()),
    };
    let carried = escaped.as_deref().unwrap_or(target);
    if carried.len() > TARGET_BYTES_MAX {
        return Err(RefusedHead::target_too_long());
    }
    // Any path can be carried then. `http::Uri` takes the name of a scheme without a letter, too.
    let is_read = match carried {
        [b'/', ..] => true,
        [b'*' | b'a'..=b'z' | b'A'..=b'Z', ..] => {
            Uri::try_from(carried).is_ok_and(|uri| has_valid_port(&uri))
        }
        _ => false,
    };
    if !is_read {
        return bad("its target is not a path");
    }
    Ok(escaped)
}

/// Whether the port of an authority is empty or a number, as Go's server requires.
fn has_valid_port(uri: &Uri) -> bool {
    let authority = uri.authority().map_or("", Authority::as_str);
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (_, port) = host.rsplit_once(']').unwrap_or(("", host));
    let (_, port) = port.rsplit_once(':').unwrap_or(("", ""));
    port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns what follows a head with these fields, and whether no field changes that.
fn framing(is_http11: bool, fields: &[Header<'_>]) -> Result<(BodyFraming, bool), RefusedHead> {
    let (mut length, mut chunked, mut upgrades, mut is_plain) = (None, false, false, is_http11);
    let mut expectation = None;
    for Header { name, value } in fields {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            6 if is("expect") => {
                is_plain = false;
                expectation.get_or_insert(*value);
            }
            7 if is("upgrade") => upgrades = true,
            14 if is("content-length") => {
                let digits = content_length(value)?;
                if length.replace(digits).is_some_and(|other| other != digits) {
                    return Err(RefusedHead::bad_request("its Content-Length is not one number"));
                }
            }
            17 if is("transfer-encoding") => {
                if !is_http11 {
                    let why = "HTTP/1.0 has no Transfer-Encoding";
                    return Err(RefusedHead::bad_request(why));
                }
                if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(RefusedHead::unsupported_coding());
                }
                chunked = true;
            }
            65_536.. => return Err(RefusedHead::name_too_long()),
            _ => {}
        }
    }
    // Only the first value counts, as in Go's server.
    let is_token = |token: &[u8]| token.eq_ignore_ascii_case(b"100-continue");
    let separates = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
    if expectation.is_some_and(|expectation| {
        !expectation.is_empty() && !expectation.split(separates).any(is_token)
    }) {
        return Err(RefusedHead::expectation_failed());
    }
    let body = match length {
        _ if is_http11 && upgrades && asks_for_upgrade(fields) => BodyFraming::Upgrade,
        _ if chunked => BodyFraming::Chunked,
        Some(length @ 1..) => BodyFraming::Length(length),
        Some(0) | None => BodyFraming::Empty,
    };
    is_plain &= length.is_none() && !chunked && !upgrades;
    Ok((body, is_plain))
}

/// Reads a number as Go does.
fn content_length(value: &[u8]) -> Result<u64, RefusedHead> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| is_number);
    let length = text.and_then(|text| text.parse().ok()).filter(|length| *length <= LENGTH_MAX);
    length.ok_or_else(|| RefusedHead::bad_request("its Content-Length is not a number"))
}

/// Whether a request asks for an upgrade, after which the connection carries another protocol or is
/// closed. The same function decides for the request itself.
fn asks_for_upgrade(fields: &[Header<'_>]) -> bool {
    let mut named = HeaderMap::new();
    for Header { name, value } in fields {
        for wanted in [CONNECTION, UPGRADE] {
            if name.eq_ignore_ascii_case(wanted.as_str())
                && let Ok(value) = HeaderValue::from_bytes(value)
            {
                drop(named.try_append(wanted, value));
            }
        }
    }
    headers::upgrade(&named).is_some()
}

/// Returns the length of a request line with its CRLF, if `http::Uri` carries its target as it is:
/// a GET of a path in HTTP/1.1.
pub(super) fn plain_line(bytes: &[u8]) -> Option<usize> {
    let target = bytes.strip_prefix(b"GET ").filter(|rest| rest.starts_with(b"/"))?;
    let end = target::first_foreign(target).filter(|end| *end <= TARGET_BYTES_MAX)?;
    let rest = target.get(end..)?.strip_prefix(VERSION_AND_CRLF)?;
    Some(bytes.len() - rest.len())
}

/// Returns the length of the head at the beginning of `bytes`, if it is complete: up to an empty
/// line. None ends before `from`.
pub(super) fn end(bytes: &[u8], from: usize) -> Option<usize> {
    let from = from.saturating_sub(HEAD_END_BYTES_MAX);
    let rest = bytes.get(from..)?;
    memchr::memchr_iter(b'\n', rest).find_map(|at| {
        let next = rest.get(at + 1..)?;
        let length = if next.starts_with(b"\n") { 1 } else { 2 };
        (length == 1 || next.starts_with(b"\r\n")).then_some(from + at + 1 + length)
    })
}

fn unreadable(error: Error, bytes: &[u8]) -> RefusedHead {
    RefusedHead::bad_request(match error {
        Error::TooManyHeaders => return RefusedHead::too_many_fields(),
        Error::Version if names_version(bytes) => return RefusedHead::unsupported_version(),
        Error::HeaderName => "the name of a header field is not a token",
        Error::HeaderValue => "the value of a header field has a control byte",
        Error::NewLine | Error::Status | Error::Token | Error::Version => {
            "its first line is not that of a request"
        }
    })
}

fn names_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // Go's server takes what follows the second blank for the version.
    let mut words = line.strip_suffix(b"\r").unwrap_or(line).splitn(3, |byte| *byte == b' ');
    let version = words.nth(2);
    let numbers = version.and_then(|version| version.strip_prefix(b"HTTP/"));
    matches!(numbers, Some([b'0'..=b'9', b'.', b'0'..=b'9']))
}

/// Fields for which there is room on the stack, here and in hyper.
const FIELDS_USUAL_MAX: usize = 100;
/// The fields that decide what hyper does with a message and its connection.
const READ_BY_HYPER: [HeaderName; 6] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING, UPGRADE];
/// The request line, and the empty line.
const LINES_BESIDE_FIELDS: usize = 2;
/// The limit of Go's `strconv.ParseUint` for 63 bits.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// A head ends with a line feed and an empty line.
const HEAD_END_BYTES_MAX: usize = b"\n\r\n".len();
const VERSION_AND_CRLF: &[u8] = b" HTTP/1.1\r\n";

#[cfg(test)]
mod tests;
