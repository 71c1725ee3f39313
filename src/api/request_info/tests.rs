//! Tests of parsing request paths, including unusual ones.

use proptest::prelude::*;

use super::*;

fn get(path: &str, query: &str) -> RequestInfo {
    RequestInfo::parse(&Method::GET, path, query)
}

/// Formats `verb group/version/resource namespace/name/subresource`, and whether the name was
/// lifted from a selector or the path has a prefix.
fn show(info: &RequestInfo) -> String {
    let Some(resource) = &info.resource else {
        return info.verb.as_str().to_owned();
    };
    let lifted = if resource.name_lifted { " lifted" } else { "" };
    let prefix = if resource.watch_prefix { " prefix" } else { "" };
    format!(
        "{} {}/{}/{} {}/{}/{}{lifted}{prefix}",
        info.verb.as_str(),
        resource.gvr.group,
        resource.gvr.version,
        resource.gvr.resource,
        resource.namespace,
        resource.name,
        resource.subresource
    )
}

#[test]
fn paths_are_read_as_upstream() {
    let rows = [
        ("/", "other"),
        ("/healthz", "other"),
        ("/version", "other"),
        ("/api", "other"),
        ("/api/v1", "other"),
        ("/apis", "other"),
        ("/apis/apps", "other"),
        ("/apis/apps/v1", "other"),
        ("/openapi/v3/apis/apps/v1", "other"),
        ("/API/v1/pods", "other"),
        ("/metrics/a/b/c", "other"),
        ("/api/v1/pods", "list /v1/pods //"),
        ("/api/v1/pods/p", "get /v1/pods /p/"),
        ("/api/v1/nodes/n/status", "get /v1/nodes /n/status"),
        ("/api/v1/nodes/n/proxy/metrics/x", "get /v1/nodes /n/proxy"),
        ("/api/v1/namespaces", "list /v1/namespaces //"),
        ("/api/v1/namespaces/ns", "get /v1/namespaces ns/ns/"),
        ("/api/v1/namespaces/ns/status", "get /v1/namespaces ns/ns/status"),
        ("/api/v1/namespaces/ns/finalize", "get /v1/namespaces ns/ns/finalize"),
        ("/api/v1/namespaces/ns/pods", "list /v1/pods ns//"),
        ("/api/v1/namespaces/ns/pods/p", "get /v1/pods ns/p/"),
        ("/api/v1/namespaces/ns/pods/p/log", "get /v1/pods ns/p/log"),
        ("/api/v1/namespaces/ns/pods/p/log/more", "get /v1/pods ns/p/log"),
        ("/api/v1/namespaces/ns/namespaces", "list /v1/namespaces ns//"),
        ("/api/v1/namespaces/ns/status/x", "get /v1/namespaces ns/ns/status"),
        ("/apis/apps/v1/deployments", "list apps/v1/deployments //"),
        ("/apis/apps/v1/namespaces/ns/deployments", "list apps/v1/deployments ns//"),
        ("/apis/apps/v1/namespaces/ns/deployments/d", "get apps/v1/deployments ns/d/"),
        ("/apis/apps/v1/namespaces/ns/deployments/d/scale", "get apps/v1/deployments ns/d/scale"),
        ("/apis/example.com/v1alpha1/widgets", "list example.com/v1alpha1/widgets //"),
        ("/api/v1/watch/pods", "watch /v1/pods // prefix"),
        ("/api/v1/watch/namespaces/ns/pods", "watch /v1/pods ns// prefix"),
        ("/api/v1/watch/namespaces/ns/pods/p", "watch /v1/pods ns/p/ prefix"),
        ("/api/v1/watch/namespaces/ns", "watch /v1/namespaces ns/ns/ prefix"),
        ("/apis/apps/v1/watch/deployments", "watch apps/v1/deployments // prefix"),
        ("/api/v1/watch/watch", "watch /v1/watch // prefix"),
        ("/api/v1/proxy/nodes/n/stats", "proxy /v1/nodes /n/"),
        ("/api/v1/proxy/namespaces/ns/services/s/x", "proxy /v1/services ns/s/"),
        ("/api/v1/watch", "other"),
        ("/api/v1/proxy", "other"),
        ("/apis/apps/v1/watch", "other"),
        ("/apis/v1/pods", "other"),
        ("/api/v1/pods/system:a@b", "get /v1/pods /system:a@b/"),
        ("/api/v1/events", "list /v1/events //"),
        ("/api/v1/pods/", "list /v1/pods //"),
        ("/api/v1/namespaces/ns1/configmaps/cm-a/", "get /v1/configmaps ns1/cm-a/"),
        ("/api/v1/watch/", "other"),
    ];
    for (path, expected) in rows {
        let info = get(path, "");
        assert_eq!(show(&info), expected, "{path}");
        assert_eq!(info.plain_path, path != "/", "{path}");
    }
}

#[test]
fn unusual_paths_are_read_as_upstream_but_are_not_plain() {
    let rows = [
        ("//api/v1/pods", "list /v1/pods //"),
        ("/api/v1/pods//", "list /v1/pods //"),
        ("/api/v1/namespaces//configmaps", "list /v1/configmaps //"),
        ("/api/v1/namespaces/ns//p", "get /v1/ ns/p/"),
        ("/api/v1//pods", "get /v1/ /pods/"),
        ("/api/v1/pod%73", "list /v1/pods //"),
        ("/api/v1/namespaces/a%2Fb/pods", "get /v1/b a/pods/"),
        ("/api/v1/namespaces%2Fns/secrets", "list /v1/secrets ns//"),
        ("/api/v1/pods/..", "get /v1/pods /../"),
        ("/api/v1/./pods", "get /v1/. /pods/"),
        ("/api/v1/../v1/pods", "get /v1/.. /v1/pods"),
        ("/api/v1/pods;x", "list /v1/pods;x //"),
        ("/api/v1/pods\\x", "list /v1/pods\\x //"),
        ("/api/v1/pods%zz", "list /v1/pods%zz //"),
        ("/api/v1/pods%00", "list /v1/pods\0 //"),
        ("/api/v1/pods/a b", "get /v1/pods /a b/"),
        ("/api/v1/pods/é", "get /v1/pods /é/"),
        ("api/v1/pods", "list /v1/pods //"),
        ("", "other"),
        ("*", "other"),
        ("/api/v1/pods/a?b", "get /v1/pods /a?b/"),
        ("/api/v1/pods/a#b", "get /v1/pods /a#b/"),
    ];
    for (path, expected) in rows {
        let info = get(path, "");
        assert_eq!(show(&info), expected, "{path}");
        assert!(!info.plain_path, "{path}");
    }
}

#[test]
fn queries_turn_lists_into_watches_and_lift_names() {
    let rows = [
        ("watch=1", "watch /v1/pods ns//"),
        ("watch", "watch /v1/pods ns//"),
        ("watch=", "watch /v1/pods ns//"),
        ("watch=0", "list /v1/pods ns//"),
        ("watch=FALSE", "list /v1/pods ns//"),
        ("watch=0&watch=1", "list /v1/pods ns//"),
        ("Watch=1", "list /v1/pods ns//"),
        ("watch=1;a=b", "list /v1/pods ns//"),
        ("watch=1&limit=x", "watch /v1/pods ns//"),
        ("fieldSelector=metadata.name%3Dp", "list /v1/pods ns/p/ lifted"),
        ("fieldSelector=metadata.name==p", "list /v1/pods ns/p/ lifted"),
        ("watch=1&fieldSelector=metadata.name=p", "watch /v1/pods ns/p/ lifted"),
        ("fieldSelector=metadata.name=b,metadata.name=a", "list /v1/pods ns/a/ lifted"),
        ("fieldSelector=metadata.name!=a,metadata.name=b", "list /v1/pods ns/b/ lifted"),
        ("fieldSelector=metadata.name!=a", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a/b", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a%25b", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=..", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=.", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a,unknown=b", "list /v1/pods ns/a/ lifted"),
        ("fieldSelector=metadata.name=a,b", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a&limit=", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a&labelSelector=b,,c", "list /v1/pods ns//"),
        ("fieldSelector=metadata.name=a&labelSelector=b", "list /v1/pods ns/a/ lifted"),
        ("fieldSelector=spec.nodeName=n", "list /v1/pods ns//"),
    ];
    for (query, expected) in rows {
        assert_eq!(show(&get("/api/v1/namespaces/ns/pods", query)), expected, "{query}");
    }
    let named = "watch=true&fieldSelector=metadata.name=q";
    assert_eq!(show(&get("/api/v1/pods/p", named)), "get /v1/pods /p/");
    assert_eq!(show(&get("/api/v1/watch/pods", named)), "watch /v1/pods // prefix");
}

#[test]
fn methods_become_verbs() {
    let rows = [
        (Method::HEAD, "list", "get"),
        (Method::GET, "list", "get"),
        (Method::POST, "create", "create"),
        (Method::PUT, "update", "update"),
        (Method::PATCH, "patch", "patch"),
        (Method::DELETE, "deletecollection", "delete"),
        (Method::OPTIONS, "other", "other"),
        (Method::TRACE, "other", "other"),
        (Method::from_bytes(b"get").unwrap(), "other", "other"),
    ];
    for (method, collection, object) in rows {
        let lifting = "fieldSelector=metadata.name=p";
        let info = RequestInfo::parse(&method, "/api/v1/pods", lifting);
        assert_eq!(info.verb.as_str(), collection, "{method}");
        let info = RequestInfo::parse(&method, "/api/v1/pods/p", "");
        assert_eq!(info.verb.as_str(), object, "{method}");
        let info = RequestInfo::parse(&method, "/livez", "");
        assert_eq!(info.verb, Verb::Other, "{method}");
    }
}

#[test]
fn connections_and_logs_have_their_own_verb_label() {
    let rows = [
        ("/api/v1/namespaces/ns/pods/p/attach", "connect", true),
        ("/api/v1/nodes/n/proxy/metrics", "connect", true),
        ("/api/v1/namespaces/ns/pods/p/exec", "connect", true),
        ("/api/v1/namespaces/ns/pods/p/portforward", "connect", true),
        ("/api/v1/namespaces/ns/services/s/proxy/x", "connect", true),
        ("/api/v1/namespaces/ns/pods/p/log", "log", true),
        ("/api/v1/namespaces/ns/pods/log", "get", false),
        ("/api/v1/namespaces/ns/pods/p/status", "get", false),
        ("/api/v1/watch/pods", "watch", true),
        ("/api/v1/proxy/nodes/n", "proxy", true),
        ("/api/v1/pods", "list", false),
        ("/exec", "other", false),
    ];
    for (path, label, long_running) in rows {
        let info = get(path, "");
        assert_eq!(info.verb_label(), label, "{path}");
        assert_eq!(info.is_long_running(), long_running, "{path}");
    }
}

proptest! {
    #[test]
    fn any_request_is_read_without_panic(
        path in "(/(api|apis|v1|namespaces|watch|proxy|status|[a-z]{0,2}|%2[fF]|%[0-9a-z]{0,2}|\\.|;|é)){0,8}/?|\\PC{0,40}",
        query in "(watch|fieldSelector|labelSelector|limit|[a-z%;&=]){0,6}=?[a-z=.,!%/]{0,12}|\\PC{0,40}",
    ) {
        let info = get(&path, &query);
        if info.plain_path {
            prop_assert!(!path.contains(['%', ';', '\\']) && !path.contains("//"));
            prop_assert!(path.len() > 1 && path.starts_with('/'));
        }
    }

    /// Compares with a second implementation that checks each segment.
    #[test]
    fn plain_paths_have_whole_segments(path in "(/|\\.|a|~|-|%|;|é){0,8}") {
        let segments = path.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let whole = segments.is_some_and(|rest| rest.split('/').all(|name| !["", ".", ".."].contains(&name)));
        let expected = whole && !path.contains(['%', ';', 'é']);
        prop_assert_eq!(get(&path, "").plain_path, expected, "{}", path);
    }

    /// A plain path can be rebuilt from its parsed form, so that a cache key can stand for a path.
    #[test]
    fn a_plain_collection_path_survives_its_parsing(
        group in "(|apps|example\\.com)",
        resource in "[a-v]{1,8}",
        namespace in "(|[a-z]{1,8})",
    ) {
        use crate::resource::Scope;

        let gvr = GroupVersionResource::new(&group, "v1", &resource);
        prop_assume!(!["status", "finalize", "proxy", "namespaces"].contains(&resource.as_str()));
        let scope = match namespace.as_str() {
            "" => Scope::Cluster,
            namespace => Scope::Namespace(namespace.into()),
        };
        let info = get(&gvr.collection_path(&scope), "");
        prop_assert!(info.plain_path);
        let request = info.resource.unwrap();
        prop_assert_eq!(request.gvr, gvr);
        prop_assert_eq!(&*request.namespace, namespace);
        prop_assert_eq!(info.verb, Verb::List);
    }
}

#[test]
fn the_scope_is_that_of_the_api_servers_metrics() {
    let scope = |method: Method, path: &str, query: &str| {
        RequestInfo::parse(&method, path, query).scope().as_str()
    };
    for (method, path, query, expected) in [
        (Method::GET, "/api/v1/namespaces/a/pods/x", "", "resource"),
        (Method::GET, "/api/v1/namespaces/a/pods", "", "namespace"),
        (Method::GET, "/api/v1/pods", "watch=1", "cluster"),
        (Method::GET, "/api/v1/nodes", "fieldSelector=metadata.name%3Dx", "resource"),
        (Method::POST, "/api/v1/namespaces/a/pods", "", "resource"),
        (Method::DELETE, "/api/v1/namespaces/a/pods", "", "namespace"),
        (Method::GET, "/version", "", ""),
    ] {
        assert_eq!(scope(method, path, query), expected, "{path}");
    }
}
