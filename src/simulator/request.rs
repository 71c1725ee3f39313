//! A parsed request: verb, resource and options (`docs/semantics.md` §1.1, §1.2).
//!
//! It shares no code with `api::request_info`: the whole-proxy tests test Weir's parser, and a
//! shared one would share its mistakes.

use std::num::IntErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use rustls::pki_types::CertificateDer;

use super::selector;
use super::status::ApiError;

/// The certificate chain of a client, its own certificate first.
pub(super) type Certificates = Arc<[CertificateDer<'static>]>;

/// One request with its body.
#[derive(Debug)]
pub(super) struct Request {
    /// The HTTP method.
    pub(super) method: Method,
    pub(super) version: http::Version,
    /// The decoded path.
    pub(super) path: String,
    pub(super) raw_query: String,
    /// The decoded pairs of the query.
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The certificates of its connection, if the client sent any.
    pub(super) certificates: Option<Certificates>,
    /// The number of its connection.
    pub(super) connection: u64,
    /// The resource that it addresses; `None` for a non-resource path.
    pub(super) target: Option<Target>,
    /// The number of the API server that received it.
    pub(super) server: usize,
}

/// The resource part of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    /// `get`, `list`, `watch`, ...
    pub(super) verb: &'static str,
    /// The API group.
    pub(super) group: String,
    pub(super) version: String,
    /// The plural resource.
    pub(super) resource: String,
    /// Empty for none.
    pub(super) namespace: String,
    /// Empty for none. A field selector can set it.
    pub(super) name: String,
    /// Empty for none.
    pub(super) subresource: String,
    pub(super) named_by_path: bool,
    /// Whether the path has the deprecated `watch` prefix.
    pub(super) watch_prefix: bool,
}

impl Request {
    /// Parses a request line and headers.
    pub(super) fn new(
        parts: &http::request::Parts,
        body: Bytes,
        certificates: Option<Certificates>,
        connection: u64,
    ) -> Self {
        let raw_query = parts.uri.query().unwrap_or_default().to_owned();
        let path = decoded_text(parts.uri.path(), false).unwrap_or_default();
        let query = parse_query(&raw_query);
        let target = Target::parse(&parts.method, &path, &query);
        Self {
            method: parts.method.clone(),
            version: parts.version,
            path,
            raw_query,
            query,
            headers: parts.headers.clone(),
            body,
            certificates,
            connection,
            target,
            server: 0,
        }
    }

    /// Returns the same request, received by this API server.
    pub(super) fn at(self, server: usize) -> Self {
        Self { server, ..self }
    }

    /// Returns the first value of a query parameter.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        first(&self.query, name)
    }

    /// Returns the first value of a header; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the verb for logs and faults: that of the resource, or the method.
    pub(super) fn verb(&self) -> String {
        match &self.target {
            Some(target) => target.verb.to_owned(),
            None => self.method.as_str().to_lowercase(),
        }
    }
}

impl Target {
    /// Parses the resource of a path; `None` for a non-resource path.
    fn parse(method: &Method, path: &str, query: &[(String, String)]) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/').map(str::to_owned);
        let mut target = Self::default();
        match segments.next()?.as_str() {
            "api" => target.version = segments.next()?,
            "apis" => (target.group, target.version) = (segments.next()?, segments.next()?),
            _ => return None,
        }
        let mut rest: Vec<String> = segments.collect();
        if rest.first()?.as_str() == "watch" {
            target.watch_prefix = true;
            rest.remove(0);
        }
        let mut rest = rest.into_iter();
        target.resource = rest.next()?;
        let second = rest.next();
        let third = rest.next();
        match (target.resource.as_str(), second, third) {
            ("namespaces", Some(namespace), Some(third))
                if !matches!(third.as_str(), "status" | "finalize") =>
            {
                (target.namespace, target.resource) = (namespace, third);
                target.name = rest.next().unwrap_or_default();
                target.subresource = rest.next().unwrap_or_default();
            }
            (resource, name, subresource) => {
                if resource == "namespaces" {
                    target.namespace = name.clone().unwrap_or_default();
                }
                target.name = name.unwrap_or_default();
                target.subresource = subresource.unwrap_or_default();
            }
        }
        target.named_by_path = !target.name.is_empty();
        target.verb = target.verb_of(method, query);
        // A watch by the path's prefix does not take its name from the field selector, nor does a
        // request whose options are malformed.
        let lifts = matches!(target.verb, "list" | "watch") && !target.watch_prefix;
        if lifts && !target.named_by_path {
            target.name = lifted(query).unwrap_or_default();
        }
        Some(target)
    }

    fn verb_of(&self, method: &Method, query: &[(String, String)]) -> &'static str {
        let collection = !self.named_by_path;
        match method.as_str() {
            "GET" | "HEAD" if self.watch_prefix => "watch",
            "GET" | "HEAD" if collection && truthy(first(query, "watch")) => "watch",
            "GET" | "HEAD" if collection => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if collection => "deletecollection",
            "DELETE" => "delete",
            _ => "other",
        }
    }
}

/// The options of a list or a watch, decoded and with defaults applied.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// The label selector, not parsed.
    pub(super) label_selector: String,
    /// The field selector, not parsed.
    pub(super) field_selector: String,
    /// Whether the query, and not the path, requests a watch.
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    /// The resourceVersion, not parsed; empty for unset.
    pub(super) resource_version: String,
    /// `Exact`, `NotOlderThan`, other, or empty.
    pub(super) version_match: String,
    pub(super) timeout_seconds: Option<i64>,
    /// The page size; no limit if it is 0 or negative.
    pub(super) limit: i64,
    pub(super) continue_token: String,
    /// Whether the watch begins with the state.
    pub(super) initial_events: Option<bool>,
    pub(super) shard_selector: String,
}

impl Options {
    /// Decodes the options, applies defaults and validates them (`docs/semantics.md` §1.2, §1.4,
    /// §1.5).
    pub(super) fn decode(request: &Request, watch_list: bool) -> Result<Self, ApiError> {
        let string = |name: &str| request.param(name).unwrap_or_default().to_owned();
        let integer = |name: &str| -> Result<Option<i64>, ApiError> {
            let Some(text) = request.param(name) else { return Ok(None) };
            text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
                let fault = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let message = format!("strconv.ParseInt: parsing \"{text}\": {fault}");
                ApiError::bad_request(message)
            })
        };
        let mut options = Self {
            label_selector: string("labelSelector"),
            field_selector: string("fieldSelector"),
            watch: truthy(request.param("watch")),
            bookmarks: truthy(request.param("allowWatchBookmarks")),
            resource_version: string("resourceVersion"),
            version_match: string("resourceVersionMatch"),
            timeout_seconds: integer("timeoutSeconds")?,
            limit: integer("limit")?.unwrap_or(0),
            continue_token: string("continue"),
            initial_events: request.param("sendInitialEvents").map(|value| truthy(Some(value))),
            shard_selector: string("shardSelector"),
        };
        let unset = matches!(options.resource_version.as_str(), "" | "0");
        let silent = options.initial_events.is_none() && options.version_match.is_empty();
        if watch_list && options.watch && unset && silent {
            options.initial_events = Some(true);
            options.version_match = "NotOlderThan".to_owned();
        }
        let causes = options.causes(watch_list);
        if causes.is_empty() { Ok(options) } else { Err(ApiError::invalid_options(&causes)) }
    }

    fn causes(&self, watch_list: bool) -> Vec<(&'static str, &'static str, String)> {
        const MATCH: &str = "resourceVersionMatch";
        const EVENTS: &str = "sendInitialEvents";
        let mut causes = Vec::new();
        let mut forbid = |field, text: &str| {
            causes.push((field, "FieldValueForbidden", format!("Forbidden: {text}")));
        };
        let given = self.version_match.as_str();
        if self.watch && self.initial_events.is_some() {
            if given != "NotOlderThan" {
                forbid(
                    MATCH,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if !watch_list {
                let text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                forbid(EVENTS, text);
            }
        }
        if !given.is_empty() {
            if self.watch && self.initial_events.is_none() {
                let text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                forbid(MATCH, text);
            }
            if !self.watch && self.resource_version.is_empty() {
                let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                forbid(MATCH, text);
            }
            let text = "resourceVersionMatch is forbidden when continue is provided";
            let continued = !self.continue_token.is_empty();
            let supported: &[&str] =
                if self.watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
            // The upstream reports the value first for a watch, and the token first for a list.
            if continued && !self.watch {
                forbid(MATCH, text);
            }
            if !supported.contains(&given) {
                let list: Vec<String> =
                    supported.iter().map(|word| format!("\"{word}\"")).collect();
                let list = list.join(", ");
                let text = format!("Unsupported value: \"{given}\": supported values: {list}");
                causes.push((MATCH, "FieldValueNotSupported", text));
            }
            let mut forbid = |field, text: &str| {
                causes.push((field, "FieldValueForbidden", format!("Forbidden: {text}")));
            };
            if continued && self.watch {
                forbid(MATCH, text);
            }
            if !self.watch && given == "Exact" && self.resource_version == "0" {
                let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                forbid(MATCH, text);
            }
        }
        if !self.watch && self.initial_events.is_some() {
            let text = "Forbidden: sendInitialEvents is forbidden for list".to_owned();
            causes.push((EVENTS, "FieldValueForbidden", text));
        }
        causes
    }
}

/// Parses a resourceVersion. The error is the upstream's message for one that is not a number
/// (`docs/semantics.md` §1.6.1, row L13).
pub(super) fn parse_revision(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fault = if digits { "value out of range" } else { "invalid syntax" };
    let message = format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {fault}"
    );
    if digits { text.parse().map_err(|_| message) } else { Err(message) }
}

/// Parses a boolean parameter: absent, `0` and `false` are false, any other value is true.
pub(super) fn truthy(value: Option<&str>) -> bool {
    value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// Returns the name that a collection's options require, if they can be parsed (`docs/semantics.md`
/// §1.1).
fn lifted(query: &[(String, String)]) -> Option<String> {
    let number = |name| first(query, name).is_none_or(|text| text.parse::<i64>().is_ok());
    if !number("limit") || !number("timeoutSeconds") {
        return None;
    }
    let text = |name| first(query, name).unwrap_or_default();
    selector::required_name(text("labelSelector"), text("fieldSelector"))
}

/// Returns the first value of a name.
fn first<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Parses a query. It drops pairs with a malformed escape or a `;`, as Go does.
fn parse_query(raw: &str) -> Vec<(String, String)> {
    let pairs = raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .filter_map(|(key, value)| Some((decoded_text(key, true)?, decoded_text(value, true)?)))
        .collect()
}

fn decoded_text(text: &str, plus: bool) -> Option<String> {
    percent_decode(text, plus).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Decodes percent-escapes, and `+` as a space in queries.
pub(super) fn percent_decode(text: &str, plus: bool) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    let digit =
        |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|d| u8::try_from(d).ok());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                out.push(high * 16 + low);
            }
            b'+' if plus => out.push(b' '),
            other => out.push(other),
        }
    }
    Some(out)
}
