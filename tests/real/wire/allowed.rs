//! The differences from the API server that are allowed, each with its reason. The objects that a
//! Weir leaves in its namespace may differ only where it refuses a write and so leaves nothing, and
//! where a sidecar writes with its own identity.

use super::case::{Case, Field};
use super::compare::{Aspect, Difference, Seen, is_refusal_of_go};
use super::http1::BEARER;
use super::meaning::{in_one_namespace, meaning};
use super::outcome::{End, Usable};
use super::peer::Protocol;

/// A difference of one Weir.
pub(crate) struct Look<'a> {
    pub(crate) case: &'a Case,
    pub(crate) is_sidecar: bool,
    pub(crate) direct: &'a Seen,
    pub(crate) weir: &'a Seen,
    pub(crate) difference: &'a Difference,
}

/// A rule: its reason, and whether a difference is of it.
type Rule = (&'static str, fn(&Look<'_>) -> bool);

/// Returns the reason why a difference is allowed.
pub(crate) fn reason(look: &Look<'_>) -> Option<&'static str> {
    if look.difference.aspect == Aspect::Effect
        && !look.refuses_whole_write()
        && !look.has_other_identity()
    {
        return None;
    }
    RULES.iter().find(|(_, applies)| applies(look)).map(|(reason, _)| *reason)
}

const RULES: [Rule; 36] = [
    (
        "Weir writes its own errors in JSON in place of YAML (docs/semantics.md, section 8.5)",
        |look| {
            let direct = &look.direct.outcome.answer;
            look.refuses_with(direct.status)
                && direct.header("content-type") == "application/yaml"
                && match &look.difference.aspect {
                    Aspect::Header(name) => name == "content-type" || name == "content-length",
                    aspect => *aspect == Aspect::Body,
                }
        },
    ),
    ("http::Uri holds no longer target (docs/decisions/raw-targets.md)", |look| {
        look.refuses_with(414) && look.case.target.len() > 60_000
    }),
    ("more fields or bytes than Weir takes (docs/decisions/raw-targets.md)", |look| {
        look.refuses_with(431) && look.case.bytes() > 1_000_000
    }),
    ("no target but a path and an http URL is carried (docs/decisions/raw-targets.md)", |look| {
        look.refuses_with(400)
            && look.says("its target is not a path")
            && !look.case.target.starts_with(b"/")
    }),
    (
        "h2 resets a stream whose :path is no path, as kube-apiserver does from 1.34 on \
         (docs/decisions/raw-targets.md)",
        |look| {
            look.case.protocol == Protocol::Http2
                && look.weir.outcome.end == End::Reset("PROTOCOL_ERROR".to_owned())
                && !look.case.target.starts_with(b"/")
        },
    ),
    (
        "h2 resets a stream whose :authority names a user, as kube-apiserver does from 1.33 on \
         (RFC 9113 section 8.3.1)",
        |look| {
            look.case.protocol == Protocol::Http2
                && look.weir.outcome.end == End::Reset("PROTOCOL_ERROR".to_owned())
                && look.has("host", |value| value.contains(&b'@'))
        },
    ),
    ("a field's name begins with a colon, which Go reads before kube-apiserver 1.31", |look| {
        look.refuses_with(400)
            && look.says("the name of a header field is not a token")
            && look.case.fields.iter().any(|field| field.name.starts_with(b":"))
    }),
    ("the API server races the end of a watch whose timeoutSeconds overflows", |look| {
        let has_ended = |seen: &Seen| {
            let answer = &seen.outcome.answer;
            let text = b"context deadline exceeded";
            answer.status == 503 && memchr::memmem::find(&answer.body, text).is_some()
        };
        look.weir.outcome.answer.header("x-weir-cache").starts_with("forward")
            && memchr::memmem::find(&look.case.target, b"timeoutSeconds=9223372037").is_some()
            && (has_ended(look.direct) || has_ended(look.weir))
    }),
    ("of HTTP/1, versions 1.0 and 1.1 alone are spoken (docs/decisions/raw-targets.md)", |look| {
        look.refuses_with(505) && look.case.version == "HTTP/1.2"
    }),
    ("h2 ends a connection with an invalid field (docs/decisions/raw-targets.md)", |look| {
        let is_name = |byte: &u8| is_token(byte) && !byte.is_ascii_uppercase();
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        let is_bad = |field: &Field| {
            field.name.is_empty()
                || !field.name.iter().all(is_name)
                || field.value.iter().any(is_control)
        };
        let direct = &look.direct.outcome;
        (matches!(direct.end, End::Reset(_)) || direct.answer.status == 431)
            && look.ends_http2()
            && look.case.fields.iter().any(is_bad)
    }),
    ("h2 resets a stream with a field of a connection (RFC 9113 section 8.2.2)", |look| {
        let is_of_connection = |name| look.has(name, |_| true);
        look.case.protocol == Protocol::Http2
            && matches!(look.direct.outcome.answer.status, 400 | 431)
            && look.weir.outcome.end == End::Reset("PROTOCOL_ERROR".to_owned())
            && (["connection", "upgrade", "transfer-encoding"].into_iter().any(is_of_connection)
                || look.has("te", |value| value != b"trailers")
                || look.case.fields.iter().filter(|field| field.is("te")).count() > 1)
    }),
    (
        "Go ends a connection where h2 only resets a stream (docs/decisions/raw-targets.md)",
        |look| {
            let [direct, weir] = [&look.direct.outcome, &look.weir.outcome];
            let is_reset = |end: &End| *end == End::Reset("PROTOCOL_ERROR".to_owned());
            look.case.protocol == Protocol::Http2
                // A frame follows the one with the error.
                && (!look.case.body.is_empty() || look.case.bytes() > 16_000)
                && (is_reset(&direct.end) || direct.end == End::Closed)
                && is_reset(&weir.end)
                && direct.usable == Usable::No
        },
    ),
    (
        "kube-apiserver ends anonymous connections of HTTP/2 (docs/decisions/raw-targets.md)",
        |look| {
            look.difference.aspect == Aspect::Usable
                && look.case.protocol == Protocol::Http2
                && matches!(look.direct.outcome.answer.status, 401 | 403)
                && look.weir.outcome.usable == Usable::Yes
                && (look.is_anonymous()
                    || look.has("authorization", |value| value != BEARER.as_bytes()))
        },
    ),
    ("HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1)", |look| {
        look.case.version == "HTTP/1.0"
            && look.refuses_with(400)
            && look.says("HTTP/1.0 has no Transfer-Encoding")
            && look.has("transfer-encoding", |_| true)
    }),
    ("Weir takes one Content-Length over HTTP/2 (RFC 9110 section 8.6)", |look| {
        let lengths = look.case.fields.iter().filter(|field| field.is("content-length"));
        look.case.protocol == Protocol::Http2
            && look.refuses_with(400)
            && look.says("its Content-Length is not one number")
            && lengths.count() > 1
    }),
    ("h2 resets a stream with a Content-Length that is no number (RFC 9110 section 8.6)", |look| {
        look.case.protocol == Protocol::Http2
            && look.weir.outcome.end == End::Reset("PROTOCOL_ERROR".to_owned())
            && look.has("content-length", |value| {
                value.is_empty() || !value.iter().all(u8::is_ascii_digit)
            })
    }),
    ("h2 resets a stream whose body has another Content-Length (RFC 9113 section 8.1.1)", |look| {
        let body = look.case.body.len().to_string();
        look.case.protocol == Protocol::Http2
            && look.weir.outcome.end == End::Reset("PROTOCOL_ERROR".to_owned())
            && look
                .case
                .fields
                .iter()
                .any(|field| field.is("content-length") && field.value != body.as_bytes())
    }),
    (
        "an error repeats the target, in which Weir has escaped a byte (docs/decisions/raw-targets.md)",
        |look| {
            let [direct, weir] = [look.direct, look.weir].map(|seen| &seen.outcome.answer);
            // The target may name the server's namespace.
            let text = |body| in_one_namespace(body).escape_ascii().to_string();
            look.difference.aspect == Aspect::Body
                && direct.status == weir.status
                && direct.status >= 400
                && text(&direct.body).replace('#', "%23") == text(&weir.body)
        },
    ),
    ("of two Expect lines Go reads the first one, and hyper the last one", |look| {
        let expectations = look.case.fields.iter().filter(|field| field.is("expect"));
        look.difference.aspect == Aspect::Interim && expectations.count() > 1
    }),
    ("Weir keeps a connection that Go closes, where the end of the answer is known", |look| {
        let answer = &look.weir.outcome.answer;
        look.difference.aspect == Aspect::Usable
            && look.weir.outcome.usable == Usable::Yes
            && (look.case.is_head()
                || look.case.version == "HTTP/1.0" && !answer.header("content-length").is_empty())
    }),
    ("h2 answers a head of more than 1 MiB (docs/decisions/raw-targets.md)", |look| {
        look.case.protocol == Protocol::Http2
            && look.case.bytes() > 1_000_000
            && look.direct.outcome.end == End::Closed
            && look.weir.outcome.answer.status == 431
    }),
    ("hyper closes after a length beside chunks (RFC 9112 section 6.1)", |look| {
        look.difference.aspect == Aspect::Usable
            && look.weir.outcome.usable == Usable::No
            && look.has("content-length", |_| true)
            && look.has("transfer-encoding", |_| true)
    }),
    ("one refuses a head with an error at once, the other when the head ends", |look| {
        let [direct, weir] = [&look.direct.outcome, &look.weir.outcome];
        // The bare CR stands in the place of the end.
        look.case.fields.iter().any(|field| field.end == "\r")
            && ((look.is_own() && direct.end == End::Silent)
                || (is_refusal_of_go(direct) && weir.end == End::Silent))
    }),
    ("Weir is no proxy for CONNECT", |look| {
        look.case.method == b"CONNECT" && look.refuses_with(405)
    }),
    ("h2 ends a connection with an invalid method (docs/decisions/raw-targets.md)", |look| {
        let method = &look.case.method;
        look.ends_http2() && (method.is_empty() || !method.iter().all(is_token))
    }),
    ("after a 431, Go's server of HTTP/1.1 closes; Weir relays that of HTTP/2", |look| {
        look.difference.aspect == Aspect::Usable
            && look.case.fields.len() > 500
            && look.direct.outcome.answer.status == 431
            && look.weir.outcome.answer.status == 431
    }),
    // Weir's refusals of heads reach neither a cache nor the API server.
    ("both refuse the head, Weir with a Status", |look| {
        let is_refused = is_refusal_of_go(&look.direct.outcome)
            || matches!(look.direct.outcome.end, End::Reset(_) | End::Closed);
        is_refused && REFUSALS.into_iter().any(|status| look.refuses_with(status))
    }),
    ("Connection may not name an identity header (server/http/headers.rs)", |look| {
        look.refuses_with(400)
            && look.has("connection", |value| value.eq_ignore_ascii_case(b"authorization"))
    }),
    ("a sidecar checks Host and Origin (docs/decisions/authentication.md)", |look| {
        look.is_sidecar && look.refuses_with(403) && look.says("weir does not answer")
    }),
    ("a sidecar requires a host that it can read (docs/decisions/authentication.md)", |look| {
        let hosts = look.case.fields.iter().filter(|field| field.is("host"));
        let is_usual = hosts.map(|field| &*field.value).eq([b"localhost"]);
        look.is_sidecar
            && look.refuses_with(400)
            && (look.says("the request has no Host header")
                || look.says("the Host header cannot be read"))
            && (!is_usual || look.case.left_out == Some(":authority"))
    }),
    ("a sidecar has one identity", |look| {
        look.is_sidecar
            && matches!(look.direct.outcome.answer.status, 401 | 403)
            && !look.weir.outcome.answer.header("x-weir-cache").is_empty()
    }),
    ("an Upgrade in HTTP/1.0 is ignored (RFC 9110 section 7.8), and Go answers it", |look| {
        look.case.version == "HTTP/1.0" && look.has("upgrade", |value| !value.is_empty())
    }),
    ("a connection is closed after a refusal or a failed upgrade", |look| {
        look.difference.aspect == Aspect::Usable
            && look.weir.outcome.usable == Usable::No
            && (look.is_own() || look.has("upgrade", |_| true))
    }),
    ("the history of a cache begins with its list (docs/semantics.md, section 5.8)", |look| {
        look.difference.aspect == Aspect::Body
            && memchr::memmem::find(&look.case.target, b"resourceVersion=1").is_some()
            && look.says("\"reason\":\"Expired\",\"code\":410")
    }),
    ("a reset of a connection with unread frames may overtake the close frame", |look| {
        let [direct, weir] = [look.direct, look.weir].map(|seen| meaning(&seen.outcome.answer).1);
        let bytes: usize = look.case.script.frames.iter().map(Vec::len).sum();
        look.difference.aspect == Aspect::Body
            && look.weir.outcome.answer.status == 101
            && bytes > UNREAD_BYTES_MIN
            && direct.events() == weir.events()
    }),
    ("the end of a watch and its first events race", |look| {
        look.difference.aspect == Aspect::Body
            && memchr::memmem::find(&look.case.target, b"9223372037").is_some()
    }),
];

/// More bytes of frames than a server reads before it closes a connection, which resets it.
const UNREAD_BYTES_MIN: usize = 60_000;

/// The codes of heads that Weir refuses.
const REFUSALS: [u16; 7] = [400, 405, 414, 417, 431, 501, 505];

impl Look<'_> {
    /// Whether Weir ends a connection of HTTP/2 instead of an answer.
    fn ends_http2(&self) -> bool {
        self.case.protocol == Protocol::Http2 && self.weir.outcome.end == End::Closed
    }

    /// Whether Weir itself refuses the request, and leaves its namespace as it was.
    fn refuses_whole_write(&self) -> bool {
        let is_refused = self.weir.outcome.end != End::Answer || self.is_own();
        self.weir.effect.is_empty() && is_refused
    }

    /// Whether the API server refuses a user whom a sidecar does not look at.
    fn has_other_identity(&self) -> bool {
        self.is_sidecar
            && self.direct.effect.is_empty()
            && matches!(self.direct.outcome.answer.status, 401 | 403)
            && self.is_anonymous()
    }

    fn is_anonymous(&self) -> bool {
        !self.has("authorization", |_| true)
    }

    /// Whether Weir itself refuses the request with this status.
    fn refuses_with(&self, status: u16) -> bool {
        self.weir.outcome.answer.status == status && self.is_own()
    }

    /// Whether the response is Weir's own error, in whatever form: those of the API server and of
    /// the caches say where they are from.
    fn is_own(&self) -> bool {
        let answer = &self.weir.outcome.answer;
        answer.status >= 400 && answer.header("x-weir-cache").is_empty()
    }

    /// Whether the response has this text, unless it has no body.
    fn says(&self, text: &str) -> bool {
        let body = &self.weir.outcome.answer.body;
        self.case.is_head() || memchr::memmem::find(body, text.as_bytes()).is_some()
    }

    fn has(&self, name: &str, is_value: fn(&[u8]) -> bool) -> bool {
        self.case.fields.iter().any(|field| field.is(name) && is_value(&field.value))
    }
}

/// Whether a byte may stand in a token (RFC 9110 section 5.6.2).
fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}
