//! The verb and the subject of a request, derived from its method, path and query as
//! kube-apiserver's `RequestInfo` is (`docs/semantics.md` §1.1).
//!
//! This is the only parser of paths. Routing, authorization, cache keys and metrics all use its
//! result, so they cannot disagree. A path that two parsers could read differently is parsed as the
//! API server parses it, but [`RequestInfo::plain_path`] is false and nothing is served from the
//! cache.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use smallvec::SmallVec;

use crate::ascii::{ByteSet, split_once};
use crate::list_options::{ListOptions, decode_bool};
use crate::query::{Query, percent_decode};
use crate::resource::GroupVersionResource;
use crate::selector::field::parse_terms;
use crate::selector::label::LabelSelector;

crate::labels! {
    /// The verb of a request, for authorization, metrics and routing.
    pub enum Verb {
        /// A read of one object.
        Get = "get",
        /// A read of a collection.
        List = "list",
        /// A stream of events.
        Watch = "watch",
        /// POST.
        Create = "create",
        /// PUT.
        Update = "update",
        /// PATCH.
        Patch = "patch",
        /// DELETE of one object.
        Delete = "delete",
        /// DELETE of a collection.
        DeleteCollection = "deletecollection",
        /// The `proxy` path prefix.
        Proxy = "proxy",
        /// Not a resource request, or a method without a verb.
        Other = "other",
    }
}

impl Verb {
    /// Returns the verb of a resource request before its name is considered.
    fn from_method(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Get,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }
}

crate::labels! {
    /// The scope of a request, as the API server's own metrics name it (`CleanScope` in
    /// apiserver `pkg/endpoints/metrics`).
    pub enum RequestScope {
        /// One object, or the creation of one.
        Resource = "resource",
        /// A collection in one namespace.
        Namespace = "namespace",
        /// A collection in all namespaces, or of a resource without namespaces.
        Cluster = "cluster",
        /// No resource.
        None = "",
    }
}

/// The resource part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Group, version and resource as in the path.
    pub gvr: GroupVersionResource,
    /// The namespace of the path; empty for none. `namespaces/<ns>` has it twice: here and as
    /// `name`. Namespace and name are shared with everything that is derived from the request (the
    /// attributes for authorization, the cache key).
    pub namespace: Arc<str>,
    /// The name in the path, or the one that the field selector `metadata.name=` gives; empty for
    /// none.
    pub name: Arc<str>,
    /// Whether `name` came from the field selector.
    pub name_lifted: bool,
    /// The subresource; empty for none.
    pub subresource: String,
    /// Whether the deprecated `/watch/` path prefix was used.
    pub watch_prefix: bool,
}

/// A request for a non-resource path, as authorization sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonResourceRequest {
    /// The path with its percent-escapes decoded, including trailing slashes.
    pub path: String,
    /// The method in lower case.
    pub verb: String,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The verb.
    pub verb: Verb,
    /// The requested resource; `None` for a non-resource path.
    pub resource: Option<ResourceRequest>,
    /// The requested non-resource path; present if `resource` is not.
    pub non_resource: Option<Box<NonResourceRequest>>,
    /// The decoded query.
    pub query: Query,
    /// Whether the path has a plain form: no percent-escape, no empty or dot segment, no `;`. One
    /// trailing slash is plain, since the API server removes it before any of its parsers read the
    /// path (`docs/semantics.md` §1.1). Only such a request may be served from the cache. A path
    /// that Weir and the API server could read differently is forwarded unchanged.
    pub plain_path: bool,
}

impl RequestInfo {
    /// Parses a request's method, raw path and raw query. Never fails: a path that is not
    /// understood is a non-resource request, and is forwarded.
    pub fn parse(method: &Method, path: &str, raw_query: &str) -> Self {
        let query = Query::parse(raw_query);
        let plain_path = is_plain(path);
        let decoded = if plain_path { Cow::Borrowed(path) } else { decode_path(path) };
        match parse_resource(method, &decoded, &query) {
            Some((verb, resource)) => {
                Self { verb, resource: Some(resource), non_resource: None, query, plain_path }
            }
            None => {
                let verb = method.as_str().to_ascii_lowercase();
                let non_resource = NonResourceRequest { path: decoded.into_owned(), verb };
                let non_resource = Some(Box::new(non_resource));
                Self { verb: Verb::Other, resource: None, non_resource, query, plain_path }
            }
        }
    }

    /// Returns the verb for a metric's label: [`Verb::as_str`], but `connect` for subresources
    /// whose requests are connections, as in kube-apiserver's own metrics, and `log` for reads of
    /// logs. kube-apiserver counts these as `GET` with the subresource `log`, and rules about its
    /// latency leave them out: a log lasts for as long as its client reads. The label is one of
    /// twelve words, whatever a client sends.
    pub fn verb_label(&self) -> &'static str {
        let subresource = self.resource.as_ref().map_or("", |resource| &resource.subresource);
        match self.verb {
            _ if CONNECT.contains(&subresource) => "connect",
            Verb::Get if subresource == LOG => "log",
            verb => verb.as_str(),
        }
    }

    /// Returns the scope of the request.
    pub fn scope(&self) -> RequestScope {
        match &self.resource {
            None => RequestScope::None,
            Some(resource) if !resource.name.is_empty() || self.verb == Verb::Create => {
                RequestScope::Resource
            }
            Some(resource) if !resource.namespace.is_empty() => RequestScope::Namespace,
            Some(_) => RequestScope::Cluster,
        }
    }

    /// Whether the API server lets the request last longer than the request time-out
    /// (`docs/semantics.md` §8.8).
    pub fn is_long_running(&self) -> bool {
        let subresource = self.resource.as_ref().map_or("", |resource| &resource.subresource);
        matches!(self.verb, Verb::Watch | Verb::Proxy)
            || subresource == LOG
            || CONNECT.contains(&subresource)
    }
}

/// Subresources whose requests are connections.
const CONNECT: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// The subresource of a pod's log.
const LOG: &str = "log";

/// The subresources of a namespace. Any other word in their position is a resource within it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["finalize", "status"];

/// Returns the verb and the resource part of a decoded path; `None` for a non-resource path.
fn parse_resource(method: &Method, path: &str, query: &Query) -> Option<(Verb, ResourceRequest)> {
    let path = path.trim_matches('/');
    let (group, rest) = match split_once(path, b'/')? {
        ("api", rest) => ("", rest),
        ("apis", rest) => split_once(rest, b'/')?,
        _ => return None,
    };
    let (version, mut rest) = split_once(rest, b'/')?;
    let mut segments: SmallVec<[&str; SEGMENTS_USUAL]> = SmallVec::new();
    while let Some((segment, next)) = split_once(rest, b'/') {
        segments.push(segment);
        rest = next;
    }
    segments.push(rest);
    let mut segments = segments.as_slice();
    let prefix = *segments.first()?;
    let prefix_verb = match prefix {
        "watch" => Some(Verb::Watch),
        "proxy" => Some(Verb::Proxy),
        _ => None,
    };
    if prefix_verb.is_some() {
        segments = segments.get(1..)?;
    }
    // `/api/v1/watch` alone is an error of the API server: it names no resource.
    let first = *segments.first()?;
    let namespace = if first == "namespaces" { segments.get(1).copied() } else { None };
    let within = segments.get(2).is_some_and(|third| !NAMESPACE_SUBRESOURCES.contains(third));
    let parts = if first == "namespaces" && within { segments.get(2..)? } else { segments };
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    let subresource = if prefix_verb == Some(Verb::Proxy) { "" } else { part(2) };
    let mut request = ResourceRequest {
        gvr: GroupVersionResource::new(group, version, part(0)),
        namespace: namespace.unwrap_or_default().into(),
        name: part(1).into(),
        name_lifted: false,
        subresource: subresource.to_owned(),
        watch_prefix: prefix_verb == Some(Verb::Watch),
    };
    let verb = prefix_verb.unwrap_or_else(|| Verb::from_method(method));
    let verb = match verb {
        Verb::Get if request.name.is_empty() => collection_verb(&mut request, query),
        Verb::Delete if request.name.is_empty() => Verb::DeleteCollection,
        other => other,
    };
    Some((verb, request))
}

/// Returns whether a `get` without a name is a list or a watch, and sets the name that its field
/// selector gives. A query that the API server cannot decode gives none.
fn collection_verb(request: &mut ResourceRequest, query: &Query) -> Verb {
    let verb = if decode_bool(query.first("watch")) { Verb::Watch } else { Verb::List };
    if let Some(name) = lifted_name(query) {
        request.name_lifted = true;
        request.name = name.into();
    }
    verb
}

/// Returns the name that `metadata.name=` requires, if it may be part of a path. Like the API
/// server, reads the selector before its labels are resolved (`docs/semantics.md` §6.1).
fn lifted_name(query: &Query) -> Option<String> {
    // Most lists have none.
    query.first("fieldSelector")?;
    let options = ListOptions::decode(query)?;
    LabelSelector::parse(&options.label_selector)?;
    let name = parse_terms(&options.field_selector)?
        .into_iter()
        .find(|term| term.equal && term.label == "metadata.name")?
        .value;
    let legal = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    legal.then_some(name)
}

/// Whether all parsers read a path in the same way.
fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    // The number of bytes of the current segment, and how many of them are dots.
    let (mut length, mut dots) = (0_usize, 0_usize);
    let is_name = |length, dots| length > 0 && (length > 2 || dots < length);
    for byte in rest.strip_suffix('/').unwrap_or(rest).bytes() {
        match byte {
            b'/' if is_name(length, dots) => (length, dots) = (0, 0),
            b'.' => (length, dots) = (length + 1, dots + 1),
            _ if SEGMENT_BYTES.contains(byte) => length += 1,
            _ => return false,
        }
    }
    is_name(length, dots)
}

/// The other bytes of a segment (RFC 3986), without `;`, at which some servers see parameters.
static SEGMENT_BYTES: ByteSet = ByteSet::alphanumeric_and(b"-_~:@!$&'()*+,=");

/// How many segments below the version are stored without an allocation: `namespaces`, its name,
/// the resource, its name, a subresource and some more.
const SEGMENTS_USUAL: usize = 8;

/// Decodes percent-escapes as Go's `URL.Path` has them. A path that Go would reject is returned
/// unchanged; the server refuses it.
fn decode_path(path: &str) -> Cow<'_, str> {
    match percent_decode(path.as_bytes(), false) {
        Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests;
