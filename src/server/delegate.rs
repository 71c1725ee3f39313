//! Cache or upstream, and the reason: the one place where that is decided.
//!
//! Two steps, both pure. [`decide`] looks at the request alone, by the tables in [`get`], [`list`] and [`watch`] (semantics.md §1.4 to
//! §1.6). [`Target::resolve`] needs what discovery says of the resource: its scope, the form of its answers, its selectable fields.
//! What either does not fully understand goes to the upstream, which words the answer (design, section 1.1).

mod get;
mod list;
mod reason;
mod target;
mod watch;

use http::{HeaderMap, Method, header};

use crate::api::list_options::ListOptions;
use crate::api::query::Query;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource_version::ResourceVersion;
use crate::server::cached::websocket;
pub(crate) use crate::server::delegate::list::{At, ListPlan};
pub use crate::server::delegate::reason::Reason;
pub(crate) use crate::server::delegate::target::Target;
pub(crate) use crate::server::delegate::watch::{Start, WatchPlan};
use crate::server::http::headers;
use crate::server::http::response::{BYPASS, CACHE_HEADER};

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Whatever the cache has.
    Any,
    /// Not older than this.
    NotOlderThan(ResourceVersion),
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// One object from the cache.
    Get(Freshness),
    /// A list from the cache.
    List(ListPlan, ListOptions),
    /// A watch from the cache.
    Watch(WatchPlan, ListOptions),
    /// The upstream.
    Forward(Reason),
}

/// What `resourceVersion` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Absent or empty.
    Unset,
    /// `0`.
    Any,
    /// A number above 0.
    At(ResourceVersion),
}

impl Asked {
    /// What is written otherwise than the upstream writes it is refused there, or (`00`) read as neither `0` nor a number (L13, L14).
    fn read(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Ok(Self::Unset);
        }
        match ResourceVersion::parse(text) {
            Some(ResourceVersion(0)) => Ok(Self::Any),
            Some(at) => Ok(Self::At(at)),
            None => Err(Reason::Options),
        }
    }
}

/// Decides by the request alone. `has_body` says whether the request carries a body.
pub(crate) fn decide(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    has_body: bool,
    info: &RequestInfo,
) -> Decision {
    match read(method, path, headers, has_body, info) {
        Ok(decision) => decision,
        Err(reason) => Decision::Forward(reason),
    }
}

fn read(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    has_body: bool,
    info: &RequestInfo,
) -> Result<Decision, Reason> {
    let resource = info.resource.as_ref().ok_or(Reason::NonResource)?;
    if !matches!(info.verb, Verb::Get | Verb::List | Verb::Watch) {
        return Err(Reason::Write);
    }
    if headers.get(CACHE_HEADER).is_some_and(|value| value.as_bytes() == BYPASS) {
        return Err(Reason::Bypass);
    }
    if !resource.subresource.is_empty() {
        return Err(Reason::Subresource);
    }
    if !info.plain_path || path.is_empty() {
        return Err(Reason::Path);
    }
    // A watch over a WebSocket is one like any other (see `server::cached::websocket`).
    if let Some(protocol) = headers::upgrade(headers)
        && !(info.verb == Verb::Watch && websocket::is_named(&protocol))
    {
        return Err(Reason::Upgrade);
    }
    if headers::impersonates(headers) {
        return Err(Reason::Impersonation);
    }
    // A custom resource answers HEAD as it answers GET, a built-in one says 405; nobody asks often enough to tell them apart here.
    if method != Method::GET || has_body || CONDITIONS.iter().any(|name| headers.contains_key(name))
    {
        return Err(Reason::Request);
    }
    if info.query.is_lossy()
        || FORWARDED_PARAMETERS.iter().any(|name| info.query.first(name).is_some())
    {
        return Err(Reason::Request);
    }
    let options = || ListOptions::decode(&info.query).ok_or(Reason::Options);
    match info.verb {
        Verb::Get => {
            check_timeout(&info.query)?;
            let resource_version = info.query.first("resourceVersion").unwrap_or_default();
            get::decide(resource_version).map(Decision::Get)
        }
        Verb::List => {
            check_timeout(&info.query)?;
            let options = options()?;
            Ok(Decision::List(ListPlan::decide(&options)?, options))
        }
        _ => {
            let options = options()?;
            Ok(Decision::Watch(WatchPlan::decide(&options)?, options))
        }
    }
}

/// client-go sends its own time-out along. One that Go can't read is a 400, which the upstream words (semantics.md §1.3).
fn check_timeout(query: &Query) -> Result<(), Reason> {
    match query.first("timeout") {
        Some(text) if !matches!(text, "" | "0") && !is_go_duration(text) => Err(Reason::Options),
        _ => Ok(()),
    }
}

/// The plain forms of Go's durations, such as `30s`, `1m30s` and `1.5s`. What else Go may read is forwarded.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = rest.strip_suffix(after).unwrap_or_default();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let plain = |digits: &str| {
            (1..=DURATION_DIGITS_MAX).contains(&digits.len()) && !digits.contains('.')
        };
        let unit = ["ms", "s", "m", "h"].iter().find_map(|unit| after.strip_prefix(unit));
        match unit {
            Some(after) if plain(whole) && plain(fraction) => rest = after,
            _ => return false,
        }
    }
    !text.is_empty()
}

/// The upstream ignores these on resources; a client that sends one gets the upstream's own idea of it.
const CONDITIONS: [header::HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

const FORWARDED_PARAMETERS: [&str; 3] = ["export", "shardSelector", "includeObject"];

/// So that no number overflows Go's: 10^9 hours is beyond it.
const DURATION_DIGITS_MAX: usize = 6;

#[cfg(test)]
mod tests;
