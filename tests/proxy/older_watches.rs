//! Watches from resourceVersions below the cache: after a restart of Weir, and when somebody else's
//! read has started the cache further ahead. Each streams, or gets a 410, within seconds
//! and for a few requests upstream (docs/decisions/older-watches.md).

use std::time::Duration;

use futures::future::join_all;
use weir::config::seams::Seams;
use weir::simulator::{Action, Simulator, SimulatorOptions};

use crate::client::{Call, Watch};
use crate::harness::{Proxy, configmap, pod, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const WATCHES: usize = 100;
/// The list and watch of the cache, with what shows the form of its bookmarks, and some rounds of a
/// watch and a list for older watches.
const REQUESTS_MAX: u64 = 20;

/// Creates, changes and deletes config maps. Returns the resourceVersions from before each write.
fn write(upstream: &Simulator) -> Vec<u64> {
    let api = upstream.store();
    let mut before = Vec::new();
    for number in 0..90 {
        before.push(api.revision());
        let name = format!("cm-{}", number % 20);
        match number / 20 % 3 {
            0 => drop(api.create(configmap("ns2", &name, number)).unwrap()),
            1 => drop(api.update(configmap("ns2", &name, number)).unwrap()),
            _ => api.delete("v1", "configmaps", "ns2", &name).unwrap(),
        }
        if number % 7 == 0 {
            // Other resources move the resourceVersion on.
            api.create(pod("ns1", &format!("other-{number}"), "n")).unwrap();
        }
    }
    before
}

fn watch_path(after: u64, selector: &str) -> String {
    format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={after}{selector}")
}

/// Opens watches at random ones of these resourceVersions, and compares them with the upstream's.
async fn assert_all_stream(proxy: &Proxy, before: &[u64]) {
    let plain = proxy.plain();
    let crowd = (0..WATCHES).map(|number| {
        let after = before[fastrand::usize(..before.len())];
        let selector = ["", "&labelSelector=app%3Deven"][number % 2];
        async move {
            let path = watch_path(after, selector);
            let watch = Watch::open(plain, &Call::get(&path)).await;
            (path, watch)
        }
    });
    let mut watches = join_all(crowd).await;
    let requests = proxy.upstream.requests();
    let upstream = requests.count("watch", "configmaps") + requests.count("list", "configmaps");
    assert!(upstream <= REQUESTS_MAX, "{upstream} requests: {:?}", requests.counts());
    proxy.upstream.store().create(configmap("ns1", "the-last-one", 0)).unwrap();
    let events = |mut frames: Vec<String>| {
        frames.retain(|frame| !frame.contains("BOOKMARK"));
        frames
    };
    for (path, watch) in &mut watches {
        assert_eq!((watch.status.as_u16(), watch.cache()), (200, "hit"), "{path}");
        let direct = proxy.watch_direct(path).await.until("the-last-one").await;
        assert_eq!(events(watch.until("the-last-one").await), events(direct), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_older_watches_stream_although_the_cache_began_later() {
    let proxy = Proxy::seeded().await;
    let before = write(&proxy.upstream);
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.requests().reset();
    assert_all_stream(&proxy, &before).await;
    assert_eq!(proxy.metric("weir_forward_budget_exhausted_total", &[]).await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_watches_at_random_resource_versions_stream_after_a_restart() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let before = write(&upstream);
    // A Weir that has just started: the crowd is what it sees first.
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.upstream.requests().reset();
    assert_all_stream(&proxy, &before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_before_the_upstreams_history_gets_a_410() {
    let proxy = Proxy::seeded().await;
    let lost = write(&proxy.upstream);
    proxy.upstream.compact();
    let oldest = proxy.upstream.store().revision();
    proxy.upstream.store().create(configmap("ns1", "after", 1)).unwrap();
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.requests().reset();
    let plain = proxy.plain();
    let crowd = lost.iter().map(|after| async move {
        let call = Call::get(&watch_path(*after, ""));
        Watch::open(plain, &call).await
    });
    for mut watch in join_all(crowd).await {
        let frames = watch.rest().await;
        assert_eq!(frames.len(), 1, "{frames:?}");
        assert!(frames[0].contains("too old resource version"), "{frames:?}");
        assert!(frames[0].contains(r#""code":410"#), "{frames:?}");
    }
    // The newest of them is still there.
    let mut watch = proxy.watch(&watch_path(oldest, "")).await;
    assert_eq!(watch.cache(), "hit");
    assert_eq!(watch.until("after").await.len(), 1);
    let requests = proxy.upstream.requests();
    assert!(requests.count("watch", "configmaps") <= 6, "{:?}", requests.counts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_begins_in_the_past_answers_other_reads_when_it_has_caught_up() {
    let proxy = Proxy::seeded().await;
    // The very first cache detects whether the upstream has watch-lists.
    proxy.warm("/api/v1/nodes").await;
    let before = proxy.upstream.store().revision();
    proxy.upstream.store().create(configmap("ns1", "shown", 1)).unwrap();
    // The events after that are on their way for a second.
    let delay = Action::Delay(Duration::from_secs(1));
    proxy.upstream.faults().add("watch", "configmaps", 1, delay);
    let plain = proxy.plain();
    let path = watch_path(before, "");
    let opened = tokio::spawn(async move { Watch::open(plain, &Call::get(&path)).await });
    eventually("the cache begins", async || {
        let requests = proxy.upstream.requests();
        requests.count("list", "configmaps") + requests.count("watch", "configmaps") > 0
    })
    .await;
    let reads = [
        format!("{CONFIGMAPS}?resourceVersion=0"),
        format!("{CONFIGMAPS}?resourceVersion={before}"),
        "/api/v1/namespaces/ns1/configmaps/shown?resourceVersion=0".to_owned(),
    ];
    let answers = join_all(reads.iter().map(|path| proxy.get(path))).await;
    for (path, answer) in reads.iter().zip(&answers) {
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.text().contains(r#""name":"shown""#), "{path}: {}", answer.text());
    }
    assert_eq!(answers[0].cache(), "hit");
    let mut watch = opened.await.unwrap();
    assert_eq!(watch.cache(), "hit");
    assert_eq!(watch.until("shown").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_begins_in_the_past_catches_up_while_its_resource_is_quiet() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/nodes").await;
    let before = proxy.upstream.store().revision();
    proxy.upstream.store().create(pod("ns1", "elsewhere", "n")).unwrap();
    let watch = proxy.watch(&watch_path(before, "")).await;
    assert_eq!(watch.cache(), "hit");
    let list = proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert_eq!(list.cache(), "hit");
    let at: u64 = list.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(at > before, "{at} {before}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forwarded_watch_ends_for_its_client_to_resume_when_a_cache_can_take_over() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let seams = Seams { warmup_timeout: Duration::from_millis(300), ..Seams::default() };
    let proxy = Proxy::before_with(seams, upstream, "", |config| {
        config.cache.forward_budget = 2;
    })
    .await;
    proxy.upstream.faults().add("list", "configmaps", 1000, Action::Status(503));
    let now = proxy.upstream.store().revision();
    let state = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion=0");
    let mut from_now = proxy.watch(&watch_path(now, "")).await;
    let mut from_state = proxy.watch(&state).await;
    for watch in [&from_now, &from_state] {
        assert_eq!(watch.cache(), "forward; reason=not-ready");
    }
    assert_eq!(proxy.watch(&watch_path(now, "")).await.status, 429);
    proxy.upstream.store().create(configmap("ns1", "while-forwarded", 1)).unwrap();
    from_now.until("while-forwarded").await;
    from_state.until("while-forwarded").await;

    proxy.upstream.faults().clear();
    proxy.warm(CONFIGMAPS).await;
    // Both end cleanly, and their permits are free.
    assert!(from_now.rest().await.iter().all(|frame| frame.contains("BOOKMARK")));
    assert!(from_state.rest().await.iter().all(|frame| frame.contains("BOOKMARK")));
    let seen = proxy.upstream.store().revision();
    let mut resumed = proxy.watch(&watch_path(seen, "")).await;
    assert_eq!(resumed.cache(), "hit");
    proxy.upstream.store().create(configmap("ns1", "afterwards", 1)).unwrap();
    assert_eq!(resumed.until("afterwards").await.len(), 1);
}
