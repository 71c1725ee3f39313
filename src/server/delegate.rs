//! Cache or upstream, and the reason: the one place where that is decided.
//!
//! Two steps, both pure. [`decide`] looks at the request alone (semantics.md §1.6). [`Target::resolve`] needs what
//! discovery says of the resource: its scope, the form of its answers, its selectable fields. What either does not fully
//! understand goes to the upstream, which words the answer (design, section 1.1).

mod reason;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, header};

use crate::api::list_options::ListOptions;
use crate::api::media_type::{self, Form};
use crate::api::query::Query;
use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::api::resource::{ApiResource, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::cache::core::watcher::WatchFilter;
pub use crate::server::delegate::reason::Reason;
use crate::server::headers;
use crate::server::response::{BYPASS, CACHE_HEADER};
use crate::server::websocket;

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Whatever the cache has.
    Any,
    /// Not older than this.
    NotOlderThan(ResourceVersion),
    /// Not older than this request.
    Consistent,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// One object from the cache.
    Get(Freshness),
    /// A list from the cache. With `single`, only if the request can match but one object: with a limit all others are paged
    /// (semantics.md §1.6.2).
    List { freshness: Freshness, single: bool, options: ListOptions },
    /// A watch from the cache.
    Watch(WatchPlan, ListOptions),
    /// The upstream.
    Forward(Reason),
}

/// How a watch begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchPlan {
    pub(crate) start: Start,
    /// Whether it carries `sendInitialEvents`, true or false: an upstream without watch-list refuses that in its own words
    /// (semantics.md §1.5).
    pub(crate) asks_watch_list: bool,
    /// Whether bookmarks are wanted; with [`Start::State`] one ends the initial events (semantics.md §1.4).
    pub(crate) bookmarks: bool,
    /// When the client wants it to end.
    pub(crate) timeout: Option<Duration>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the whole state, once it is so fresh.
    State(Freshness),
    /// With the events after this.
    After(ResourceVersion),
    /// With the events to come.
    Now,
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

/// What a read is about, once its resource is known.
#[derive(Debug)]
pub(crate) struct Target {
    /// The form of the answer.
    pub(crate) form: Form,
    /// The objects meant.
    pub(crate) filter: WatchFilter,
}

impl Target {
    /// Binds a read to its resource; `options` are those of a list or watch, `None` for a get.
    pub(crate) fn resolve(
        path: &str,
        headers: &HeaderMap,
        info: &RequestInfo,
        request: &ResourceRequest,
        options: Option<&ListOptions>,
        resource: &ApiResource,
    ) -> Result<Self, Reason> {
        if !is_canonical(path, request, resource) {
            return Err(Reason::Path);
        }
        let watch = info.verb == Verb::Watch;
        let form = media_type::negotiate(headers, &info.query, resource.shape, watch)
            .ok_or(Reason::Form)?;
        let (labels, fields) = match options {
            None => Default::default(),
            Some(options) => (
                LabelSelector::parse(&options.label_selector).ok_or(Reason::Selector)?,
                FieldSelector::parse(&options.field_selector, &resource.selectable)
                    .ok_or(Reason::Selector)?,
            ),
        };
        // `metadata.namespace=x` on a whole cluster is as that namespace's path; the authorization stays that of the cluster.
        let namespace = if !resource.namespaced {
            None
        } else if request.namespace.is_empty() {
            fields.required_namespace().filter(|namespace| !namespace.is_empty())
        } else {
            Some(request.namespace.as_str())
        };
        let namespace = namespace.map(Arc::from);
        let name = (!request.name.is_empty()).then(|| Arc::from(request.name.as_str()));
        Ok(Self { form, filter: WatchFilter { namespace, name, labels, fields } })
    }

    /// Whether it can match but one object.
    pub(crate) fn is_single(&self, resource: &ApiResource) -> bool {
        self.filter.name.is_some() && (self.filter.namespace.is_some() || !resource.namespaced)
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
    if resource.watch_prefix {
        return Err(Reason::WatchPrefix);
    }
    if !info.plain_path || path.is_empty() {
        return Err(Reason::Path);
    }
    // A watch over a WebSocket is one like any other (see `server::websocket`).
    if let Some(protocol) = headers::upgrade(headers)
        && !(info.verb == Verb::Watch && websocket::is_named(&protocol))
    {
        return Err(Reason::Upgrade);
    }
    if headers::impersonates(headers) {
        return Err(Reason::Impersonation);
    }
    if method != Method::GET || has_body || CONDITIONS.iter().any(|name| headers.contains_key(name))
    {
        return Err(Reason::Request);
    }
    if info.query.is_lossy()
        || FORWARDED_PARAMETERS.iter().any(|name| info.query.first(name).is_some())
    {
        return Err(Reason::Request);
    }
    match info.verb {
        Verb::Get => {
            check_timeout(&info.query)?;
            get(&info.query)
        }
        Verb::List => {
            check_timeout(&info.query)?;
            list(
                ListOptions::decode(&info.query).ok_or(Reason::Options)?,
                !resource.name.is_empty(),
            )
        }
        _ => watch(ListOptions::decode(&info.query).ok_or(Reason::Options)?),
    }
}

/// semantics.md §1.6.3.
fn get(query: &Query) -> Result<Decision, Reason> {
    let freshness = match query.first("resourceVersion").unwrap_or_default() {
        "" => return Err(Reason::Consistent),
        text => at_least(text)?,
    };
    Ok(Decision::Get(freshness))
}

/// semantics.md §1.6.1 and §1.6.2. `named` says whether the selector requires one name.
fn list(options: ListOptions, named: bool) -> Result<Decision, Reason> {
    if options.send_initial_events.is_some() {
        return Err(Reason::Options);
    }
    if !options.continue_token.is_empty() {
        return Err(Reason::Paging);
    }
    let limited = options.limit > 0;
    let mut single = false;
    let freshness =
        match (options.resource_version.as_str(), options.resource_version_match.as_str()) {
            ("", "") => return Err(Reason::Consistent),
            ("", _) => return Err(Reason::Options),
            // The limit does not count.
            ("0", "" | "NotOlderThan") => Freshness::Any,
            (text, "") if limited => {
                at_least(text)?;
                return Err(Reason::Exact);
            }
            (text, "NotOlderThan") if limited => {
                single = true;
                at_least(text)?
            }
            (text, "" | "NotOlderThan") => at_least(text)?,
            (_, "Exact") => return Err(Reason::Exact),
            _ => return Err(Reason::Options),
        };
    if single && !named {
        return Err(Reason::Paging);
    }
    Ok(Decision::List { freshness, single, options })
}

/// semantics.md §1.4 and §1.6.4.
fn watch(options: ListOptions) -> Result<Decision, Reason> {
    let matched = options.resource_version_match.as_str();
    let consistent_match = match options.send_initial_events {
        None => matched.is_empty(),
        Some(_) => matched == "NotOlderThan",
    };
    if !consistent_match || !options.continue_token.is_empty() {
        return Err(Reason::Options);
    }
    let start = match (options.resource_version.as_str(), options.send_initial_events) {
        ("", None | Some(true)) => Start::State(Freshness::Consistent),
        ("", Some(false)) => return Err(Reason::Consistent),
        ("0", None | Some(true)) => Start::State(Freshness::Any),
        ("0", Some(false)) => Start::Now,
        (text, Some(true)) => Start::State(at_least(text)?),
        (text, None | Some(false)) => Start::After(positive(text)?),
    };
    let timeout = match options.timeout_seconds {
        None | Some(0) => None,
        // The upstream ends such a watch at once, in its own way.
        Some(seconds) => {
            Some(Duration::from_secs(u64::try_from(seconds).map_err(|_| Reason::Options)?))
        }
    };
    Ok(Decision::Watch(
        WatchPlan {
            start,
            asks_watch_list: options.send_initial_events.is_some(),
            bookmarks: options.allow_watch_bookmarks,
            timeout,
        },
        options,
    ))
}

fn at_least(text: &str) -> Result<Freshness, Reason> {
    if text == "0" { Ok(Freshness::Any) } else { positive(text).map(Freshness::NotOlderThan) }
}

fn positive(text: &str) -> Result<ResourceVersion, Reason> {
    ResourceVersion::parse(text).filter(|parsed| parsed.0 > 0).ok_or(Reason::Options)
}

/// client-go sends its own time-out along. One that Go can't read is a 400, which the upstream words (semantics.md §1.3).
fn check_timeout(query: &Query) -> Result<(), Reason> {
    match query.first("timeout") {
        Some(text) if !is_go_duration(text) => Err(Reason::Options),
        _ => Ok(()),
    }
}

/// The plain forms of Go's durations, such as `30s` and `1m30s`. What else Go may read is forwarded.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let after_digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = rest.len() - after_digits.len();
        let after_unit =
            ["ms", "s", "m", "h"].iter().find_map(|unit| after_digits.strip_prefix(unit));
        match after_unit {
            Some(after) if (1..=DURATION_DIGITS_MAX).contains(&digits) => rest = after,
            _ => return false,
        }
    }
    !text.is_empty()
}

/// Whether the path is the very one under which the upstream serves this resource. Anything else (a namespaced object asked for
/// without its namespace, a cluster-scoped one within some) is the upstream's 404.
fn is_canonical(path: &str, request: &ResourceRequest, resource: &ApiResource) -> bool {
    let lone_name = !request.name_lifted && !request.name.is_empty();
    if resource.namespaced && request.namespace.is_empty() && lone_name {
        return false;
    }
    let scope = if resource.namespaced && !request.namespace.is_empty() {
        Scope::Namespace(request.namespace.as_str().into())
    } else {
        Scope::Cluster
    };
    let collection = request.gvr.collection_path(&scope);
    match path.strip_prefix(collection.as_str()) {
        Some("") => !lone_name,
        Some(rest) => lone_name && rest.strip_prefix('/') == Some(&request.name),
        None => false,
    }
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
