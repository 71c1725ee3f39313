//! The target of a read: the form of its response and its filter, which depend on the resource that
//! discovery describes.

use std::sync::Arc;

use http::request::Parts;

use crate::api::list_options::ListOptions;
use crate::api::media_type::{self, Form};
use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::api::selector::shard::ShardSelector;
use crate::cache::core::watcher::WatchFilter;
use crate::server::delegate::reason::Reason;

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) form: Form,
    pub(crate) filter: WatchFilter,
}

impl Target {
    /// Binds a read to its resource. `options` are those of a list or watch; they are `None` for a
    /// GET.
    pub(crate) fn resolve(
        parts: &Parts,
        info: &RequestInfo,
        options: Option<&ListOptions>,
        resource: &ApiResource,
    ) -> Result<Self, Reason> {
        let request = info.resource.as_ref().ok_or(Reason::NonResource)?;
        if !is_canonical(parts.uri.path(), request, resource) {
            return Err(Reason::Path);
        }
        let watch = info.verb == Verb::Watch;
        let form = media_type::negotiate(&parts.headers, &info.query, resource.shape, info.verb)
            .ok_or(Reason::Form)?;
        let (labels, fields) = match options {
            None => Default::default(),
            Some(options) => (
                LabelSelector::parse(&options.label_selector).ok_or(Reason::Selector)?,
                FieldSelector::parse(&options.field_selector, &resource.selectable)
                    .ok_or(Reason::Selector)?,
            ),
        };
        if fields.is_ambiguous() {
            return Err(Reason::Selector);
        }
        let shard = options.map(shard).transpose()?.flatten();
        let shard_bytes = shard.as_ref().map_or(0, |shard| shard.weight_bytes());
        if labels.weight_bytes() + fields.weight_bytes() + shard_bytes > SELECTORS_BYTES_MAX {
            return Err(Reason::Selector);
        }
        let representation = resource.representation(form);
        if !fields.values().all(|index| resource.selectable.is_readable(index, representation)) {
            return Err(Reason::Selector);
        }
        // `/watch/…/<name>` refuses a field selector that does not name the same object
        // (`docs/semantics.md` §6.2).
        let named_by_path = !request.name.is_empty() && !request.name_lifted;
        if watch
            && named_by_path
            && !fields.is_empty()
            && fields.required_name() != Some(&*request.name)
        {
            return Err(Reason::Selector);
        }
        let namespace = if !resource.namespaced {
            None
        } else if request.namespace.is_empty() {
            options.and_then(|options| narrowed_to(&fields, options)).map(Arc::from)
        } else {
            Some(Arc::clone(&request.namespace))
        };
        let name = (!request.name.is_empty()).then(|| Arc::clone(&request.name));
        Ok(Self {
            form,
            filter: WatchFilter { namespace, name, labels, fields, shard, visible: None },
        })
    }

    /// Whether the target matches at most one object, so that the upstream looks it up instead of
    /// listing (`docs/semantics.md` §1.6.2).
    pub(crate) fn is_single(&self, resource: &ApiResource) -> bool {
        self.filter.name.is_some() && (self.filter.namespace.is_some() || !resource.namespaced)
    }
}

/// Returns the shard selector. An empty one is none; every other one that is not in the plain form
/// is forwarded.
fn shard(options: &ListOptions) -> Result<Option<Arc<ShardSelector>>, Reason> {
    match &*options.shard_selector {
        "" => Ok(None),
        text => ShardSelector::parse(text).map(Arc::new).map(Some).ok_or(Reason::Selector),
    }
}

/// Returns the namespace that a cluster-wide request is narrowed to. The upstream serves
/// `metadata.namespace=x` as that namespace's path, although it authorizes the whole cluster
/// (`docs/semantics.md` §3.7). With a continue token it reads the token's key as one of the whole
/// cluster, although the page before was of the namespace; Weir does the same (seen on 1.36.2;
/// `docs/semantics.md` §3.4).
fn narrowed_to<'a>(fields: &'a FieldSelector, options: &ListOptions) -> Option<&'a str> {
    fields.required_namespace().filter(|name| options.continue_token.is_empty() && is_label(name))
}

/// Whether `name` is a valid name of a namespace (RFC 1123). No object is in any other.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= LABEL_BYTES_MAX
        && name.bytes().next().is_some_and(inner)
        && name.bytes().next_back().is_some_and(inner)
        && name.bytes().all(|byte| inner(byte) || byte == b'-')
}

/// Whether the path is one under which the upstream serves this resource: the path of the
/// collection, with or without a name, with or without `watch` after the version, with or without a
/// slash at the end. For any other path (a namespaced object without its namespace, a
/// cluster-scoped one within a namespace) the upstream returns its 404.
fn is_canonical(path: &str, request: &ResourceRequest, resource: &ApiResource) -> bool {
    let is_named_by_path = !request.name_lifted && !request.name.is_empty();
    if resource.namespaced && request.namespace.is_empty() && is_named_by_path {
        return false;
    }
    // kube-apiserver reads `namespaces/<name>` as within a namespace in every group, and serves
    // only the core's resource so.
    let is_of_core = request.gvr.group.is_empty();
    if !resource.namespaced && !request.namespace.is_empty() && !is_of_core {
        return false;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(rest) = below_collection(path, request, resource) else { return false };
    match rest {
        "" => !is_named_by_path,
        rest => is_named_by_path && rest.strip_prefix('/') == Some(&*request.name),
    }
}

/// Returns the rest of `path` after the path of its collection
/// ([`GroupVersionResource::collection_path`], with `watch` after the version if the request has
/// it). The collection's path is compared by segment, and not built.
///
/// [`GroupVersionResource::collection_path`]:
/// crate::api::resource::GroupVersionResource::collection_path
fn below_collection<'a>(
    path: &'a str,
    request: &ResourceRequest,
    resource: &ApiResource,
) -> Option<&'a str> {
    let gvr = &request.gvr;
    let segment = |path: &'a str, text: &str| path.strip_prefix('/')?.strip_prefix(text);
    let mut rest = match &*gvr.group {
        "" => segment(path, "api")?,
        group => segment(segment(path, "apis")?, group)?,
    };
    rest = segment(rest, &gvr.version)?;
    if request.watch_prefix {
        rest = segment(rest, "watch")?;
    }
    if resource.namespaced && !request.namespace.is_empty() {
        rest = segment(segment(rest, "namespaces")?, &request.namespace)?;
    }
    segment(rest, &gvr.resource)
}

/// Limit on the memory of a request's selectors: some hundred requirements or values. A watch keeps
/// them as long as it is open, and each event is compared with them. Requests with longer ones are
/// forwarded.
const SELECTORS_BYTES_MAX: usize = 16 << 10;
const LABEL_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests;
