//! Negotiates the form of a response from a request's headers and query.

use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use super::accept::{negotiate_accept, negotiate_error};
use super::form::{Encoding, ErrorForm, Form};
use crate::query::Query;
use crate::request_info::Verb;
use crate::resource::Shape;

/// Returns the form that a get, list or watch negotiates. Returns `None` for all other forms
/// (Table, YAML, CBOR, or a 406): forward the request. Follows the API server's algorithm,
/// including go-restful's filter for built-in types.
pub fn negotiate(headers: &HeaderMap, query: &Query, shape: Shape, verb: Verb) -> Option<Form> {
    let accept = headers.get(ACCEPT);
    let form = match accept.map_or(&b""[..], HeaderValue::as_bytes) {
        // Both of the API server's negotiations treat an empty header as an absent one.
        b"" => Form::JSON,
        // The values of most clients need not be parsed.
        JSON | JSON_OR_ANY => Form::JSON,
        PROTOBUF | PROTOBUF_OR_JSON if shape == Shape::BuiltIn => {
            Form { encoding: Encoding::Protobuf, ..Form::JSON }
        }
        _ => negotiate_accept(accept?.to_str().ok()?, shape, verb)?,
    };
    if form.encoding == Encoding::Protobuf || verb == Verb::Watch {
        return Some(Form { pretty: false, ..form });
    }
    Some(Form { pretty: form.pretty || wants_pretty(headers, query), ..form })
}

/// Returns the form of an error (`docs/semantics.md` §8.5). Clauses with a conversion do not count.
/// An `Accept` header with only such clauses, or with unavailable types, gives indented JSON.
pub fn error_form(headers: &HeaderMap, query: &Query) -> ErrorForm {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let form = match accept {
        "" => Some(ErrorForm::Json { pretty: false }),
        accept => negotiate_error(accept),
    };
    match form {
        None => ErrorForm::Json { pretty: true },
        Some(ErrorForm::Json { pretty }) => {
            ErrorForm::Json { pretty: pretty || wants_pretty(headers, query) }
        }
        Some(form) => form,
    }
}

/// Whether the query or the user agent requests indented JSON (`docs/semantics.md` §8.6).
fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.pretty() {
        None | Some("") => is_interactive_client(headers),
        Some(value) => matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// Whether `Accept-Encoding` has the exact token `gzip`. Only the first header line counts, as in
/// Go's `Header.Get` (`docs/semantics.md` §8.7).
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT_ENCODING).is_some_and(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|token| token.trim_ascii() == b"gzip")
    })
}

/// Whether the API server treats the client as a tool whose output people read.
pub fn is_interactive_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).map_or(&[][..], HeaderValue::as_bytes);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix.as_bytes()))
}

const JSON: &[u8] = b"application/json";
const JSON_OR_ANY: &[u8] = b"application/json, */*";
const PROTOBUF: &[u8] = b"application/vnd.kubernetes.protobuf";
const PROTOBUF_OR_JSON: &[u8] = b"application/vnd.kubernetes.protobuf,application/json";

#[cfg(test)]
mod tests;
