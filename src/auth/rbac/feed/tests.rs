//! Decisions as they follow the upstream's watches, with scripted upstreams in paused time.

use std::collections::BTreeMap;

use prometheus::Registry as Metrics;

use super::*;
use crate::api::resource::GroupVersionResource;
use crate::api::resource::{ApiResource, built_in};
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::rbac::Rbac;
use crate::auth::rbac::metrics::RbacMetrics;
use crate::auth::user::User;
use crate::cache::metrics::CacheMetrics;
use crate::cache::script::{
    Feed as Upstream, Script, ScriptedSource, bookmark, config, seams, status,
};
use crate::codec::json;
use crate::config::RbacConfig;
use crate::upstream::lister_watcher::UpstreamEvent;

const ALICE: &str = r#","subjects":[{"kind":"User","name":"alice"}],"roleRef":{"kind":"ClusterRole","name":"pods"}"#;
const PODS: &str = r#","rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]"#;

/// RBAC with a scripted upstream for each resource.
struct Harness {
    rbac: Arc<Rbac>,
    scripts: Vec<(RbacResource, Arc<Script>)>,
    metrics: Metrics,
}

impl Harness {
    fn new() -> Self {
        let scripts: Vec<_> =
            RbacResource::ALL.map(|resource| (resource, Arc::new(Script::default()))).into();
        let scripts_of_source = scripts.clone();
        let resources = RbacResource::ALL.map(api_resource).into();
        let source = ScriptedSource::new(resources, move |resource, _| {
            let named = scripts_of_source.iter().find(|(scripts_of_source, _)| {
                scripts_of_source.as_str() == &*resource.gvr.resource
            });
            Arc::clone(&named.unwrap().1)
        });
        let metrics = Metrics::new();
        let registry = Registry::with_source(
            Arc::new(config()),
            seams(),
            Box::new(source),
            CacheMetrics::register(&metrics).unwrap(),
        );
        let handles = RbacMetrics::register(&metrics).unwrap();
        let rbac = Rbac::start(&RbacConfig::default(), &registry, handles);
        Self { rbac, scripts, metrics }
    }

    fn script(&self, resource: RbacResource) -> &Script {
        &self.scripts.iter().find(|(scripted, _)| *scripted == resource).unwrap().1
    }

    /// Queues a watch that starts with these events.
    fn queue_watch(&self, resource: RbacResource, mut events: Vec<UpstreamEvent>) -> Upstream {
        let feed = self.script(resource).on_watch();
        events.push(bookmark(100, true));
        feed.send(events);
        feed
    }

    /// Queues `times` short watches for each resource, which verify that no event is missing.
    fn queue_verifications(&self, times: usize) {
        for (_, script) in &self.scripts {
            (0..times).for_each(|_| script.keep(script.on_watch_at(100)));
        }
    }

    /// Queues watches for all four resources. They let alice get pods in namespace one. Returns the
    /// feed of the role bindings and those of the others.
    fn queue_all(&self) -> (Upstream, Vec<Upstream>) {
        let role = upsert(RbacResource::ClusterRoles, "pods", PODS, 10);
        let binding = upsert(RbacResource::RoleBindings, "alice", ALICE, 11);
        let others = vec![
            self.queue_watch(RbacResource::ClusterRoles, vec![role]),
            self.queue_watch(RbacResource::Roles, Vec::new()),
            self.queue_watch(RbacResource::ClusterRoleBindings, Vec::new()),
        ];
        (self.queue_watch(RbacResource::RoleBindings, vec![binding]), others)
    }

    fn allows(&self) -> Option<bool> {
        self.rbac.allows(&alice(), &get_pods())
    }

    /// Waits for a decision, at most 100 s of paused time.
    async fn until_allows(&self, expected: Option<bool>) {
        for _ in 0..10_000 {
            if self.allows() == expected {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("not decided within 100 s: {expected:?}");
    }

    fn metric(&self, line: &str) -> bool {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.metrics.gather());
        text.unwrap().lines().any(|present| present == line)
    }
}

fn alice() -> User {
    User::new("alice".to_owned(), String::new(), Vec::new(), BTreeMap::new())
}

fn get_pods() -> Attributes {
    Attributes::Resource(Arc::new(ResourceAttributes {
        verb: "get".into(),
        gvr: GroupVersionResource::new("", "v1", "pods"),
        subresource: String::new(),
        namespace: "one".into(),
        name: "a".into(),
        fields: Vec::new(),
        labels: Vec::new(),
    }))
}

fn api_resource(resource: RbacResource) -> ApiResource {
    let (kind, namespaced) = match resource {
        RbacResource::Roles => ("Role", true),
        RbacResource::ClusterRoles => ("ClusterRole", false),
        RbacResource::RoleBindings => ("RoleBinding", true),
        RbacResource::ClusterRoleBindings => ("ClusterRoleBinding", false),
    };
    ApiResource { namespaced, ..built_in(resource.gvr(), kind) }
}

fn object(resource: RbacResource, name: &str, rest: &str, resource_version: u64) -> Object {
    let api = api_resource(resource);
    let namespace = if api.namespaced { r#","namespace":"one""# } else { "" };
    let body = format!(
        r#"{{"kind":"{}","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{{"name":"{name}"{namespace},"resourceVersion":"{resource_version}"}}{rest}}}"#,
        api.kind
    );
    json::object(body.as_bytes(), &api).unwrap()
}

fn upsert(resource: RbacResource, name: &str, rest: &str, at: u64) -> UpstreamEvent {
    UpstreamEvent::Upsert(object(resource, name, rest, at))
}

fn delete(resource: RbacResource, name: &str, rest: &str, at: u64) -> UpstreamEvent {
    UpstreamEvent::Delete(object(resource, name, rest, at))
}

#[tokio::test(start_paused = true)]
async fn a_revocation_takes_effect_with_its_event() {
    let harness = Harness::new();
    let (bindings, _others) = harness.queue_all();
    harness.queue_verifications(1);
    harness.until_allows(Some(true)).await;
    assert!(harness.metric(r#"weir_rbac_objects{resource="rolebindings"} 1"#));

    bindings.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 101)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.allows(), Some(false));

    bindings.send(vec![upsert(RbacResource::RoleBindings, "again", ALICE, 102)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.allows(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_all_four_resources_are_valid() {
    let harness = Harness::new();
    let role = upsert(RbacResource::ClusterRoles, "pods", PODS, 10);
    let binding = upsert(RbacResource::RoleBindings, "alice", ALICE, 11);
    let _three = [
        harness.queue_watch(RbacResource::ClusterRoles, vec![role]),
        harness.queue_watch(RbacResource::Roles, Vec::new()),
        harness.queue_watch(RbacResource::RoleBindings, vec![binding]),
    ];
    for resource in [RbacResource::ClusterRoles, RbacResource::Roles, RbacResource::RoleBindings] {
        let script = harness.script(resource);
        script.keep(script.on_watch_at(100));
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(harness.allows(), None);
    assert!(harness.metric(r#"weir_rbac_current{resource="roles"} 1"#));
    assert!(harness.metric(r#"weir_rbac_current{resource="clusterrolebindings"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn a_silent_upstream_invalidates_the_copy() {
    let harness = Harness::new();
    let _feeds = harness.queue_all();
    harness.queue_verifications(2);
    harness.until_allows(Some(true)).await;
    sleep(Duration::from_secs(25)).await;
    assert_eq!(harness.allows(), Some(true));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(harness.allows(), None);
    harness.queue_verifications(3);
    harness.until_allows(Some(true)).await;
}

/// A permission that is revoked while the watch is closed is never allowed from the old copy.
#[tokio::test(start_paused = true)]
async fn a_closed_watch_invalidates_the_copy() {
    let harness = Harness::new();
    let (bindings, _others) = harness.queue_all();
    harness.queue_verifications(1);
    harness.until_allows(Some(true)).await;
    harness.script(RbacResource::RoleBindings).on_probe(200);
    bindings.fail(status(500, "away"));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.allows(), None);

    let resumed = harness.script(RbacResource::RoleBindings).on_watch();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(harness.allows(), None, "not verified yet");
    resumed.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 150)]);
    harness.queue_verifications(8);
    harness.until_allows(Some(false)).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_persistent_mismatch_disables_rbac() {
    let harness = Harness::new();
    let _feeds = harness.queue_all();
    harness.queue_verifications(8);
    harness.until_allows(Some(true)).await;
    let report = |agreed| harness.rbac.report(agreed, &alice(), &get_pods());
    assert!(!harness.metric("weir_rbac_differences_total 1"));
    // A mismatch that is resolved: the binding was on its way to the API server's authorizer.
    let delay = report(false).unwrap();
    assert!(harness.rbac.should_check());
    sleep(delay).await;
    assert_eq!(report(true), None);
    // A mismatch that persists.
    let delay = report(false).unwrap();
    assert!(report(false).is_some_and(|left| left <= delay));
    assert_eq!(harness.allows(), Some(true));
    sleep(delay).await;
    assert_eq!(report(false), None);
    assert_eq!(harness.allows(), None);
    assert!(!harness.rbac.should_check());
    assert!(harness.metric("weir_rbac_disabled 1"));
}

/// If RBAC no longer allows the request either, there is no mismatch.
#[tokio::test(start_paused = true)]
async fn a_revocation_on_its_way_is_no_mismatch() {
    let harness = Harness::new();
    let (bindings, _others) = harness.queue_all();
    harness.queue_verifications(8);
    harness.until_allows(Some(true)).await;
    let delay = harness.rbac.report(false, &alice(), &get_pods()).unwrap();
    bindings.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 101)]);
    sleep(delay).await;
    assert_eq!(harness.rbac.report(false, &alice(), &get_pods()), None);
    assert_eq!(harness.allows(), Some(false));
    assert!(harness.metric("weir_rbac_disabled 0"));
}
