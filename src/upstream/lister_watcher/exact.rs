//! Reads parts of a collection at exactly one resourceVersion, with which a cache is compared
//! (`docs/decisions/verified-caches.md`).
//!
//! A page is read by a continue token that Weir makes itself: any key as its start, and any
//! resourceVersion. Each page is thus a request of its own, at the resourceVersion that the cache
//! has at that moment, and no walk has to last.

use crate::api::continue_token::ContinueToken;
use crate::api::resource::{ApiResource, Representation, Scope};
use crate::codec::object::Key;
use crate::upstream::fetch::encode_query;
use crate::upstream::lister_watcher::list_watch::{ExactPart, ExactRequest, ListRequest};
use crate::upstream::lister_watcher::query::list_query;

/// Returns the path and query of a request to a collection in a scope.
pub(super) fn path_and_query(
    request: &ExactRequest,
    resource: &ApiResource,
    scope: &Scope,
) -> String {
    let exact = ListRequest {
        resource_version: Some(request.at),
        resource_version_match: "Exact",
        ..ListRequest::default()
    };
    match &request.part {
        ExactPart::Page { after: None, limit } => {
            let query = list_query(&ListRequest { limit: Some(*limit), ..exact });
            format!("{}?{query}", resource.gvr.collection_path(scope))
        }
        ExactPart::Page { after: Some(after), limit } => {
            let continue_token = ContinueToken::encode(request.at, relative(after, scope));
            let limit = Some(*limit);
            let page = ListRequest { limit, continue_token, ..ListRequest::default() };
            let query = list_query(&page);
            format!("{}?{query}", resource.gvr.collection_path(scope))
        }
        ExactPart::Object(key) => {
            // In a namespace's collection the name leaves one key, which is read from etcd.
            let scope = match key.namespace() {
                "" => Scope::Cluster,
                namespace => Scope::Namespace(namespace.into()),
            };
            let name = encode_query(&format!("metadata.name={}", key.name()));
            let query = list_query(&exact);
            format!("{}?fieldSelector={name}&{query}", resource.gvr.collection_path(&scope))
        }
    }
}

/// Returns the representation of the response to a request of a cache's own representation.
pub(super) fn representation(request: &ExactRequest, configured: Representation) -> Representation {
    if request.is_whole { configured } else { Representation::MetadataProtobuf }
}

/// Returns a key relative to the root of a list in a scope.
fn relative<'a>(key: &'a Key, scope: &Scope) -> &'a str {
    match scope {
        Scope::Cluster => key.as_str(),
        Scope::Namespace(_) => key.name(),
    }
}

/// The largest body of a part. The metadata of 500 objects has some hundred kilobytes.
pub(super) const EXACT_BYTES_MAX: usize = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource_version::ResourceVersion;
    use crate::testing::config_maps;
    use crate::upstream::lister_watcher::list_watch::ExactServer;

    fn path(part: ExactPart, scope: &Scope) -> String {
        let at = ResourceVersion(7);
        let request = ExactRequest { at, part, is_whole: false, server: ExactServer::Own };
        path_and_query(&request, &config_maps(), scope)
    }

    #[test]
    fn a_page_is_at_one_resource_version_and_begins_after_any_key() {
        let after = Some(Key::new("ns1", "a"));
        let first = path(ExactPart::Page { after: None, limit: 5 }, &Scope::Cluster);
        assert_eq!(
            first,
            "/api/v1/configmaps?limit=5&resourceVersion=7&resourceVersionMatch=Exact"
        );
        let token = |last| ContinueToken::encode(ResourceVersion(7), last);
        let part = ExactPart::Page { after, limit: 5 };
        assert_eq!(
            path(part.clone(), &Scope::Cluster),
            format!("/api/v1/configmaps?limit=5&continue={}", token("ns1/a"))
        );
        assert_eq!(
            path(part, &Scope::Namespace("ns1".into())),
            format!("/api/v1/namespaces/ns1/configmaps?limit=5&continue={}", token("a"))
        );
    }

    #[test]
    fn one_object_is_read_by_its_name_in_its_namespace() {
        assert_eq!(
            path(ExactPart::Object(Key::new("ns1", "a")), &Scope::Cluster),
            "/api/v1/namespaces/ns1/configmaps?fieldSelector=metadata.name%3Da&resourceVersion=7&resourceVersionMatch=Exact"
        );
    }
}
