//! Objects with bytes that are not UTF-8, which an API server takes in protobuf: those that Weir
//! does not need are not read; an object whose name cannot be read is left to the API server, and
//! it alone.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::simulator::{Action, Cut, Simulator, SimulatorOptions, json_byte, string_byte};

use crate::client::{Answer, Call, Next, Watch};
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/roles";
const OF_NS1: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns1/roles";
const OF_NS2: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns2/roles";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const UNREADABLE: &str = "forward; reason=unreadable-object";

/// Two bytes that are nowhere in UTF-8.
fn odd() -> String {
    [0xff, 0xfe].map(string_byte).into_iter().collect()
}

fn role(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": namespace, "name": name},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })
}

/// Returns the response for a form, which must come from the cache and equal the upstream's.
async fn same(proxy: &Proxy, path: &str, accept: &str) -> Answer {
    let call = Call::get(path).header("accept", accept);
    let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
    assert_eq!(through.cache(), "hit", "{path} {accept}");
    assert_eq!((through.status, &through.body), (direct.status, &direct.body), "{path} {accept}");
    through
}

/// Waits until the cache of a collection has the upstream's last write, in both encodings.
async fn catch_up(proxy: &Proxy, path: &str) {
    for accept in [JSON, PROTOBUF] {
        let path = format!("{path}?resourceVersion={}", proxy.upstream.store().revision());
        let call = Call::get(&path).header("accept", accept);
        eventually("weir has it all", async || proxy.call(&call).await.cache() == "hit").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_needed_are_not_read() {
    let proxy = Proxy::seeded().await;
    catch_up(&proxy, CONFIGMAPS).await;
    let before = proxy.upstream.store().revision();
    let mut bad = configmap("ns1", "bad", 0);
    bad["metadata"]["annotations"] = json!({"odd": odd()});
    let field = format!("f:{}", json_byte(0xff));
    bad["metadata"]["managedFields"] = json!([{"manager": odd(), "operation": "Update",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}}]);
    bad["data"]["odd"] = odd().into();
    proxy.upstream.store().create(bad).unwrap();
    proxy.upstream.store().create(configmap("ns1", "late", 1)).unwrap();
    catch_up(&proxy, CONFIGMAPS).await;
    let dropping = format!("{JSON};drop=metadata.managedFields");
    for accept in [JSON, PROTOBUF] {
        for path in [
            format!("{CONFIGMAPS}?resourceVersion=0"),
            format!("{CONFIGMAPS}?resourceVersion=0&labelSelector=app%3Deven"),
            "/api/v1/namespaces/ns1/configmaps/bad?resourceVersion=0".to_owned(),
            "/api/v1/namespaces/ns1/configmaps/late?resourceVersion=0".to_owned(),
            "/api/v1/namespaces/ns1/configmaps/never?resourceVersion=0".to_owned(),
            format!("{CONFIGMAPS}?watch=1&resourceVersion={before}&timeoutSeconds=1"),
        ] {
            same(&proxy, &path, accept).await;
        }
    }
    let bad = "/api/v1/namespaces/ns1/configmaps/bad?resourceVersion=0";
    let whole = same(&proxy, bad, JSON).await;
    assert!(whole.body.windows(3).any(|part| part == b":\xff\""), "{:?}", whole.body);
    let less = proxy.call(&Call::get(bad).header("accept", &dropping)).await;
    assert!(!less.text().contains("managedFields"), "{}", less.text());
    assert_eq!(less.json()["data"]["odd"], "\u{fffd}\u{fffd}");
    same(&proxy, &format!("{bad}&pretty=1"), JSON).await;
    assert!(proxy.metric("weir_cache_stops_total", &[]).await < 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_is_not_utf8_equals_no_selector() {
    let proxy = Proxy::seeded().await;
    catch_up(&proxy, SECRETS).await;
    for (name, kind) in [("odd", odd()), ("plain", "Opaque".to_owned())] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": "ns1"}, "data": {}});
        proxy.upstream.store().create(secret).unwrap();
    }
    catch_up(&proxy, SECRETS).await;
    for accept in [JSON, PROTOBUF] {
        for (selector, count) in [("type%3DOpaque", 1), ("type!%3DOpaque", 1), ("", 2)] {
            let path = format!("{SECRETS}?resourceVersion=0&fieldSelector={selector}");
            let list = same(&proxy, &path, accept).await;
            let items = || list.json()["items"].as_array().map(Vec::len);
            assert!(accept == PROTOBUF || items() == Some(count), "{selector}");
        }
        // The replacement character may stand for anything in JSON.
        let path = format!("{SECRETS}?resourceVersion=0&fieldSelector=type%3D%EF%BF%BD%EF%BF%BD");
        let forwarded = proxy.call(&Call::get(&path).header("accept", accept)).await;
        assert_eq!(forwarded.cache(), "forward; reason=selector");
    }
}

/// The bodies of a watch that begins at a resourceVersion.
async fn events_after(proxy: &Proxy, path: &str, after: u64) -> Answer {
    let path = format!("{path}?watch=1&resourceVersion={after}&timeoutSeconds=1");
    let (through, direct) = (proxy.get(&path).await, proxy.direct(&Call::get(&path)).await);
    assert_eq!(through.body, direct.body, "{path}");
    through
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_whose_names_seem_the_same_are_left_to_the_api_server() {
    let proxy = Proxy::seeded().await;
    let store = proxy.upstream.store();
    for namespace in ["ns1", "ns2"] {
        store.create(role(namespace, "first")).unwrap();
    }
    catch_up(&proxy, ROLES).await;
    proxy.until_watched("roles").await;
    let watch = async |path: &str| {
        let watch =
            proxy.watch(&format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=60")).await;
        assert_eq!(watch.cache(), "hit");
        watch
    };
    let (mut of_cluster, mut of_ns1, mut of_ns2) =
        (watch(ROLES).await, watch(OF_NS1).await, watch(OF_NS2).await);
    let mut single = watch(OF_NS1).await;
    assert_eq!(single.event().await["object"]["metadata"]["name"], "first");
    drop(single);
    let by_name = format!("{OF_NS1}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dfirst");
    let mut by_name = proxy.watch(&by_name).await;
    let before = store.revision();
    let names = [0xff, 0xfe].map(|byte| format!("r{}", string_byte(byte)));
    for name in &names {
        store.create(role("ns1", name)).unwrap();
    }
    store.create(role("ns2", "second")).unwrap();
    let present = store.revision();

    // Watches that could show the unreadable roles end, and their clients resume at the API server.
    assert_eq!(of_cluster.rest().await.len(), 2, "the first role of each namespace");
    assert_eq!(of_ns1.rest().await.len(), 1);
    of_ns2.until("second").await;
    for path in [ROLES, OF_NS1] {
        let resumed = events_after(&proxy, path, before).await;
        assert_eq!(resumed.cache(), UNREADABLE);
        assert_eq!(resumed.text().matches("r\u{fffd}").count(), 2, "{path}");
        for query in
            ["resourceVersion=0", "resourceVersion=0&limit=1", "resourceVersion=0&labelSelector=a"]
        {
            for accept in [JSON, PROTOBUF] {
                let call = Call::get(&format!("{path}?{query}")).header("accept", accept);
                let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
                assert_eq!(through.cache(), UNREADABLE, "{path} {query}");
                assert_eq!(through.body, direct.body);
            }
        }
    }
    let list = proxy.get(&format!("{ROLES}?resourceVersion=0")).await;
    assert_eq!(list.text().matches("r\u{fffd}").count(), 2);
    // Everything else goes on.
    for accept in [JSON, PROTOBUF] {
        for path in [
            format!("{OF_NS2}?resourceVersion=0"),
            format!("{OF_NS1}/first?resourceVersion=0"),
            format!("{OF_NS1}/absent?resourceVersion=0"),
            format!("{ROLES}?resourceVersion=0&fieldSelector=metadata.namespace%3Dns2"),
            format!("{ROLES}?resourceVersion=0&fieldSelector=metadata.name%3Dfirst"),
            format!("{OF_NS2}?watch=1&resourceVersion={before}&timeoutSeconds=1"),
        ] {
            same(&proxy, &path, accept).await;
        }
    }
    let mut first = role("ns1", "first");
    first["rules"] = json!([]);
    store.update(first).unwrap();
    assert!(by_name.until(r#""rules":[]"#).await.len() <= 2, "its own events only");

    // A change in between is no event of the history.
    for name in &names {
        store.delete("rbac.authorization.k8s.io/v1", "roles", "ns1", name).unwrap();
    }
    let gone = store.revision();
    catch_up(&proxy, ROLES).await;
    for accept in [JSON, PROTOBUF] {
        same(&proxy, &format!("{ROLES}?resourceVersion=0"), accept).await;
    }
    for (after, cache) in [(before, UNREADABLE), (present, UNREADABLE), (gone, "hit")] {
        assert_eq!(events_after(&proxy, OF_NS1, after).await.cache(), cache, "{after}");
    }
    let exact = |at| format!("{OF_NS1}?resourceVersion={at}&resourceVersionMatch=Exact");
    assert_eq!(proxy.get(&exact(present)).await.cache(), UNREADABLE);
    assert_eq!(proxy.get(&exact(gone)).await.cache(), "hit");
    assert!(matches!(watch(ROLES).await.next().await, Next::Frame(_)));
    assert!(proxy.metric("weir_cache_stops_total", &[]).await < 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cache_leaves_them_out_as_well() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let odd = role("ns1", &format!("r{}", string_byte(0xff)));
    for role in [role("ns1", "first"), odd, role("ns2", "second")] {
        upstream.store().create(role).unwrap();
    }
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    for accept in [JSON, PROTOBUF] {
        let call = |path: &str| Call::get(path).header("accept", accept);
        let of_ns2 = call(&format!("{OF_NS2}?resourceVersion=0"));
        eventually("the cache is warm", async || proxy.call(&of_ns2).await.cache() == "hit").await;
        same(&proxy, &format!("{OF_NS2}?resourceVersion=0"), accept).await;
        same(&proxy, &format!("{OF_NS1}/first?resourceVersion=0"), accept).await;
        let cluster_list = call(&format!("{ROLES}?resourceVersion=0"));
        let (through, direct) =
            (proxy.call(&cluster_list).await, proxy.direct(&cluster_list).await);
        assert_eq!((through.cache(), &through.body), (UNREADABLE, &direct.body));
    }
}

/// A watch that cannot be opened, while the API server answers all else.
async fn frozen(proxy: &Proxy) {
    proxy.warm(CONFIGMAPS).await;
    proxy.until_watched("configmaps").await;
    proxy.upstream.faults().add("watch", "configmaps", u32::MAX, Action::Status(500));
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Reset);
    let backs_off = ["resource=\"configmaps\"", "state=\"backing-off\""];
    eventually("the reflector backs off", async || {
        proxy.metric("weir_reflector_state", &backs_off).await > 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_cannot_follow_shows_its_age_and_knows_of_nothing_new() {
    let proxy = Proxy::seeded().await;
    frozen(&proxy).await;
    proxy.upstream.store().create(configmap("ns1", "new", 1)).unwrap();
    let new = "/api/v1/namespaces/ns1/configmaps/new?resourceVersion=0";
    let answer = proxy.get(new).await;
    assert_eq!((answer.status.as_u16(), answer.cache()), (200, "forward; reason=not-fresh"));
    let missing = "/api/v1/namespaces/ns1/configmaps/missing?resourceVersion=0";
    assert_eq!(proxy.get(missing).await.cache(), "forward; reason=not-fresh");
    for path in [
        "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0".to_owned(),
        format!("{CONFIGMAPS}?resourceVersion=0"),
    ] {
        let hit = proxy.get(&path).await;
        let age = hit.cache().strip_prefix("hit; age=").map(str::parse::<u64>);
        assert!(matches!(age, Some(Ok(_))), "{path}: {}", hit.cache());
    }
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0&timeoutSeconds=60");
    let watch = Watch::open(proxy.plain(), &Call::new(Method::GET, &path)).await;
    assert!(watch.cache().starts_with("hit; age="), "{}", watch.cache());
    proxy.upstream.faults().clear();
    eventually("it follows again", async || proxy.get(new).await.cache() == "hit").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_cannot_follow_answers_nothing_beyond_its_staleness() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| {
        config.cache.max_staleness = Some(Duration::from_millis(100));
    })
    .await;
    frozen(&proxy).await;
    for path in [
        "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0".to_owned(),
        format!("{CONFIGMAPS}?resourceVersion=0"),
        format!("{CONFIGMAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"),
    ] {
        eventually("it is too old", async || {
            proxy.get(&path).await.cache() == "forward; reason=not-fresh"
        })
        .await;
    }
}
