//! The return of an upstream that was away, in paused time.

use super::*;
use crate::api::resource::{GroupVersionResource, built_in};
use crate::cache::registry::Registry;
use crate::cache::script::{ScriptedSource, resource, seams};
use crate::upstream::availability::AWAY_AFTER;

/// The scripts of all resources by name.
type Scripts = parking_lot::Mutex<Vec<(String, Arc<Script>)>>;

/// Lets the upstream be away for ten minutes, in which the reflector backs off. Returns how long it
/// waits after the return.
async fn wait_after_return(resource: ApiResource) -> Duration {
    let context = context(config());
    let availability = context.availability.clone();
    let (rig, feed) = Rig::established_with(resource, context).await;
    rig.script.on_probe(10);
    availability.note_check(Instant::now(), false);
    tokio::time::sleep(AWAY_AFTER).await;
    assert!(availability.is_away());
    rig.script.refuse(Some(status(503, "away")), Some(status(503, "away")));
    drop(feed);
    tokio::time::sleep(Duration::from_secs(600)).await;
    rig.script.refuse(None, None);
    let watches = rig.script.watches.lock().len();
    rig.script.keep(rig.script.on_watch());
    let begun = Instant::now();
    availability.note_check(begun, true);
    eventually("the next watch", || rig.script.watches.lock().len() > watches).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_reflector_tries_again_within_two_seconds_of_the_return() {
    for _ in 0..20 {
        let wait = wait_after_return(config_maps()).await;
        let expected = Duration::from_millis(780)..Duration::from_millis(1620);
        assert!(expected.contains(&wait), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reflectors_of_namespaces_and_roles_try_again_before_all_others() {
    for (group, plural) in [("", "namespaces"), ("rbac.authorization.k8s.io", "roles")] {
        let needed_first = built_in(GroupVersionResource::new(group, "v1", plural), "Kind");
        for _ in 0..10 {
            let wait = wait_after_return(needed_first.clone()).await;
            let expected = Duration::from_millis(380)..Duration::from_millis(820);
            assert!(expected.contains(&wait), "{plural}: {wait:?}");
        }
    }
}

/// All caches lost their history while the upstream was away.
#[tokio::test(start_paused = true)]
async fn few_reflectors_list_at_once_and_namespaces_do_not_wait_for_the_others() {
    let names: Vec<String> = (0..40).map(|number| format!("kinds{number}")).collect();
    let mut resources: Vec<_> = names.iter().map(|name| resource(name, "Kind")).collect();
    resources.push(resource("namespaces", "Namespace"));
    let scripts = Arc::<Scripts>::default();
    let made = Arc::clone(&scripts);
    let source = ScriptedSource::new(resources, move |resource, _| {
        let script = Arc::new(Script::default());
        made.lock().push((resource.gvr.resource.to_string(), Arc::clone(&script)));
        script
    });
    let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
    let registry = Registry::with_source(Arc::new(config()), seams(), Box::new(source), metrics);
    let mut handles = Vec::new();
    for name in names.iter().map(String::as_str).chain(["namespaces"]) {
        let gvr = GroupVersionResource::new("", "v1", name);
        handles.push(registry.get(&gvr, "", Representation::Json).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    // No list is answered, so that each stays where it began.
    let begun: Vec<String> = scripts
        .lock()
        .iter()
        .filter(|(_, script)| !script.watches.lock().is_empty() || !script.lists.lock().is_empty())
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(begun.len(), 9, "{begun:?}");
    assert!(begun.iter().any(|name| name == "namespaces"), "{begun:?}");
}
