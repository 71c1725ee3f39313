//! From the upstream's watches to decisions, against scripted upstreams in paused time.

use std::collections::BTreeMap;

use prometheus::Registry as Metrics;

use super::*;
use crate::api::resource::GroupVersionResource;
use crate::api::resource::{ApiResource, built_in};
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::rbac::Rbac;
use crate::auth::user::User;
use crate::cache::script::{Feed as Upstream, Script, ScriptedSource, bookmark, config, status};
use crate::codec::json;
use crate::config::RbacConfig;
use crate::telemetry::auth_metrics::rbac::RbacMetrics;
use crate::telemetry::cache_metrics::CacheMetrics;
use crate::upstream::lister_watcher::UpstreamEvent;

const ALICE: &str = r#","subjects":[{"kind":"User","name":"alice"}],"roleRef":{"kind":"ClusterRole","name":"pods"}"#;
const PODS: &str = r#","rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]"#;

struct Rig {
    rbac: Arc<Rbac>,
    scripts: Vec<(RbacResource, Arc<Script>)>,
    metrics: Metrics,
}

impl Rig {
    fn new() -> Self {
        let scripts: Vec<_> =
            RbacResource::ALL.map(|resource| (resource, Arc::new(Script::default()))).into();
        let own = scripts.clone();
        let resources = RbacResource::ALL.map(api_resource).into();
        let source = ScriptedSource::new(resources, move |resource, _| {
            let named = own.iter().find(|(own, _)| own.as_str() == &*resource.gvr.resource);
            Arc::clone(&named.unwrap().1)
        });
        let metrics = Metrics::new();
        let registry = Registry::with_source(
            Arc::new(config()),
            Box::new(source),
            CacheMetrics::register(&metrics).unwrap(),
        );
        let handles = RbacMetrics::register(&metrics).unwrap();
        let rbac = Rbac::start(&RbacConfig { check_one_in: 1000 }, &registry, handles);
        Self { rbac, scripts, metrics }
    }

    fn script(&self, resource: RbacResource) -> &Script {
        &self.scripts.iter().find(|(own, _)| *own == resource).unwrap().1
    }

    /// Queues a watch that begins with these events.
    fn begins(&self, resource: RbacResource, mut events: Vec<UpstreamEvent>) -> Upstream {
        let feed = self.script(resource).on_watch();
        events.push(bookmark(100, true));
        feed.send(events);
        feed
    }

    /// Queues short watches that show that there is nothing new.
    fn show(&self, times: usize) {
        for (_, script) in &self.scripts {
            (0..times).for_each(|_| script.keep(script.on_watch_at(100)));
        }
    }

    /// All four, with what lets alice get pods in namespace one; the feed of the role bindings and those of the others.
    fn filled(&self) -> (Upstream, Vec<Upstream>) {
        let role = upsert(RbacResource::ClusterRoles, "pods", PODS, 10);
        let binding = upsert(RbacResource::RoleBindings, "alice", ALICE, 11);
        let others = vec![
            self.begins(RbacResource::ClusterRoles, vec![role]),
            self.begins(RbacResource::Roles, Vec::new()),
            self.begins(RbacResource::ClusterRoleBindings, Vec::new()),
        ];
        (self.begins(RbacResource::RoleBindings, vec![binding]), others)
    }

    fn allows(&self) -> Option<bool> {
        self.rbac.allows(&alice(), &get_pods())
    }

    async fn until(&self, expected: Option<bool>) {
        for _ in 0..10_000 {
            if self.allows() == expected {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("never {expected:?}");
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
        verb: "get",
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
async fn a_revocation_counts_with_its_event() {
    let rig = Rig::new();
    let (bindings, _others) = rig.filled();
    rig.show(1);
    rig.until(Some(true)).await;
    assert!(rig.metric(r#"weir_rbac_objects{resource="rolebindings"} 1"#));

    bindings.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 101)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.allows(), Some(false));

    bindings.send(vec![upsert(RbacResource::RoleBindings, "again", ALICE, 102)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.allows(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_known_before_all_four_are() {
    let rig = Rig::new();
    let role = upsert(RbacResource::ClusterRoles, "pods", PODS, 10);
    let binding = upsert(RbacResource::RoleBindings, "alice", ALICE, 11);
    let _three = [
        rig.begins(RbacResource::ClusterRoles, vec![role]),
        rig.begins(RbacResource::Roles, Vec::new()),
        rig.begins(RbacResource::RoleBindings, vec![binding]),
    ];
    for resource in [RbacResource::ClusterRoles, RbacResource::Roles, RbacResource::RoleBindings] {
        let script = rig.script(resource);
        script.keep(script.on_watch_at(100));
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.allows(), None);
    assert!(rig.metric(r#"weir_rbac_current{resource="roles"} 1"#));
    assert!(rig.metric(r#"weir_rbac_current{resource="clusterrolebindings"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_falls_silent_is_not_relied_on() {
    let rig = Rig::new();
    let _feeds = rig.filled();
    rig.show(2);
    rig.until(Some(true)).await;
    sleep(Duration::from_secs(25)).await;
    assert_eq!(rig.allows(), Some(true));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.allows(), None);
    rig.show(3);
    rig.until(Some(true)).await;
}

/// What was revoked while the watch was broken is never allowed from what was known before.
#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_not_relied_on() {
    let rig = Rig::new();
    let (bindings, _others) = rig.filled();
    rig.show(1);
    rig.until(Some(true)).await;
    rig.script(RbacResource::RoleBindings).on_probe(200);
    bindings.fail(status(500, "away"));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.allows(), None);

    let resumed = rig.script(RbacResource::RoleBindings).on_watch();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.allows(), None, "nothing shows yet that nothing was missed");
    resumed.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 150)]);
    rig.show(8);
    rig.until(Some(false)).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_denial_that_stands_turns_it_off() {
    let rig = Rig::new();
    let _feeds = rig.filled();
    rig.show(8);
    rig.until(Some(true)).await;
    let report = |agreed| rig.rbac.report(agreed, &alice(), &get_pods());
    assert!(!rig.metric("weir_rbac_differences_total 1"));
    // A binding that was on its way to the API server's authorizer.
    let again = report(false).unwrap();
    assert!(rig.rbac.should_check());
    sleep(again).await;
    assert_eq!(report(true), None);
    // One that stands.
    let again = report(false).unwrap();
    assert!(report(false).is_some_and(|left| left <= again));
    assert_eq!(rig.allows(), Some(true));
    sleep(again).await;
    assert_eq!(report(false), None);
    assert_eq!(rig.allows(), None);
    assert!(!rig.rbac.should_check());
    assert!(rig.metric("weir_rbac_disabled 1"));
}

/// What is no longer allowed here either is no difference.
#[tokio::test(start_paused = true)]
async fn a_revocation_on_its_way_is_no_difference() {
    let rig = Rig::new();
    let (bindings, _others) = rig.filled();
    rig.show(8);
    rig.until(Some(true)).await;
    let again = rig.rbac.report(false, &alice(), &get_pods()).unwrap();
    bindings.send(vec![delete(RbacResource::RoleBindings, "alice", ALICE, 101)]);
    sleep(again).await;
    assert_eq!(rig.rbac.report(false, &alice(), &get_pods()), None);
    assert_eq!(rig.allows(), Some(false));
    assert!(rig.metric("weir_rbac_disabled 0"));
}
