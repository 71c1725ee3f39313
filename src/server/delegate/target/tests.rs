//! Paths, names, namespaces and selectors bound to a resource (`docs/semantics.md` §3.7, §6.1,
//! §6.2).

use http::{Method, Request};

use super::*;
use crate::api::resource::{GroupVersionResource, built_in};

fn resource(gvr: (&str, &str, &str), namespaced: bool) -> ApiResource {
    let gvr = GroupVersionResource::new(gvr.0, gvr.1, gvr.2);
    ApiResource { namespaced, ..built_in(gvr, "Kind") }
}

fn resolve(uri: &str, resource: &ApiResource) -> Result<Target, Reason> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let info = RequestInfo::parse(&Method::GET, path, query);
    let options = match info.verb {
        Verb::Get => None,
        _ => Some(ListOptions::decode(&info.query).unwrap()),
    };
    let (parts, ()) = Request::builder().uri(uri).body(()).unwrap().into_parts();
    Target::resolve(&parts, &info, options.as_ref(), resource)
}

/// Each open watch keeps its selectors, so their length is bounded, in every mode.
#[test]
fn a_request_with_a_very_long_selector_is_forwarded() {
    let pods = resource(("", "v1", "pods"), true);
    let values = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Vec<_>>();
    let labels = |count: usize| format!("labelSelector=app+in+({})", values(count).join(","));
    let terms = |count: usize| format!("labelSelector={}", values(count).join(","));
    let fields =
        |count: usize| format!("fieldSelector={}", vec!["metadata.name!=x"; count].join(","));
    let selectors: [&dyn Fn(usize) -> String; 3] = [&labels, &terms, &fields];
    for select in selectors {
        for watch in ["", "watch=1&"] {
            let path = |count| format!("/api/v1/pods?{watch}{}", select(count));
            assert!(resolve(&path(100), &pods).is_ok(), "{}", path(100));
            assert_eq!(resolve(&path(1_000), &pods).unwrap_err(), Reason::Selector);
        }
    }
}

/// The character stands in JSON for any byte that is not UTF-8.
#[test]
fn a_field_selector_with_the_replacement_character_is_forwarded() {
    let secrets = resource(("", "v1", "secrets"), true);
    for (selector, is_served) in [
        ("type%3Dt", true),
        ("type!%3D%C3%BC", true),
        ("type%3Dt%EF%BF%BD", false),
        ("type!%3Dt%EF%BF%BD", false),
        ("metadata.name%3D%EF%BF%BD", false),
    ] {
        let target = resolve(&format!("/api/v1/secrets?fieldSelector={selector}"), &secrets);
        assert_eq!(target.err(), (!is_served).then_some(Reason::Selector), "{selector}");
    }
}

#[test]
fn only_the_canonical_path_is_served() {
    let pods = resource(("", "v1", "pods"), true);
    let nodes = resource(("", "v1", "nodes"), false);
    let namespaces = resource(("", "v1", "namespaces"), false);
    let deployments = resource(("apps", "v1", "deployments"), true);
    let custom = resource(("example.com", "v1", "namespaces"), false);
    let custom_namespaced = resource(("example.com", "v1", "namespaces"), true);
    for (uri, resource) in [
        ("/api/v1/pods", &pods),
        ("/api/v1/namespaces/a/pods", &pods),
        ("/api/v1/namespaces/a/pods/p", &pods),
        ("/api/v1/pods?fieldSelector=metadata.name%3Dp", &pods),
        ("/api/v1/nodes/n", &nodes),
        ("/api/v1/namespaces", &namespaces),
        ("/api/v1/namespaces/a", &namespaces),
        ("/apis/apps/v1/deployments", &deployments),
        ("/apis/example.com/v1/namespaces", &custom),
        ("/apis/example.com/v1/namespaces?fieldSelector=metadata.name%3Da", &custom),
        ("/apis/example.com/v1/namespaces/a/namespaces", &custom_namespaced),
        ("/apis/example.com/v1/namespaces/a/namespaces/b", &custom_namespaced),
        ("/api/v1/pods/", &pods),
        ("/api/v1/namespaces/a/pods/p/", &pods),
        ("/api/v1/watch/pods", &pods),
        ("/api/v1/watch/namespaces/a/pods/p", &pods),
        ("/api/v1/watch/namespaces/a/pods/", &pods),
        ("/api/v1/watch/nodes/n", &nodes),
        ("/api/v1/watch/namespaces/a", &namespaces),
        ("/apis/apps/v1/watch/namespaces/watch/deployments/watch", &deployments),
    ] {
        assert!(resolve(uri, resource).is_ok(), "{uri}");
    }
    for (uri, resource) in [
        ("/api/v1/pods/p", &pods),
        ("/api/v1/namespaces/a/nodes", &nodes),
        ("/api/v1/namespaces/a/nodes/n", &nodes),
        ("/api/v1/namespaces/a/namespaces/a", &namespaces),
        ("/api/v1/watch/pods/p", &pods),
        ("/api/v1/watch/namespaces/a/nodes", &nodes),
        // kube-apiserver reads the name as a namespace, too, which only the core's resource allows.
        ("/apis/example.com/v1/namespaces/a", &custom),
        ("/apis/example.com/v1/watch/namespaces/a", &custom),
        ("/apis/example.com/v1/namespaces/a/namespaces/b", &custom),
        ("/apis/example.com/v1/namespaces/a", &custom_namespaced),
    ] {
        assert_eq!(resolve(uri, resource).unwrap_err(), Reason::Path, "{uri}");
    }
}

#[test]
fn selectors_narrow_the_filter() {
    let pods = resource(("", "v1", "pods"), true);
    let nodes = resource(("", "v1", "nodes"), false);
    let filter = |uri: &str, resource| resolve(uri, resource).unwrap().filter;

    let cluster_filter = filter("/api/v1/pods?fieldSelector=metadata.namespace%3Da", &pods);
    assert_eq!(cluster_filter.namespace.as_deref(), Some("a"));
    let namespace_filter =
        filter("/api/v1/namespaces/b/pods?fieldSelector=metadata.namespace%3Da", &pods);
    assert_eq!(namespace_filter.namespace.as_deref(), Some("b"));
    assert!(!namespace_filter.fields.is_empty(), "the contradictory fields must match nothing");
    let volumes = resource(("", "v1", "persistentvolumes"), false);
    let cluster =
        filter("/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Da", &volumes);
    assert_eq!(cluster.namespace, None);

    let name = "fieldSelector=metadata.name%3Dp";
    let single = |uri: &str, resource| resolve(uri, resource).unwrap().is_single(resource);
    assert!(single(&format!("/api/v1/namespaces/a/pods?{name}"), &pods));
    assert!(single(&format!("/api/v1/nodes?{name}"), &nodes));
    assert!(!single(&format!("/api/v1/pods?{name}"), &pods));

    let upper = filter("/api/v1/pods?fieldSelector=metadata.namespace%3DA", &pods);
    assert_eq!(upper.namespace, None, "no namespace can have that name");
    let next = filter("/api/v1/pods?fieldSelector=metadata.namespace%3Da&continue=x", &pods);
    assert_eq!(next.namespace, None, "the token's key is one of the whole cluster");
    let contradiction = "fieldSelector=metadata.name%3Dq,metadata.name%3Dp";
    let first = filter(&format!("/api/v1/namespaces/a/pods?{contradiction}"), &pods);
    assert_eq!(first.name.as_deref(), Some("p"));
    for illegal in ["a%2Fb", "a%25b", "..", ""] {
        let list = format!("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D{illegal}");
        assert_eq!(filter(&list, &pods).name, None, "{illegal}");
        assert!(!single(&list, &pods), "{illegal}");
    }

    let watch = "/api/v1/watch/namespaces/a/pods/p?fieldSelector=";
    for (selector, fits) in [
        ("", true),
        (",", true),
        ("metadata.name%3Dp", true),
        ("metadata.name%3D%3Dp,status.phase%3DRunning", true),
        ("metadata.name%3Dq", false),
        ("metadata.name!%3Dq", false),
        ("status.phase%3DRunning", false),
    ] {
        assert_eq!(resolve(&format!("{watch}{selector}"), &pods).is_ok(), fits, "{selector}");
    }

    let range = "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')";
    for (selector, is_one) in [("", false), (range, true)] {
        let filter = filter(&format!("/api/v1/pods?shardSelector={selector}"), &pods);
        assert_eq!(filter.shard.is_some(), is_one, "{selector}");
    }
    for bad in ["labelSelector=a%3D%3D%3Db", "fieldSelector=spec.nope%3Dx", "shardSelector=x"] {
        let uri = format!("/api/v1/pods?{bad}");
        assert_eq!(resolve(&uri, &pods).unwrap_err(), Reason::Selector, "{bad}");
    }
}
