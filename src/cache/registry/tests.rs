//! Tests of the registry against scripted upstreams, in paused time.

mod attempts;
mod definitions;
mod refusals;
mod verification;

use futures_util::future::join_all;

use super::*;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::{EndCause, WatchRefusal};
use crate::cache::core::watcher::{Batch, WatchFilter, WatchStart};
use crate::cache::key::CacheKey;
use crate::cache::proof;
use crate::cache::script::{
    Feed, Script, ScriptedSource, bookmark, config, listed, page, resource, seams, upsert,
};
use crate::config::VerifyMode;
use crate::config::seams::Seams;
use crate::testing::config_maps;
use crate::testing::eventually;
use crate::upstream::error::UpstreamError;

const WAIT: Duration = Duration::from_secs(10);

struct Rig {
    registry: Registry,
    source: Arc<ScriptedSource>,
    metrics: prometheus::Registry,
}

impl Rig {
    fn new(config: CacheConfig, source: Arc<ScriptedSource>) -> Self {
        Self::with(config, seams(), source)
    }

    fn with(config: CacheConfig, seams: Seams, source: Arc<ScriptedSource>) -> Self {
        let metrics = prometheus::Registry::new();
        let handles = CacheMetrics::register(&metrics).unwrap();
        let source_handle = Box::new(source.clone());
        let registry = Registry::with_source(Arc::new(config), seams, source_handle, handles);
        Self { registry, source, metrics }
    }

    async fn ready(&self, plural: &str, namespace: &str) -> Result<CacheHandle, Refusal> {
        let gvr = GroupVersionResource::new("", "v1", plural);
        self.registry.ready(&gvr, namespace, Representation::Json, WAIT).await
    }

    fn metric(&self, line: &str) -> bool {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.metrics.gather());
        text.unwrap().lines().any(|present| present.starts_with(line))
    }
}

/// A source with one resource and one script for all scopes.
fn one(script: &Arc<Script>) -> Arc<ScriptedSource> {
    let script = Arc::clone(script);
    ScriptedSource::new(vec![config_maps()], move |_, _| script.clone())
}

/// A rig whose source has one script.
fn scripted() -> (Arc<Script>, Rig) {
    let script = Arc::new(Script::default());
    let rig = Rig::new(config(), one(&script));
    (script, rig)
}

/// A source with several resources. Each has `objects` objects from the start.
fn many(names: &[&str], objects: u64) -> Arc<ScriptedSource> {
    let resources = names.iter().map(|name| resource(name, "Kind")).collect();
    ScriptedSource::new(resources, move |_, _| {
        let script = Arc::new(Script::default());
        script.keep(full(&script, objects));
        script
    })
}

fn full(script: &Script, objects: u64) -> Feed {
    let feed = script.on_watch();
    let objects = (1..=objects).map(|n| upsert(&n.to_string(), n));
    feed.send(objects.chain([bookmark(objects_end(), true)]).collect());
    feed
}

fn objects_end() -> u64 {
    1000
}

#[tokio::test(start_paused = true)]
async fn a_thousand_clients_of_a_cold_cache_cost_one_list() {
    let (script, rig) = scripted();
    let clients = join_all((0..1000).map(|_| rig.ready("configmaps", "ns")));
    let upstream = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        full(&script, 3)
    };
    let (clients, _feed) = tokio::join!(clients, upstream);
    assert!(clients.iter().all(Result::is_ok));
    assert_eq!(script.watches.lock().len(), 1);
    assert!(script.lists.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_a_response_is_not_ready() {
    let rig = Rig::new(config(), one(&Arc::new(Script::default())));
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::NotReady);
}

#[tokio::test(start_paused = true)]
async fn an_idle_cache_stops_and_one_in_use_does_not() {
    let rig = Rig::new(config(), many(&["idle", "used"], 1));
    drop(rig.ready("idle", "").await.unwrap());
    let used = rig.ready("used", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!(rig.registry.inner.caches.len(), 2);
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!(rig.registry.inner.caches.len(), 1);
    assert!(used.cache().state().is_some());
    assert!(rig.metric("weir_caches 1"));
    // Idleness is not stored as a refusal: the next request starts the cache again.
    rig.ready("idle", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_total_budget_stops_the_least_recently_used_first() {
    let small = CacheConfig { total_bytes_max: 40_000, ..config() };
    let rig = Rig::new(small, many(&["a", "b", "c", "d"], 50));
    for name in ["a", "b", "a", "c", "d"] {
        rig.ready(name, "").await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let budget = &rig.registry.inner.context.budget;
    assert_eq!(budget.excess(), 0);
    let alive: Vec<_> = rig
        .registry
        .inner
        .caches
        .to_vec()
        .iter()
        .map(|cached| cached.key.gvr.resource.to_string())
        .collect();
    assert!(alive.contains(&"d".to_owned()) && !alive.contains(&"b".to_owned()), "{alive:?}");
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_total_refuses_while_all_caches_are_in_use() {
    let small = CacheConfig { total_bytes_max: 40_000, ..config() };
    let rig = Rig::new(small, many(&["a", "b", "c", "d", "e"], 50));
    let mut held = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        held.push(rig.ready(name, "").await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.registry.inner.context.budget.excess(), 0);
    let ended = held.iter().flatten().filter(|handle| handle.cache().state().is_none()).count();
    assert!(ended + held.iter().filter(|got| got.is_err()).count() > 0);
    assert!(!rig.metric(r#"weir_cache_budget_refusals_total{budget="total"} 0"#));
}

/// Another version of the upstream may write the same object in other bytes.
#[tokio::test(start_paused = true)]
async fn a_new_version_of_the_upstream_causes_a_list() {
    let (script, rig) = scripted();
    let _feed = full(&script, 1);
    let first = rig.ready("configmaps", "").await.unwrap();
    rig.registry.inner.context.watch_list.set_unsupported();
    rig.source.version_changes.send_modify(|count| *count += 1);
    eventually("the list", || script.watches.lock().len() == 2).await;
    assert!(first.cache().state().is_some(), "the old state is served until the new is complete");
    assert!(
        script.watches.lock()[1].send_initial_events,
        "the new version may have watch-lists where the old one had none"
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_a_probe_and_reads_wait_for_a_proof() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let handle = rig.ready("configmaps", "").await.unwrap();
    script.on_probe(objects_end());
    let answers = join_all((0..500).map(|_| handle.upstream_resource_version(WAIT))).await;
    assert!(answers.iter().all(|got| *got == Ok(ResourceVersion(objects_end()))));
    assert!(script.probes() <= 2);
    // The upstream is ahead, and no event brings the cache there.
    script.on_probe(2000);
    let asked = Instant::now();
    assert_eq!(handle.upstream_resource_version(WAIT).await, Ok(ResourceVersion(2000)));
    assert_eq!(asked.elapsed(), Duration::ZERO, "only the probe is waited for");
    let ahead = ResourceVersion(2000);
    assert_eq!(handle.wait_until_fresh(ahead, WAIT).await, Err(Refusal::NotFresh));
    // An event arrives in time.
    let proof = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        feed.send(vec![upsert("new", 2000)]);
    };
    let (got, ()) = tokio::join!(handle.wait_until_fresh(ahead, WAIT), proof);
    assert_eq!(got, Ok(()));
    let beyond = ResourceVersion(3000);
    assert_eq!(handle.wait_until_fresh(beyond, WAIT).await, Err(Refusal::NotFresh));
    assert_eq!(handle.wait_until_fresh(ahead, WAIT).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_panic_affects_only_its_own_resource() {
    let source =
        ScriptedSource::new(vec![config_maps(), resource("pods", "Pod")], |resource, _| {
            let script = Arc::new(Script::default());
            if &*resource.kind == "Pod" {
                script.keep(full(&script, 1));
            } else {
                script.panic_on_watch();
            }
            script
        });
    let rig = Rig::new(config(), source);
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Unreadable);
    rig.ready("pods", "").await.unwrap();
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Unreadable);
}

#[tokio::test(start_paused = true)]
async fn warm_caches_start_without_requests_and_do_not_idle() {
    let warm = ["warm", "refused"].map(|name| GroupVersionResource::new("", "v1", name)).to_vec();
    let source = ScriptedSource::new(
        vec![resource("warm", "Kind"), resource("refused", "Kind")],
        |resource, _| {
            let script = Arc::new(Script::default());
            if &*resource.gvr.resource == "warm" {
                script.keep(full(&script, 1));
            } else {
                script.forbid();
            }
            script
        },
    );
    let rig = Rig::new(CacheConfig { warm, ..config() }, source);
    assert_eq!(rig.registry.unready(), ["v1/refused", "v1/warm"]);
    rig.registry.start_warm();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(rig.registry.unready().is_empty());
    let refusals = rig.registry.warm().into_iter().map(|(_, refusal)| refusal);
    assert_eq!(refusals.collect::<Vec<_>>(), [None, Some(Refusal::Forbidden)]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(rig.registry.inner.caches.to_vec().iter().any(|cached| cached.is_warm()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_task_and_keeps_the_last_state() {
    let rig = Rig::new(config(), many(&["a", "b"], 1));
    let handle = rig.ready("a", "").await.unwrap();
    rig.registry.start_warm();
    rig.registry.shutdown().await;
    assert!(rig.registry.inner.context.tasks.is_empty());
    assert!(handle.cache().state().is_some());
    assert_eq!(rig.ready("b", "").await.unwrap_err(), Refusal::Stopping);
}

/// A cache that is filled may not list again for days.
#[tokio::test(start_paused = true)]
async fn a_missing_watch_list_is_looked_for_again() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let handle = rig.ready("configmaps", "").await.unwrap();
    rig.registry.inner.context.watch_list.set_unsupported();
    let support = &rig.registry.inner.context.watch_list;
    assert_eq!(handle.upstream_has_watch_list(WAIT).await, Some(false));
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(script.watches.lock().len(), 1);
    // A rejection is believed for a minute: a feature gate may be switched on.
    let attempt = script.on_watch_at(1000);
    eventually("the answer", || support.last_answer() == Some(true)).await;
    eventually("its end", || !attempt.is_held()).await;
    assert!(script.watches.lock()[1].match_nothing);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_starts_again_does_not_go_back_in_time() {
    let (script, rig) = scripted();
    let gvr = config_maps().gvr;
    let at = |at| {
        let first_at = Some(ResourceVersion(at));
        rig.registry.ready_at(&gvr, "", Representation::Json, first_at, WAIT)
    };
    rig.registry.inner.context.watch_list.set_supported(Some(false));
    script.on_list(Ok(page(500, "", Vec::new())));
    script.on_probe(objects_end());
    let feed = script.on_watch();
    feed.send(vec![upsert("a", objects_end())]);
    let handle = at(500).await.unwrap();
    handle.wait_until_fresh(ResourceVersion(objects_end()), WAIT).await.unwrap();
    drop(handle);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(rig.registry.inner.caches.len() == 0);
    let _feed = full(&script, 1);
    let handle = at(500).await.unwrap();
    assert_eq!(handle.cache().state().unwrap().resource_version().0, objects_end());
    let exact = script.lists.lock().iter().filter(|list| list.resource_version.is_some()).count();
    assert_eq!(exact, 1);
}

/// A client reads from the cache of a namespace, from that of the cluster, and from the first one.
#[tokio::test(start_paused = true)]
async fn caches_of_the_cluster_and_of_a_namespace_do_not_go_back_behind_each_other() {
    let (script, rig) = scripted();
    let inner = &rig.registry.inner;
    let cache = |scope, at| {
        let gvr = config_maps().gvr;
        let key = CacheKey { gvr, representation: Representation::Json, scope };
        let create = |key| {
            let resource = Arc::new(config_maps());
            Arc::new(CachedResource::new(
                key,
                resource,
                script.clone(),
                inner.context.clone(),
                false,
            ))
        };
        let cached = inner.caches.get_or_insert(key, create).1.unwrap();
        cached.writer.fill(ResourceVersion(at));
        inner.context.tasks.spawn(proof::catch_up(cached.clone()));
        cached
    };
    let find = || inner.caches.lookup(&config_maps().gvr, "", Representation::Json).unwrap();
    let cluster = cache(Scope::Cluster, 8);
    let namespace = cache(Scope::Namespace("ns".into()), 10);
    assert!(!find().is_ready(), "it shows an older state than that of the namespace");
    cluster.apply_progress(0, ResourceVersion(20));
    eventually("the cache of the cluster has caught up", || find().is_ready()).await;
    assert!(inner.caches.stop_if(&cluster, Refusal::NotReady, |_| true));
    assert!(!namespace.is_ready(), "it shows an older state");
    namespace.apply_progress(0, ResourceVersion(20));
    eventually("the cache of the namespace has caught up", || namespace.is_ready()).await;

    let cluster = cache(Scope::Cluster, 20);
    namespace.apply_progress(0, ResourceVersion(30));
    assert!(inner.caches.stop_if(&namespace, Refusal::NotReady, |_| true));
    assert!(!cluster.is_ready(), "it shows an older state than the last cache of a namespace");
    cluster.apply_progress(0, ResourceVersion(30));
    eventually("the cache of the cluster has caught up", || cluster.is_ready()).await;
}

/// The proof listed a state that the cache itself had not reached when it stopped.
#[tokio::test(start_paused = true)]
async fn a_cache_that_starts_again_is_not_older_than_what_a_proof_showed() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let handle = rig.ready("configmaps", "").await.unwrap();
    script.on_probe(objects_end() + 5);
    script.on_list(Ok(page(objects_end() + 7, "", Vec::new())));
    tokio::time::sleep(Duration::from_millis(1)).await;
    handle.fresh_state(None, Instant::now(), WAIT).await.unwrap();
    drop(handle);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(rig.registry.inner.caches.len() == 0 && !feed.is_held());
    script.keep(script.on_watch_at(objects_end() + 9));
    let (gvr, at) = (config_maps().gvr, Some(ResourceVersion(objects_end() + 3)));
    let again = rig.registry.ready_at(&gvr, "", Representation::Json, at, WAIT).await.unwrap();
    assert_eq!(again.newest_state().unwrap().resource_version().0, objects_end() + 9);
}

#[tokio::test(start_paused = true)]
async fn a_rewind_without_a_running_cache_is_detected_by_the_next_cache() {
    let (script, rig) = scripted();
    let feed = full(&script, 3);
    drop(rig.ready("configmaps", "").await.unwrap());
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(rig.registry.inner.caches.len() == 0 && !feed.is_held());
    // The reflector verified the history while it waited for its next watch.
    let before = script.probes();

    for _ in 0..2 {
        script.keep(script.on_watch_at(400));
    }
    script.on_probe(450);
    let handle = rig.ready("configmaps", "").await.unwrap();
    assert_eq!(handle.cache().state().unwrap().resource_version().0, 400);
    assert!(rig.metric("weir_history_rewinds_total 1"));
    let start = |at| handle.cache().watch(WatchFilter::default(), WatchStart::After(at));
    let expired = start(ResourceVersion(399)).unwrap_err();
    assert!(matches!(expired, WatchRefusal::Expired { began_after: false, .. }), "{expired:?}");
    for (at, lost) in [(400, false), (420, false), (450, false), (451, true), (2000, true)] {
        assert_eq!(handle.is_lost(ResourceVersion(at), WAIT).await, lost, "{at}");
    }
    let probes = script.probes() - before - 1;
    assert_eq!(probes, 4, "one confirmed the rewind, and what the cache has reached needs none");
    // After another start there is no second report, and the cache does not start from a
    // resourceVersion that may belong to the lost history.
    drop(handle);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(rig.registry.inner.caches.len() == 0);
    rig.registry.inner.context.watch_list.set_supported(Some(false));
    script.keep(script.on_watch_at(460));
    let at = Some(ResourceVersion(455));
    let gvr = config_maps().gvr;
    let again = rig.registry.ready_at(&gvr, "", Representation::Json, at, WAIT);
    assert_eq!(again.await.unwrap().cache().state().unwrap().resource_version().0, 460);
    assert!(rig.metric("weir_history_rewinds_total 1"));
}

#[tokio::test(start_paused = true)]
async fn without_a_response_the_highest_lost_resource_version_decides() {
    let (script, rig) = scripted();
    script.keep(script.on_watch_at(400));
    let handle = rig.ready("configmaps", "").await.unwrap();
    let (below, above) = (ResourceVersion(500), ResourceVersion(501));
    rig.registry.inner.context.history.observe(below);
    assert!(!handle.is_lost(below, WAIT).await, "no history was lost yet");
    assert_eq!(script.probes(), 0);
    script.keep(script.on_watch_at(400));
    rig.registry.inner.context.history.rewind();
    assert!(handle.is_lost(below, WAIT).await);
    assert!(!handle.is_lost(above, WAIT).await);
}

#[tokio::test(start_paused = true)]
async fn a_reload_limits_the_histories_of_running_caches() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let handle = rig.ready("configmaps", "").await.unwrap();
    let history = || handle.cache().state().unwrap().history().weight();
    feed.send((1001..1021).map(|at| upsert("1", at)).collect());
    eventually("the events are applied", || history() > 0).await;
    let limit = history() / 2;
    rig.registry.reconfigure(CacheConfig { history_bytes_max: limit, ..config() });
    assert!(history() > 0 && history() <= limit, "{} of {limit}", history());
    feed.send(vec![upsert("1", 1021)]);
    eventually("the next event is applied", || {
        handle.cache().state().unwrap().resource_version().0 == 1021
    })
    .await;
    assert!(history() <= limit, "{} of {limit}", history());
}

/// Shorter histories free bytes before a smaller total applies: no cache that fits is stopped.
#[tokio::test(start_paused = true)]
async fn a_reload_that_lowers_histories_and_the_total_stops_no_cache_that_fits() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let handle = rig.ready("configmaps", "").await.unwrap();
    let state = || handle.cache().state().unwrap();
    feed.send((1001..1021).map(|at| upsert("1", at)).collect());
    let context = &rig.registry.inner.context;
    eventually("the events are accounted", || state().resource_version().0 == 1020).await;
    let (weight, history) = (state().weight(), state().history().weight());
    rig.registry.reconfigure(CacheConfig {
        history_bytes_max: history / 2,
        total_bytes_max: weight - history / 3,
        ..config()
    });
    assert_eq!(context.budget.excess(), 0);
}
