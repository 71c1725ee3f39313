//! What a read is about, once discovery has told of its resource.

use std::sync::Arc;

use http::request::Parts;

use crate::api::list_options::ListOptions;
use crate::api::media_type::{self, Form};
use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::cache::core::watcher::WatchFilter;
use crate::server::delegate::reason::Reason;

/// What a read is about, once its resource is known.
#[derive(Debug)]
pub(crate) struct Target {
    /// The form of the answer.
    pub(crate) form: Form,
    /// The objects meant.
    pub(crate) filter: WatchFilter,
}

impl Target {
    /// Binds a read to its resource. `options` are those of a list or watch, and `None` for a get.
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
        let representation = resource.representation(form);
        if !fields.values().all(|index| resource.selectable.is_readable(index, representation)) {
            return Err(Reason::Selector);
        }
        // `/watch/…/<name>` refuses a field selector that does not name the same object (semantics.md §6.2).
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
        Ok(Self { form, filter: WatchFilter { namespace, name, labels, fields } })
    }

    /// Whether it can match but one object, so that the upstream looks that one up instead of listing (semantics.md §1.6.2).
    pub(crate) fn is_single(&self, resource: &ApiResource) -> bool {
        self.filter.name.is_some() && (self.filter.namespace.is_some() || !resource.namespaced)
    }
}

/// `metadata.namespace=x` on a whole cluster is as that namespace's path, though the authorization stays that of the cluster
/// (semantics.md §3.7). Not so with a continue token: the upstream then reads the token's key as one of the whole cluster, although
/// the page before was of the namespace; so does Weir. (Seen on 1.36.2; semantics.md §3.4 does not tell.)
fn narrowed_to<'a>(fields: &'a FieldSelector, options: &ListOptions) -> Option<&'a str> {
    fields.required_namespace().filter(|name| options.continue_token.is_empty() && is_label(name))
}

/// Whether a namespace may have such a name (RFC 1123). No object is in any other one.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= LABEL_BYTES_MAX
        && name.bytes().next().is_some_and(inner)
        && name.bytes().next_back().is_some_and(inner)
        && name.bytes().all(|byte| inner(byte) || byte == b'-')
}

/// Whether the path is one under which the upstream serves this resource: the collection's, with a name or not, with `watch` after
/// the version or not, with one slash at the end or not. Anything else (a namespaced object asked for without its namespace, a
/// cluster-scoped one within some) is the upstream's 404.
fn is_canonical(path: &str, request: &ResourceRequest, resource: &ApiResource) -> bool {
    let lone_name = !request.name_lifted && !request.name.is_empty();
    if resource.namespaced && request.namespace.is_empty() && lone_name {
        return false;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(rest) = below_collection(path, request, resource) else { return false };
    match rest {
        "" => !lone_name,
        rest => lone_name && rest.strip_prefix('/') == Some(&*request.name),
    }
}

/// What stands in a path behind its collection's path ([`GroupVersionResource::collection_path`], with `watch` after the version if the
/// request has that), which is not built for it.
///
/// [`GroupVersionResource::collection_path`]: crate::api::resource::GroupVersionResource::collection_path
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

/// The longest name of a namespace.
const LABEL_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests;
