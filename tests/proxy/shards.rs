//! Reads by a shard selector (KEP-5866) come from the cache, if every API server knows them.

use futures_util::future::join_all;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Answer, Call};
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

async fn with(shard_selectors: bool) -> Proxy {
    let options = SimulatorOptions { shard_selectors, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |_| {}).await
}

/// Returns the parameter for one of some equal parts of all hashes.
fn shard(field: &str, number: u128, parts: u128) -> String {
    format!("shardSelector={}", range(field, number, parts))
}

fn range(field: &str, number: u128, parts: u128) -> String {
    let bound = |number: u128| format!("0x{:016x}", (number << 64) / parts);
    let (start, end) = (bound(number), bound(number + 1));
    format!("shardRange(object.metadata.{field},'{start}','{end}')")
}

/// Returns Weir's answer, which must equal the upstream's but for the cache status.
async fn equal(proxy: &Proxy, path: &str, accept: &str) -> Answer {
    let call = Call::get(path).header("accept", accept);
    let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
    assert_eq!((through.status, &through.body), (direct.status, &direct.body), "{path} {accept}");
    through
}

const FORMS: [&str; 4] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_shards_equal_the_upstreams() {
    let proxy = with(true).await;
    let collections = [CONFIGMAPS, "/api/v1/namespaces/ns1/pods", "/apis/example.com/v1/widgets"];
    for collection in collections {
        proxy.warm(collection).await;
        for (form, field) in FORMS.into_iter().zip(["uid", "namespace"].into_iter().cycle()) {
            // A custom resource has no protobuf.
            if collection.contains("example.com") && form == FORMS[1] {
                continue;
            }
            let warm = format!("{collection}?resourceVersion=0");
            eventually("the form is warm", async || {
                proxy.call(&Call::get(&warm).header("accept", form)).await.cache() == "hit"
            })
            .await;
            for number in 0..4 {
                let list = format!("{warm}&{}", shard(field, number, 4));
                assert_eq!(equal(&proxy, &list, form).await.cache(), "hit", "{list} {form}");
            }
        }
    }
}

/// A page counts the objects that its selector leaves out, in 1.36 (docs/semantics.md §7.4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_shards_equal_the_upstreams() {
    let proxy = with(true).await;
    proxy.warm(CONFIGMAPS).await;
    let revision = proxy.upstream.store().revision();
    proxy.catch_up(CONFIGMAPS).await;
    for more in ["", "&labelSelector=app%3Deven"] {
        let mut names = 0;
        // One of the shards may have no object: the upstream chooses the UIDs.
        for number in 0..2 {
            let selector = shard("uid", number, 2);
            let mut page = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
            loop {
                let path = format!("{CONFIGMAPS}?limit=2&{page}&{selector}{more}");
                let answer = equal(&proxy, &path, FORMS[0]).await;
                assert_eq!(answer.cache(), "hit", "{path}");
                let list = answer.json();
                names += list["items"].as_array().unwrap().len();
                let Some(token) = list["metadata"]["continue"].as_str() else { break };
                page = format!("continue={token}");
            }
        }
        assert!(names > 0, "{more}");
        let whole = format!("{CONFIGMAPS}?resourceVersion=0{more}");
        let whole = equal(&proxy, &whole, FORMS[0]).await.json();
        assert_eq!(names, whole["items"].as_array().unwrap().len(), "{more}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_64_shards_cost_one_watch_and_show_each_change_once() {
    let proxy = with(true).await;
    let watch = |number| {
        let selector = shard("uid", number, 64);
        format!("{CONFIGMAPS}?watch=1&resourceVersion=0&timeoutSeconds=5&{selector}")
    };
    let paths: Vec<_> = (0..64).map(watch).collect();
    let through: Vec<_> = join_all(paths.iter().map(|path| proxy.watch(path))).await;
    assert!(through.iter().all(|watch| watch.cache() == "hit"));
    let requests = proxy.upstream.requests();
    // The cache answers from its first list on; its watch begins right after.
    eventually("the cache has its one watch", async || {
        let open = requests.open_watches();
        open.iter().filter(|watch| watch.path == CONFIGMAPS).count() == 1
    })
    .await;
    let recent = requests.recent();
    let probes = recent.iter().filter(|request| request.query.contains("shardSelector"));
    assert_eq!(probes.count(), 1, "whether the upstream knows them is asked once");
    let direct: Vec<_> = join_all(paths.iter().map(|path| proxy.watch_direct(path))).await;
    let store = proxy.upstream.store();
    for number in 0..32 {
        store.create(configmap("ns1", &format!("more-{number}"), number)).unwrap();
    }
    for number in 0..32 {
        store.delete("v1", "configmaps", "ns1", &format!("more-{number}")).unwrap();
    }
    let mut events = 0;
    for (mut through, mut direct) in through.into_iter().zip(direct) {
        let (through, direct) = (through.rest().await, direct.rest().await);
        assert_eq!(through, direct);
        events += through.iter().filter(|event| event.contains("more-")).count();
    }
    assert_eq!(events, 64, "each event is of one shard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_feature_and_in_other_forms_the_upstream_answers() {
    for is_known in [false, true] {
        let proxy = with(is_known).await;
        proxy.warm(CONFIGMAPS).await;
        let mut selectors = vec![
            "shardSelector=x".to_owned(),
            shard("name", 0, 2),
            format!("{}%7C%7C{}", shard("uid", 0, 2), range("namespace", 1, 2)),
        ];
        if !is_known {
            selectors.push(shard("uid", 0, 2));
        }
        for selector in selectors {
            let list = format!("{CONFIGMAPS}?resourceVersion=0&{selector}");
            let answer = equal(&proxy, &list, FORMS[0]).await;
            assert_eq!(answer.cache(), "forward; reason=selector", "{list}");
            assert_eq!(answer.status, if is_known { 500 } else { 200 }, "{list}");
        }
        let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0&{}", shard("uid", 0, 2));
        let expected = if is_known { "hit" } else { "forward; reason=selector" };
        assert_eq!(proxy.watch(&path).await.cache(), expected);
        // An empty one is none, and a GET has none.
        for path in [
            "/api/v1/configmaps?resourceVersion=0&shardSelector=",
            "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0&shardSelector=x",
        ] {
            assert_eq!(equal(&proxy, path, FORMS[0]).await.cache(), "hit", "{path}");
        }
    }
}

/// A watch that begins before the history gets 410, also of a shard without any lost event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_shard_from_before_the_history_gets_the_upstreams_410() {
    let proxy = with(true).await;
    let store = proxy.upstream.store();
    let lost = store.revision();
    store.create(configmap("ns1", "lost", 1)).unwrap();
    proxy.upstream.compact();
    let oldest = store.revision();
    proxy.warm(CONFIGMAPS).await;
    for number in 0..2 {
        let watch = |after: u64| {
            let selector = shard("uid", number, 2);
            format!("{CONFIGMAPS}?watch=1&resourceVersion={after}&timeoutSeconds=1&{selector}")
        };
        let mut gone = proxy.watch(&watch(lost)).await;
        let direct = proxy.watch_direct(&watch(lost)).await.rest().await;
        assert_eq!(gone.rest().await, direct);
        assert!(direct.len() == 1 && direct[0].contains(r#""code":410"#), "{direct:?}");
        let mut resumed = proxy.watch(&watch(oldest)).await;
        assert_eq!(resumed.cache(), "hit");
        assert!(resumed.rest().await.is_empty());
    }
}
