//! Resources that appear, change, disappear and reappear while Weir runs; and resources of another
//! API server.

use serde_json::json;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Next, Watch};
use crate::harness::{Proxy, widget, widgets};
use crate::wait::eventually;

const GADGETS: &str = "/apis/gadgets.example.com/v1/gadgets";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_resource_is_served_while_its_definition_changes() {
    let proxy = Proxy::seeded().await;
    let list = format!("{GADGETS}?resourceVersion=0");
    let unknown = proxy.get(&list).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.text(), proxy.direct(&Call::get(&list)).await.text());

    proxy.upstream.store().create(gadgets()).unwrap();
    proxy.upstream.store().create(gadget("first")).unwrap();
    proxy.warm(GADGETS).await;
    assert_eq!(names(&proxy, &list).await, ["first"]);

    // A new selectable field makes a selector valid.
    let blue = format!("{list}&fieldSelector=spec.color%3Dblue");
    assert_eq!(proxy.get(&blue).await.status, 400);
    let mut watch = proxy.watch(&format!("{GADGETS}?watch=1&resourceVersion=0")).await;
    assert_eq!(watch.cache(), "hit");
    assert!(matches!(watch.next().await, Next::Frame(_)));
    let mut changed = gadgets();
    changed["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    proxy.upstream.store().update(changed).unwrap();
    watch.rest().await;
    eventually("the new field selects", async || {
        let answer = proxy.get(&blue).await;
        answer.status == 200 && answer.cache() == "hit"
    })
    .await;
    assert_eq!(names(&proxy, &blue).await, ["first"]);

    let mut watch = proxy.watch(&format!("{GADGETS}?watch=1&resourceVersion=0")).await;
    let crd = "gadgets.gadgets.example.com";
    let api = "apiextensions.k8s.io/v1";
    proxy.upstream.store().delete(api, "customresourcedefinitions", "", crd).unwrap();
    watch.rest().await;
    eventually("it is gone", async || proxy.get(&list).await.status == 404).await;

    proxy.upstream.store().create(gadgets()).unwrap();
    proxy.upstream.store().create(gadget("second")).unwrap();
    proxy.warm(GADGETS).await;
    let direct = proxy.direct(&Call::get(&list)).await.text();
    assert_eq!(proxy.get(&list).await.text(), direct);
    assert_eq!(names(&proxy, &list).await, ["second"]);
}

/// From 1.38 on, an unknown path is a 404 in another form. A definition that follows is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_paths_are_the_upstreams_404_of_its_version() {
    for (minor, form) in [(37, "text/plain; charset=utf-8"), (38, "application/json")] {
        let options = SimulatorOptions { minor, ..SimulatorOptions::default() };
        let proxy = Proxy::before(Simulator::start(options).await.unwrap(), "", |_| {}).await;
        let list = format!("{GADGETS}?resourceVersion=0");
        for path in [&list, "/apis/gadgets.example.com/v1", "/apis/apps/v9", "/apis/apps/v1/pods"] {
            let (through, direct) = (proxy.get(path).await, proxy.direct(&Call::get(path)).await);
            assert_eq!((through.status.as_u16(), through.text()), (404, direct.text()), "{path}");
            let expected = if path.ends_with("pods") { "application/json" } else { form };
            assert_eq!(through.headers["content-type"], expected, "{path}");
        }
        proxy.upstream.store().create(gadgets()).unwrap();
        proxy.warm(GADGETS).await;
    }
}

/// Watches of a custom resource whose definition changes end as at the upstream, and resume on a
/// cache that is filled once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_definition_ends_its_watches_and_lists_once() {
    const WATCHES: usize = 30;
    let proxy = Proxy::seeded().await;
    proxy.upstream.store().create(gadgets()).unwrap();
    proxy.upstream.store().create(gadget("first")).unwrap();
    proxy.warm(GADGETS).await;
    let path = format!("{GADGETS}?watch=1&resourceVersion=0");
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut watch = proxy.watch(&path).await;
        assert_eq!(watch.cache(), "hit");
        assert!(matches!(watch.next().await, Next::Frame(_)));
        watches.push(watch);
    }

    // A change of the status alone affects no client.
    let mut same = gadgets();
    same["metadata"]["labels"] = json!({"some": "label"});
    proxy.upstream.store().update(same).unwrap();
    proxy.upstream.store().create(gadget("second")).unwrap();
    for watch in &mut watches {
        assert_eq!(watch.event().await["object"]["metadata"]["name"], "second");
    }

    let before = proxy.metric("weir_reflector_relists_total", &[r#"resource="gadgets""#]).await;
    let mut changed = gadgets();
    changed["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    proxy.upstream.store().update(changed).unwrap();
    for watch in &mut watches {
        watch.rest().await;
    }
    let list = format!("{GADGETS}?resourceVersion=0&fieldSelector=spec.color%3Dblue");
    eventually("the new definition holds", async || {
        let answer = proxy.get(&list).await;
        answer.status == 200 && answer.cache() == "hit"
    })
    .await;
    assert_eq!(names(&proxy, &list).await, ["first", "second"]);
    let mut again = proxy.watch(&path).await;
    assert_eq!(again.cache(), "hit");
    assert!(matches!(again.next().await, Next::Frame(_)));
    let after = proxy.metric("weir_reflector_relists_total", &[r#"resource="gadgets""#]).await;
    assert!(after <= before + 3.0, "{before} {after}");
}

/// A change of one resource does not affect others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_definition_affects_no_other_resource() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/apis/example.com/v1/widgets").await;
    proxy.warm("/api/v1/pods").await;
    let mut pods = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0&labelSelector=x%3Dy").await;
    let mut changed = widgets();
    changed["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    proxy.upstream.store().update(changed).unwrap();
    proxy.upstream.store().create(gadgets()).unwrap();
    proxy.warm(GADGETS).await;
    proxy.upstream.store().create(widget("ns2", "w3", "green")).unwrap();
    proxy.warm("/apis/example.com/v1/widgets").await;
    proxy.catch_up("/apis/example.com/v1/widgets").await;
    let mut news = crate::harness::pod("ns1", "news", "n");
    news["metadata"]["labels"] = json!({"x": "y"});
    proxy.upstream.store().create(news).unwrap();
    assert_eq!(pods.event().await["object"]["metadata"]["name"], "news");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregated_and_broken_groups_are_forwarded() {
    let proxy = Proxy::seeded().await;
    let metrics = "/apis/metrics.k8s.io/v1beta1";
    proxy.upstream.store().create(api_service("metrics.k8s.io", "v1beta1")).unwrap();
    proxy.upstream.store().create(api_service("broken.example.com", "v1")).unwrap();
    let verbs = json!(["get", "list", "watch"]);
    let resources = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
        "resources": [{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": verbs}]});
    let list = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []});
    proxy.upstream.add_aggregated(metrics, resources);
    proxy.upstream.add_aggregated(&format!("{metrics}/pods"), list);
    proxy.upstream.add_aggregated("/apis/broken.example.com/v1", json!("not a list of resources"));
    let path = format!("{metrics}/pods?resourceVersion=0");
    eventually("discovery knows it", async || {
        proxy.get(&path).await.cache() == "forward; reason=aggregated"
    })
    .await;
    assert_eq!(proxy.get(&path).await.text(), proxy.direct(&Call::get(&path)).await.text());
    let watch = format!("{metrics}/pods?watch=1&resourceVersion=0");
    assert_eq!(proxy.get(&watch).await.cache(), "forward; reason=aggregated");
    let broken = proxy.get("/apis/broken.example.com/v1/things?resourceVersion=0").await;
    assert!(broken.cache().starts_with("forward; reason="), "{}", broken.cache());
    // All other resources are still served, including new ones.
    proxy.warm("/api/v1/pods").await;
    proxy.upstream.store().create(gadgets()).unwrap();
    proxy.warm(GADGETS).await;
}

fn gadgets() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.gadgets.example.com"},
        "spec": {
            "group": "gadgets.example.com", "scope": "Cluster",
            "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn gadget(name: &str) -> serde_json::Value {
    json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"color": "blue"}})
}

fn api_service(group: &str, version: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}")},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": "it", "namespace": "default"}},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    })
}

async fn names(proxy: &Proxy, path: &str) -> Vec<String> {
    let list = proxy.get(path).await.json();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// It may be in any language, and has quotes and backslashes as the API server escapes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deprecation_warning_is_the_upstreams_on_hits_404s_and_watches() {
    let proxy = Proxy::seeded().await;
    let mut definition = gadgets();
    definition["spec"]["versions"][0]["deprecated"] = true.into();
    definition["spec"]["versions"][0]["deprecationWarning"] = r"umlaut ü, 日本 \\ \".into();
    proxy.upstream.store().create(definition).unwrap();
    proxy.upstream.store().create(gadget("first")).unwrap();
    proxy.warm(GADGETS).await;
    for (path, code) in [
        (format!("{GADGETS}?resourceVersion=0"), 200),
        (format!("{GADGETS}/first?resourceVersion=0"), 200),
        (format!("{GADGETS}/missing?resourceVersion=0"), 404),
        (format!("{GADGETS}?watch=1&resourceVersion=0"), 200),
    ] {
        let answer = proxy.watch(&path).await;
        let direct = Watch::open(proxy.upstream.address(), &Call::get(&path)).await;
        assert_eq!((answer.status.as_u16(), answer.cache()), (code, "hit"), "{path}");
        let warnings =
            |answer: &Watch| answer.headers.get_all("warning").iter().cloned().collect::<Vec<_>>();
        assert_eq!(warnings(&answer), warnings(&direct), "{path}");
        assert_eq!(warnings(&answer).len(), 1, "{path}");
    }
}
