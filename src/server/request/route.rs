//! The pattern of a request's path, which names its span.
//!
//! A pattern contains no name, namespace or selector. It contains the group, version and resource
//! only if discovery knows them, since a client may write anything there.

use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};

/// Returns the pattern. `is_known` is whether discovery knows the requested resource.
pub(crate) fn route(info: &RequestInfo, is_known: bool) -> String {
    match (&info.resource, &info.non_resource) {
        (Some(resource), _) => resource_route(info.verb, resource, is_known),
        (None, Some(other)) => path_route(&other.path),
        (None, None) => OTHER.to_owned(),
    }
}

fn resource_route(verb: Verb, request: &ResourceRequest, is_known: bool) -> String {
    let gvr = &request.gvr;
    let (group, version, resource) = match is_known {
        true => (&*gvr.group, &*gvr.version, &*gvr.resource),
        false => ("{group}", "{version}", "{resource}"),
    };
    let mut route = match gvr.group.is_empty() {
        true => format!("/api/{version}"),
        false => format!("/apis/{group}/{version}"),
    };
    match verb {
        Verb::Proxy => route.push_str("/proxy"),
        _ if request.watch_prefix => route.push_str("/watch"),
        _ => {}
    }
    if !request.namespace.is_empty() && &*gvr.resource != "namespaces" {
        route.push_str("/namespaces/{namespace}");
    }
    route.push('/');
    route.push_str(resource);
    if !request.name.is_empty() && !request.name_lifted {
        route.push_str("/{name}");
    }
    if !request.subresource.is_empty() {
        let subresource =
            SUBRESOURCES.iter().find(|subresource| **subresource == request.subresource);
        route.push('/');
        route.push_str(subresource.unwrap_or(&"{subresource}"));
    }
    route
}

fn path_route(path: &str) -> String {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let route = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (None, ..) => "/",
        (Some("api"), None, ..) => "/api",
        (Some("api"), Some(_), None, _) => "/api/{version}",
        (Some("apis"), None, ..) => "/apis",
        (Some("apis"), Some(_), None, _) => "/apis/{group}",
        (Some("apis"), Some(_), Some(_), None) => "/apis/{group}/{version}",
        (Some("openapi"), Some("v2"), None, _) => "/openapi/v2",
        (Some("openapi"), Some("v3"), None, _) => "/openapi/v3",
        (Some("openapi"), Some("v3"), ..) => "/openapi/v3/{path}",
        (Some(first), None, ..) => {
            match PATHS.iter().find(|root| root.trim_start_matches('/') == first) {
                Some(served) => served,
                None => OTHER,
            }
        }
        (Some("healthz"), ..) => "/healthz/{check}",
        (Some("livez"), ..) => "/livez/{check}",
        (Some("readyz"), ..) => "/readyz/{check}",
        _ => OTHER,
    };
    route.to_owned()
}

const OTHER: &str = "/{path}";
/// Paths of the API server that are no resource's.
const PATHS: [&str; 5] = ["/version", "/healthz", "/livez", "/readyz", "/metrics"];
/// The subresources of Kubernetes. Those of aggregated API servers may have any name.
const SUBRESOURCES: [&str; 15] = [
    "approval",
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "finalize",
    "log",
    "portforward",
    "proxy",
    "resize",
    "scale",
    "status",
    "token",
    "rollback",
];

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn route_of(target: &str, is_known: bool) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        route(&RequestInfo::parse(&Method::GET, path, query), is_known)
    }

    #[test]
    fn a_pattern_has_the_resource_and_no_names() {
        for (target, pattern) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api/v1/namespaces/shop/pods", "/api/v1/namespaces/{namespace}/pods"),
            ("/api/v1/namespaces/shop/pods/web", "/api/v1/namespaces/{namespace}/pods/{name}"),
            (
                "/api/v1/namespaces/shop/pods/web/log?container=c",
                "/api/v1/namespaces/{namespace}/pods/{name}/log",
            ),
            ("/api/v1/namespaces/shop", "/api/v1/namespaces/{name}"),
            ("/api/v1/namespaces/shop/status", "/api/v1/namespaces/{name}/status"),
            ("/api/v1/pods?fieldSelector=metadata.name%3Dweb&labelSelector=a", "/api/v1/pods"),
            ("/api/v1/watch/namespaces/shop/pods", "/api/v1/watch/namespaces/{namespace}/pods"),
            (
                "/apis/apps/v1/namespaces/shop/deployments/web/secretive",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/{subresource}",
            ),
        ] {
            assert_eq!(route_of(target, true), pattern, "{target}");
        }
        let unknown = route_of("/apis/a.example/v1/namespaces/b/cs/d", false);
        assert_eq!(unknown, "/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}");
        assert_eq!(route_of("/api/v1/secretive", false), "/api/{version}/{resource}");
    }

    #[test]
    fn other_paths_are_known_or_all_the_same() {
        for (target, pattern) in [
            ("/", "/"),
            ("/api", "/api"),
            ("/api/v1", "/api/{version}"),
            ("/apis/apps", "/apis/{group}"),
            ("/apis/apps/v1", "/apis/{group}/{version}"),
            ("/openapi/v2", "/openapi/v2"),
            ("/openapi/v3/apis/apps/v1", "/openapi/v3/{path}"),
            ("/version", "/version"),
            ("/readyz", "/readyz"),
            ("/livez/etcd", "/livez/{check}"),
            ("/logs/secretive", "/{path}"),
            ("/secretive", "/{path}"),
            ("/metrics/secretive", "/{path}"),
        ] {
            assert_eq!(route_of(target, false), pattern, "{target}");
        }
    }
}
