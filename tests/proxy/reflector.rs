//! Informers through Weir get every event once and in order, and end with the true state, whatever
//! fails at the upstream and its streams.

use std::time::Duration;

use serde_json::{Value, json};
use weir::simulator::{Action, Cut, Simulator, SimulatorOptions};

use crate::client::Next;
use crate::harness::{Proxy, configmap, seed};
use crate::informer::{Informer, Objects, key};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Steps of the random history, with a fault at about every tenth.
const STEPS: usize = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_converge_despite_broken_connections_and_refusals() {
    let proxy = Proxy::seeded().await;
    let informers = Informers::start(&proxy);
    informers.converge(&proxy).await;
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..STEPS {
        write(&proxy, &mut random);
        let faults = proxy.upstream.faults();
        match random.u8(..60) {
            0 => faults.cut_watches(None, Cut::Clean),
            1 => faults.cut_watches(Some("configmaps"), Cut::Reset),
            2 => faults.cut_watches(Some("configmaps"), Cut::MidFrame),
            3 => faults.add("watch", "configmaps", 1, Action::Status(500)),
            4 => faults.add("list", "configmaps", 1, Action::Status(503)),
            5 => faults.add("*", "configmaps", 1, Action::Reset),
            6 => faults.add("watch", "configmaps", 1, Action::Delay(Duration::from_millis(30))),
            _ => {}
        }
        if step % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    proxy.upstream.faults().clear();
    informers.converge(&proxy).await;
    informers.assert_content();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_converge_after_their_history_is_gone() {
    let proxy = Proxy::seeded().await;
    let informers = Informers::start(&proxy);
    informers.converge(&proxy).await;
    proxy.until_watched("configmaps").await;
    let mut random = fastrand::Rng::with_seed(8);
    proxy.upstream.faults().add("watch", "configmaps", 1, Action::TooManyRequests(1));
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Reset);
    (0..50).for_each(|_| write(&proxy, &mut random));
    proxy.upstream.compact();
    (0..50).for_each(|_| write(&proxy, &mut random));
    informers.converge(&proxy).await;
    let relists = proxy.metric("weir_reflector_relists_total", &[r#"cause="expired""#]).await;
    assert!(relists >= 1.0, "the upstream said 410");

    // The 410 event in the middle of a stream.
    proxy.upstream.faults().add("watch", "configmaps", 1, Action::Gone);
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Clean);
    (0..50).for_each(|_| write(&proxy, &mut random));
    informers.converge(&proxy).await;
    (0..50).for_each(|_| write(&proxy, &mut random));
    informers.converge(&proxy).await;
    informers.assert_content();
}

/// A client that watches through Weir does not notice that the upstream lost its history: it gets
/// the changes as events, and a bookmark to resume from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_continue_through_a_relist_with_the_changes() {
    const WATCHES: usize = 50;
    let proxy = Proxy::seeded().await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "relist"}});
    proxy.upstream.store().create(namespace).unwrap();
    proxy.upstream.store().create(configmap("relist", "gone", 1)).unwrap();
    proxy.upstream.store().create(configmap("relist", "changed", 1)).unwrap();
    let path = "/api/v1/namespaces/relist/configmaps";
    proxy.warm(CONFIGMAPS).await;
    proxy.catch_up(CONFIGMAPS).await;
    proxy.until_watched("configmaps").await;
    let held = proxy.upstream.store().revision();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let from = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={held}");
        let watch = proxy.watch(&from).await;
        assert_eq!(watch.cache(), "hit");
        watches.push(watch);
    }

    // Weir learns of these changes only by the list.
    proxy.upstream.faults().add("watch", "configmaps", 1, Action::TooManyRequests(1));
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Reset);
    let store = proxy.upstream.store();
    store.create(configmap("relist", "passing", 1)).unwrap();
    store.delete("v1", "configmaps", "relist", "passing").unwrap();
    store.delete("v1", "configmaps", "relist", "gone").unwrap();
    store.update(configmap("relist", "changed", 2)).unwrap();
    store.create(configmap("relist", "new", 1)).unwrap();
    let mut last = None;
    proxy.upstream.compact();

    for watch in &mut watches {
        let mut received = Vec::new();
        for _ in 0..4 {
            let event = watch.event().await;
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            received.push(format!("{} {name}", event["type"].as_str().unwrap()));
            last = event["object"]["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        }
        assert_eq!(received, ["DELETED gone", "MODIFIED changed", "ADDED new", "BOOKMARK "]);
    }
    // A watch can resume from the bookmark, but not from within the relist.
    let last: u64 = last.unwrap().parse().unwrap();
    let from = |from: u64| format!("{path}?watch=1&resourceVersion={from}");
    let mut again = proxy.watch(&from(last)).await;
    let mut within = proxy.watch(&from(held + 1)).await;
    assert_eq!(again.cache(), "hit");
    let expired = within.event().await;
    let message = format!("too old resource version: {} ({last})", held + 1);
    assert_eq!(expired["object"]["message"], message);
    store.create(configmap("relist", "after", 1)).unwrap();
    for watch in watches.iter_mut().chain([&mut again]) {
        assert_eq!(watch.event().await["object"]["metadata"]["name"], "after");
    }
    let relists = proxy.metric("weir_reflector_relists_total", &[r#"cause="expired""#]).await;
    assert!(relists >= 1.0, "the upstream said 410");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_converge_over_a_restart_and_reads_go_on_meanwhile() {
    let proxy = Proxy::seeded().await;
    let informers = Informers::start(&proxy);
    informers.converge(&proxy).await;
    let mut open =
        proxy.watch("/api/v1/configmaps?watch=1&resourceVersion=0&labelSelector=x%3Dy").await;
    proxy.upstream.stop();
    let gone = async || proxy.get("/version").await.status == 503;
    eventually("the upstream is away", gone).await;
    let answer = proxy.get("/version").await;
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(answer.json()["kind"], "Status");
    let list = proxy.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(list.status, 200);
    assert!(list.cache().starts_with("hit"), "{}", list.cache());

    let mut random = fastrand::Rng::with_seed(9);
    (0..100).for_each(|_| write(&proxy, &mut random));
    proxy.upstream.restart().await.unwrap();
    informers.converge(&proxy).await;
    informers.assert_content();
    // The watch survived all of it.
    let mut news = configmap("ns1", "news", 0);
    news["metadata"]["labels"] = json!({"x": "y"});
    proxy.upstream.store().create(news).unwrap();
    assert_eq!(open.event().await["object"]["metadata"]["name"], "news");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_hanging_upstream_watches_leave_reads_correct() {
    let proxy = Proxy::seeded().await;
    let informers = Informers::start(&proxy);
    informers.converge(&proxy).await;
    let mut random = fastrand::Rng::with_seed(10);
    proxy.upstream.faults().add("watch", "configmaps", 1, Action::Garbage);
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Clean);
    (0..50).for_each(|_| write(&proxy, &mut random));
    informers.converge(&proxy).await;
    informers.assert_content();

    proxy.upstream.faults().add("watch", "configmaps", 1000, Action::Hang);
    proxy.upstream.faults().cut_watches(Some("configmaps"), Cut::Reset);
    let list = proxy.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(list.status.as_u16(), 200);
    assert!(list.cache().starts_with("hit"), "with its age, once the watch has failed");
    // The upstream answers what the cache cannot know.
    proxy.upstream.store().create(configmap("ns1", "unseen", 1)).unwrap();
    let at = proxy.upstream.store().revision();
    let list = proxy.get(&format!("/api/v1/configmaps?resourceVersion={at}")).await;
    assert_eq!(list.cache(), "forward; reason=not-fresh");
    assert!(list.text().contains("unseen"));
    proxy.upstream.faults().clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewound_history_ends_every_stream_and_raises_the_alarm() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let saved = upstream.snapshot();
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.warm(CONFIGMAPS).await;
    proxy.warm("/api/v1/pods").await;
    let informers = Informers::start(&proxy);
    informers.converge(&proxy).await;
    let mut random = fastrand::Rng::with_seed(11);
    (0..50).for_each(|_| write(&proxy, &mut random));
    proxy.catch_up(CONFIGMAPS).await;
    let from = proxy.upstream.store().revision();
    let mut watches = Vec::new();
    for resource in ["configmaps", "pods"] {
        let path = format!("/api/v1/{resource}?watch=1&resourceVersion={from}");
        watches.push(proxy.watch(&path).await);
    }
    assert_eq!(watches[0].cache(), "hit");

    proxy.upstream.rewind(&saved);
    for watch in &mut watches {
        assert_eq!(watch.next().await, Next::End);
    }
    eventually("the alarm", async || proxy.metric("weir_history_rewinds_total", &[]).await >= 1.0)
        .await;
    let expected = upstream_objects(&proxy, |_| true);
    eventually("the cache holds the old state", async || {
        let list = proxy.get("/api/v1/configmaps?resourceVersion=0").await;
        list.cache() == "hit" && objects_of(&list.json()) == expected
    })
    .await;
    // The cache follows the new history, also for clients that had seen more of the lost one.
    proxy.upstream.store().create(configmap("ns1", "after", 1)).unwrap();
    proxy.catch_up(CONFIGMAPS).await;
    informers.converge(&proxy).await;
    informers.assert_content();
}

/// Informers of all objects, of a namespace, and of a label selector.
struct Informers(Vec<(Informer, Wanted)>);

/// Whether an informer selects an object.
type Wanted = fn(&Value) -> bool;

impl Informers {
    fn start(proxy: &Proxy) -> Self {
        let start = |path: &str, selector: &str| Informer::start(proxy.plain(), path, selector);
        Self(vec![
            (start(CONFIGMAPS, ""), |_| true),
            (start("/api/v1/namespaces/ns1/configmaps", ""), |object| {
                object["metadata"]["namespace"] == "ns1"
            }),
            (start(CONFIGMAPS, "labelSelector=app%3Deven"), |object| {
                object["metadata"]["labels"]["app"] == "even"
            }),
        ])
    }

    /// Waits until all informers have the true state, and checks that no event was wrong.
    async fn converge(&self, proxy: &Proxy) {
        for (informer, wanted) in &self.0 {
            let expected = upstream_objects(proxy, *wanted);
            let holds = async || informer.seen().objects == expected;
            let what = "an informer holds the objects of the upstream";
            let held = tokio::time::timeout(Duration::from_secs(25), eventually(what, holds)).await;
            let seen = informer.seen();
            assert!(held.is_ok(), "{what}\n{expected:?}\n{seen:?}");
        }
    }

    fn assert_content(&self) {
        for (informer, _) in &self.0 {
            let seen = informer.seen();
            assert_eq!(seen.complaints, Vec::<String>::new());
            assert!(seen.events > 0 && seen.watches > 0, "{seen:?}");
        }
    }
}

/// One random write among a dozen names.
fn write(proxy: &Proxy, random: &mut fastrand::Rng) {
    let api = proxy.upstream.store();
    let namespace = if random.bool() { "ns1" } else { "ns1-a" };
    let name = format!("r-{}", random.u8(..6));
    let present = api.get("v1", "configmaps", namespace, &name).is_some();
    let object = configmap(namespace, &name, random.usize(..100_000));
    match (present, random.u8(..3)) {
        (false, _) => drop(api.create(object).unwrap()),
        (true, 0) => api.delete("v1", "configmaps", namespace, &name).unwrap(),
        (true, _) => drop(api.update(object).unwrap()),
    }
}

fn upstream_objects(proxy: &Proxy, wanted: Wanted) -> Objects {
    let objects = proxy.upstream.store().list("v1", "configmaps");
    objects.iter().filter(|object| wanted(object)).map(key).collect()
}

fn objects_of(list: &Value) -> Objects {
    list["items"].as_array().unwrap().iter().map(key).collect()
}
