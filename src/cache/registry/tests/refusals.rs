//! Tests of resources that may not, or cannot, be cached.

use super::*;
use crate::config::ResourcePattern;

#[tokio::test(start_paused = true)]
async fn a_namespace_is_tried_if_the_cluster_is_forbidden() {
    let source = ScriptedSource::new(vec![config_maps()], |_, scope| {
        let script = Arc::new(Script::default());
        match scope {
            Scope::Namespace(namespace) if &**namespace == "mine" => {
                script.keep(full(&script, 1));
            }
            _ => script.forbid(),
        }
        script
    });
    let rig = Rig::new(config(), source);
    let mine = rig.ready("configmaps", "mine").await.unwrap();
    assert_eq!(*mine.scope(), Scope::Namespace("mine".into()));
    assert_eq!(rig.ready("configmaps", "yours").await.unwrap_err(), Refusal::Forbidden);
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Forbidden);
    assert!(rig.metric(
        r#"weir_reflector_state{group="",namespace="mine",representation="json",resource="configmaps",state="watching",version="v1"} 1"#
    ));
    assert!(!rig.metric(r#"weir_reflector_state{group="",namespace="yours""#));
    // Look-ups consider caches of namespaces while there are any.
    let namespaced = || rig.registry.inner.caches.namespaced();
    assert_eq!((namespaced(), rig.registry.inner.caches.len()), (1, 1));
    drop(mine);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!((namespaced(), rig.registry.inner.caches.len()), (0, 0));
}

/// When Weir's identity gets more permissions, a second cache of the same objects starts, which may
/// be a moment behind the first.
#[tokio::test(start_paused = true)]
async fn moving_from_a_namespace_to_the_cluster_never_goes_back_in_time() {
    let (cluster_script, namespace_script) =
        (Arc::new(Script::default()), Arc::new(Script::default()));
    cluster_script.forbid();
    let scripts = (Arc::clone(&cluster_script), Arc::clone(&namespace_script));
    let source = ScriptedSource::new(vec![config_maps()], move |_, scope| match scope {
        Scope::Cluster => Arc::clone(&scripts.0),
        Scope::Namespace(_) => Arc::clone(&scripts.1),
    });
    let rig = Rig::new(config(), source);
    let namespaced = full(&namespace_script, 1);
    let first = rig.ready("configmaps", "mine").await.unwrap();
    namespaced.send(vec![bookmark(2000, false)]);
    first.wait_until_fresh(ResourceVersion(2000), WAIT).await.unwrap();

    tokio::time::sleep(Duration::from_secs(61)).await;
    cluster_script.refuse(None, None);
    let cluster = full(&cluster_script, 1);
    let cluster_wide = rig.ready("configmaps", "").await.unwrap();
    assert_eq!(*cluster_wide.scope(), Scope::Cluster);
    let namespaced = rig.ready("configmaps", "mine").await.unwrap();
    assert_eq!(namespaced.cache().state().unwrap().resource_version(), ResourceVersion(2000));
    cluster.send(vec![bookmark(2000, false)]);
    cluster_wide.wait_until_fresh(ResourceVersion(2000), WAIT).await.unwrap();
    assert_eq!(*rig.ready("configmaps", "mine").await.unwrap().scope(), Scope::Cluster);
}

/// Its clients may all have a watch that is forwarded.
#[tokio::test(start_paused = true)]
async fn a_forwarded_watch_has_a_refused_cache_tried_again() {
    let script = Arc::new(Script::default());
    script.forbid();
    let rig = Rig::new(config(), one(&script));
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Forbidden);
    let gvr = config_maps().gvr;
    let takeover = |retries| rig.registry.takeover(&gvr, "", Representation::Json, retries);
    let (mut passive, mut active) = (Box::pin(takeover(false)), Box::pin(takeover(true)));
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(300 * second, &mut active).await.is_err(), "refused");
    assert!(script.lists.lock().len() + script.watches.lock().len() < 20, "rarely");
    script.refuse(None, None);
    let _feed = full(&script, 1);
    assert!(tokio::time::timeout(90 * second, &mut passive).await.is_err(), "nobody asks");
    tokio::time::timeout(90 * second, &mut active).await.unwrap();
    tokio::time::timeout(10 * second, &mut passive).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_resource_is_tried_again_soon_and_then_rarely() {
    let script = Arc::new(Script::default());
    script.forbid();
    let rig = Rig::new(config(), one(&script));
    let mut attempts = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(300) {
        let asked = script.watches.lock().len();
        assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Forbidden);
        if script.watches.lock().len() > asked {
            attempts.push(began.elapsed().as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(attempts, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
    script.refuse(None, None);
    let _feed = full(&script, 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.ready("configmaps", "").await.unwrap();
}

/// The responses may be malformed only for a while.
#[tokio::test(start_paused = true)]
async fn an_unreadable_resource_is_tried_again_soon_and_then_rarely() {
    let script = Arc::new(Script::default());
    for _ in 0..100 {
        script.on_watch_fail(UpstreamError::Malformed("not a watch event".to_owned()));
    }
    let rig = Rig::new(config(), one(&script));
    let mut attempts = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1000) {
        let asked = script.watches.lock().len();
        assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Unreadable);
        if script.watches.lock().len() > asked {
            attempts.push(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let waits = attempts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs());
    // Each attempt has a back-off of up to two seconds between its responses.
    let waits: Vec<u64> = waits.collect();
    for (wait, kept) in waits.iter().zip([5, 10, 20, 40, 80, 160, 300, 300]) {
        assert!((kept..kept + 3).contains(wait), "{waits:?}");
    }
    assert_eq!(waits.len(), 8);
}

/// A proxy before an API server may let lists pass and spoil watches. A list a minute, for
/// ever, would cost more than the cache saves.
#[tokio::test(start_paused = true)]
async fn a_resource_with_unreadable_watches_is_listed_ever_more_rarely() {
    let source = ScriptedSource::new(vec![config_maps()], |_, _| {
        let script = Arc::new(Script::default());
        full(&script, 1).fail(UpstreamError::Malformed("not a watch event".to_owned()));
        for _ in 0..9 {
            script.on_watch_fail(UpstreamError::Malformed("not a watch event".to_owned()));
        }
        script.on_probe(objects_end());
        script
    });
    let rig = Rig::new(config(), source);
    let mut lists = 0;
    let mut is_refused = true;
    for _ in 0..3600 {
        let ready = rig.ready("configmaps", "").await;
        lists += usize::from(ready.is_ok() && is_refused);
        is_refused = ready.is_err();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((10..20).contains(&lists), "{lists} lists");
}

#[tokio::test(start_paused = true)]
async fn an_excluded_or_unsuitable_resource_is_refused_without_a_request() {
    let pattern = |resource: &str| ResourcePattern {
        group: Some(String::new()),
        resource: Some(resource.to_owned()),
    };
    let config = CacheConfig {
        include: vec![
            pattern("configmaps"),
            pattern("metrics"),
            pattern("reviews"),
            pattern("nothing"),
        ],
        exclude: vec![pattern("events")],
        ..config()
    };
    let script = Arc::new(Script::default());
    let source = one(&script);
    let aggregated = ApiResource { aggregated: true, ..resource("metrics", "Metric") };
    let reviews = ApiResource { list_watchable: false, ..resource("reviews", "Review") };
    let events = resource("events", "Event");
    let pods = resource("pods", "Pod");
    source.resources.lock().extend([aggregated, reviews, events, pods].map(Arc::new));
    let rig = Rig::new(config, source);
    for (plural, refusal) in [
        ("events", Refusal::Excluded),
        ("pods", Refusal::Excluded),
        ("metrics", Refusal::Aggregated),
        ("reviews", Refusal::NotWatchable),
        ("nothing", Refusal::Unknown),
    ] {
        assert_eq!(rig.ready(plural, "").await.unwrap_err(), refusal, "{plural}");
    }
    assert!(script.watches.lock().is_empty());
}
