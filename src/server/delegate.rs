//! Decides whether a request is served from the cache or forwarded, and for which reason. No other
//! module decides this.
//!
//! There are two steps, both pure. [`decide`] reads the request alone, by the tables in
//! [`freshness`], [`list`] and [`watch`] (`docs/semantics.md` §1.4 to §1.6). [`Target::resolve`]
//! needs the resource from discovery: its scope, the form of its responses, its selectable fields.
//! A request that either step does not fully understand is forwarded, so that the API server writes
//! the response (`docs/decisions/own-errors.md`).

mod freshness;
mod list;
mod parameters;
mod reason;
mod target;
mod watch;

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, header};

use crate::api::list_options::ListOptions;
use crate::api::query::Query;
use crate::api::request_info::{RequestInfo, Verb};
use crate::config::ConsistentLists;
pub(crate) use crate::server::delegate::freshness::Freshness;
pub(crate) use crate::server::delegate::list::{ListPlan, ReadAt};
pub(crate) use crate::server::delegate::reason::Reason;
pub(crate) use crate::server::delegate::target::Target;
pub(crate) use crate::server::delegate::watch::{Start, WatchPlan};
use crate::server::http::headers::{self, bypasses_cache};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedDecision {
    Get(Freshness),
    List(Box<ListPlan>, Box<ListOptions>),
    Watch(Box<WatchPlan>, Box<ListOptions>),
}

impl CachedDecision {
    pub(crate) fn options(&self) -> Option<&ListOptions> {
        match self {
            Self::Get(_) => None,
            Self::List(_, options) | Self::Watch(_, options) => Some(options),
        }
    }

    /// Whether it is a list that a cache may answer with a proof that it is not older than the
    /// request.
    pub(crate) fn is_consistent_list(&self) -> bool {
        matches!(self, Self::List(plan, _) if plan.read_at == ReadAt::Consistent)
    }

    /// Whether the response is mostly made for this request alone. Other responses share the bytes
    /// of caches.
    pub(crate) fn copies(&self, target: &Target) -> bool {
        match self {
            Self::Get(_) => target.form.pretty,
            Self::List(..) => true,
            Self::Watch(plan, _) => {
                matches!(plan.start, Start::State(_) | Start::ConsistentState)
            }
        }
    }
}

/// Decides by the request alone: how a cache answers it, or why it is forwarded. `is_plain` is
/// whether its headers [are](headers::are_plain). A read as another user is forwarded unless
/// `may_impersonate`.
pub(crate) fn decide(
    parts: &Parts,
    (has_body, is_plain): (bool, bool),
    info: &RequestInfo,
    consistent_lists: impl FnOnce() -> ConsistentLists,
    may_impersonate: bool,
) -> Result<CachedDecision, Reason> {
    let (path, headers) = (parts.uri.path(), &parts.headers);
    let resource = info.resource.as_ref().ok_or(Reason::NonResource)?;
    if !matches!(info.verb, Verb::Get | Verb::List | Verb::Watch) {
        return Err(Reason::Write);
    }
    if !is_plain && bypasses_cache(headers) {
        return Err(Reason::Bypass);
    }
    if !resource.subresource.is_empty() {
        return Err(Reason::Subresource);
    }
    if !info.plain_path || path.is_empty() {
        return Err(Reason::Path);
    }
    // A watch over a WebSocket is served like any other (see `server::cached::websocket`).
    if !is_plain
        && let Some(protocol) = headers::upgrade(headers)
        && !(info.verb == Verb::Watch && headers::is_websocket(&protocol))
    {
        return Err(Reason::Upgrade);
    }
    if !is_plain && !may_impersonate && headers::impersonates(headers) {
        return Err(Reason::Impersonation);
    }
    // A custom resource answers HEAD like GET, a built-in one returns 405. HEAD is too rare to
    // distinguish them here.
    if parts.method != Method::GET
        || has_body
        || (!is_plain && (has_condition(headers) || headers::is_cross_origin(headers)))
    {
        return Err(Reason::Request);
    }
    if info.query.is_lossy() || !parameters::are_known(&info.query) {
        return Err(Reason::Request);
    }
    let options = || ListOptions::decode(&info.query).map(Box::new).ok_or(Reason::Options);
    match info.verb {
        Verb::Get => {
            check_timeout(&info.query)?;
            let resource_version = info.query.first("resourceVersion").unwrap_or_default();
            Freshness::decide(resource_version).map(CachedDecision::Get)
        }
        Verb::List => {
            check_timeout(&info.query)?;
            let options = options()?;
            let plan = ListPlan::decide(&options, consistent_lists())?;
            Ok(CachedDecision::List(Box::new(plan), options))
        }
        _ => {
            let options = options()?;
            let plan = WatchPlan::decide(&options)?;
            Ok(CachedDecision::Watch(Box::new(plan), options))
        }
    }
}

/// Checks the `timeout` parameter, in which client-go sends its own time-out. A value that Go
/// cannot parse is a 400; it is forwarded so that the API server produces the message
/// (`docs/semantics.md` §1.3).
fn check_timeout(query: &Query) -> Result<(), Reason> {
    match query.first("timeout") {
        Some(text) if !matches!(text, "" | "0") && !is_go_duration(text) => Err(Reason::Options),
        _ => Ok(()),
    }
}

/// Whether `text` is a plain form of Go's durations, such as `30s`, `1m30s` and `1.5s`. Other forms
/// that Go may accept are forwarded.
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

fn has_condition(headers: &HeaderMap) -> bool {
    CONDITIONS.iter().any(|name| headers.contains_key(name))
}

/// Headers that the upstream ignores on resources today. A request with one is forwarded, so that
/// the upstream decides.
const CONDITIONS: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Keeps every number within the range of Go's durations, which 10^9 hours exceed.
const DURATION_DIGITS_MAX: usize = 6;

#[cfg(test)]
mod tests;
