//! The traffic class of a forwarded request.

use http::Method;

use crate::api::list_options::decode_bool;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::Scope;
use crate::upstream::TrafficClass;

/// Returns the traffic class of a request. Long-lived streams use their own connections.
pub(super) fn traffic_class(info: &RequestInfo, upgrade: bool) -> TrafficClass {
    if upgrade {
        return TrafficClass::Upgrade;
    }
    let subresource = info.resource.as_ref().map(|resource| &*resource.subresource);
    let long_lived = match (info.verb, subresource) {
        (Verb::Watch | Verb::Proxy, _) => true,
        (_, Some("proxy" | "attach" | "exec" | "portforward")) => true,
        (_, Some("log")) => decode_bool(info.query.first("follow")),
        _ => false,
    };
    if long_lived { TrafficClass::Stream } else { TrafficClass::Request }
}

/// Whether a request is a read of objects, which has no effect. kube-apiserver takes any method
/// below `/watch/` for a watch; another API server may not.
pub(super) fn is_read(method: &Method, info: &RequestInfo) -> bool {
    let subresource = info.resource.as_ref().map(|resource| &*resource.subresource);
    method.is_safe()
        && matches!(info.verb, Verb::Get | Verb::List | Verb::Watch)
        && matches!(subresource, Some("" | "status" | "scale"))
}

/// Whether the API server answers a request within its own `--request-timeout`, or at once because
/// it is a watch. Other long-running requests take as long as a kubelet or another backend: that of
/// a silent log sends no head before the first line.
pub(super) fn is_answered_in_time(info: &RequestInfo) -> bool {
    info.verb == Verb::Watch || !info.is_long_running()
}

/// Whether the backend of a proxied request answers it, and may refuse a credential of its own.
pub(super) fn is_proxied(info: &RequestInfo) -> bool {
    info.verb == Verb::Proxy
        || info.resource.as_ref().is_some_and(|resource| resource.subresource == "proxy")
}

/// Whether a read may show an older state than an earlier one did: kube-apiserver answers it from
/// its watch cache, and another API server may be behind.
pub(super) fn may_be_stale(info: &RequestInfo) -> bool {
    let parameter = |name| info.query.first(name).unwrap_or_default();
    matches!(info.verb, Verb::Get | Verb::List)
        && info.resource.is_some()
        && !parameter("resourceVersion").is_empty()
        && parameter("resourceVersionMatch") != "Exact"
}

/// Returns the path of the collection of a read, or of a watch with an initial state, that may show
/// an older state than an earlier one did. Returns `None` for a path that must be escaped: no
/// collection has one.
pub(super) fn older_collection(info: &RequestInfo) -> Option<String> {
    let starts_anywhere =
        info.verb == Verb::Watch && info.query.first("resourceVersion") == Some("0");
    let resource = info.resource.as_ref()?;
    (starts_anywhere || may_be_stale(info))
        .then(|| {
            let scope = match &*resource.namespace {
                "" => Scope::Cluster,
                namespace => Scope::Namespace(namespace.into()),
            };
            resource.gvr.collection_path(&scope)
        })
        .filter(|path| {
            path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./".contains(&byte))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lived_requests_are_streams_and_only_those_of_objects_are_reads() {
        let classify = |method, path, query| {
            let info = RequestInfo::parse(&method, path, query);
            (traffic_class(&info, false), is_read(&method, &info))
        };
        let pod = "/api/v1/namespaces/a/pods/x";
        let of_pod = |rest| format!("{pod}/{rest}");
        let [log, proxy, exec, other] = ["log", "proxy/fire", "exec", "unheard-of"].map(of_pod);
        for (path, query, expected) in [
            (pod, "", (TrafficClass::Request, true)),
            ("/apis/apps/v1/deployments", "limit=5", (TrafficClass::Request, true)),
            ("/apis/apps/v1/namespaces/a/deployments/x/scale", "", (TrafficClass::Request, true)),
            (&*log, "", (TrafficClass::Request, false)),
            (&*log, "follow=true", (TrafficClass::Stream, false)),
            (&*proxy, "", (TrafficClass::Stream, false)),
            ("/api/v1/proxy/namespaces/a/pods/x/fire", "", (TrafficClass::Stream, false)),
            (&*exec, "command=ls", (TrafficClass::Stream, false)),
            (&*other, "", (TrafficClass::Request, false)),
            ("/apis/apps/v1/deployments", "watch=1", (TrafficClass::Stream, true)),
            ("/apis", "", (TrafficClass::Request, false)),
            ("/logs/kubelet.log", "", (TrafficClass::Request, false)),
        ] {
            assert_eq!(classify(Method::GET, path, query), expected, "{path}?{query}");
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(
                classify(method.clone(), pod, ""),
                (TrafficClass::Request, false),
                "{method}"
            );
        }
        let watch = "/api/v1/watch/pods";
        assert_eq!(classify(Method::GET, watch, ""), (TrafficClass::Stream, true));
        assert_eq!(classify(Method::POST, watch, ""), (TrafficClass::Stream, false));
    }

    #[test]
    fn a_kubelet_or_a_backend_may_take_as_long_as_it_likes() {
        let is_timely = |path: &str, query: &str| {
            is_answered_in_time(&RequestInfo::parse(&Method::GET, path, query))
        };
        for name in ["log", "exec", "attach", "portforward", "proxy", "proxy/fire"] {
            let path = format!("/api/v1/namespaces/a/pods/x/{name}");
            assert!(!is_timely(&path, "follow=true"), "{path}");
        }
        assert!(is_timely("/api/v1/pods", ""));
        assert!(is_timely("/api/v1/pods", "watch=1"));
        assert!(is_timely("/api/v1/namespaces/a/pods/x/status", ""));
    }

    #[test]
    fn reads_from_a_watch_cache_may_be_stale() {
        let is_stale_allowed =
            |method, path, query| may_be_stale(&RequestInfo::parse(&method, path, query));
        let pods = "/api/v1/pods";
        for (method, path, query, expected) in [
            (Method::GET, pods, "resourceVersion=0", true),
            (Method::GET, pods, "resourceVersion=7&resourceVersionMatch=NotOlderThan", true),
            (Method::GET, "/api/v1/namespaces/a/pods/x", "resourceVersion=0", true),
            (Method::GET, pods, "resourceVersion=7&resourceVersionMatch=Exact", false),
            (Method::GET, pods, "", false),
            (Method::GET, pods, "resourceVersion=", false),
            (Method::GET, pods, "watch=1&resourceVersion=0", false),
            (Method::GET, "/version", "resourceVersion=0", false),
            (Method::POST, "/api/v1/namespaces/a/pods", "resourceVersion=0", false),
        ] {
            assert_eq!(
                is_stale_allowed(method.clone(), path, query),
                expected,
                "{method} {path}?{query}"
            );
        }
    }

    #[test]
    fn reads_and_watches_that_may_be_stale_have_a_collection() {
        let collection =
            |path, query| older_collection(&RequestInfo::parse(&Method::GET, path, query));
        let pods = "/api/v1/namespaces/a/pods";
        let object = "/api/v1/namespaces/a/pods/x";
        for (path, query, expected) in [
            (pods, "resourceVersion=0", Some(pods)),
            (object, "resourceVersion=7", Some(pods)),
            ("/apis/apps/v1/deployments", "resourceVersion=0", Some("/apis/apps/v1/deployments")),
            (pods, "watch=1&resourceVersion=0", Some(pods)),
            (pods, "watch=1&resourceVersion=7", None),
            (pods, "", None),
            ("/api/v1/namespaces/a%3Fb/pods", "resourceVersion=0", None),
            ("/version", "resourceVersion=0", None),
        ] {
            assert_eq!(collection(path, query).as_deref(), expected, "{path}?{query}");
        }
    }
}
