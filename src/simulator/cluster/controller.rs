//! The controllers of deployments, replica sets and pods, in one loop. It follows the events of the
//! three resources and reconciles the objects that they concern.
//!
//! A rollout is simpler than the real one: the new replica set is scaled up at once, and the old
//! ones are scaled down when it is available.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pod;
use crate::json::{array, number, text};
use crate::write::now;
use crate::{Api, WriteError};

/// The time from a pod's placement until it runs.
const START_TIME: Duration = Duration::from_millis(900);

const APPS: &str = "apps/v1";

/// An object's namespace and name.
type Key = (String, String);

/// Runs the controllers until `cancel` is cancelled.
pub(super) async fn run(api: &Api, nodes: usize, cancel: CancellationToken) {
    let mut controller = Controller {
        api,
        nodes,
        rng: Rng::with_seed(13),
        starting: BTreeMap::new(),
        deployments: BTreeSet::new(),
        replica_sets: BTreeSet::new(),
    };
    let mut cursors = [0_u64; 3];
    loop {
        let Some(mut changed) = controller.subscribe() else { return };
        // A rewound store closes the channels. The controller then examines all objects again.
        cursors = controller.follow(cursors);
        controller.reconcile();
        let wake = controller.starting.values().min().copied();
        let wake = wake.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        let [deployments, replica_sets, pods] = &mut changed;
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = deployments.changed() => {}
            _ = replica_sets.changed() => {}
            _ = pods.changed() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

struct Controller<'a> {
    api: &'a Api,
    nodes: usize,
    rng: Rng,
    /// The time at which each placed pod starts to run.
    starting: BTreeMap<Key, Instant>,
    deployments: BTreeSet<Key>,
    replica_sets: BTreeSet<Key>,
}

type Changed = tokio::sync::watch::Receiver<u64>;

impl Controller<'_> {
    fn subscribe(&self) -> Option<[Changed; 3]> {
        Some([
            self.api.subscribe(APPS, "deployments")?,
            self.api.subscribe(APPS, "replicasets")?,
            self.api.subscribe("v1", "pods")?,
        ])
    }

    /// Queues the objects that the events since the cursors concern, and returns the new cursors.
    fn follow(&mut self, cursors: [u64; 3]) -> [u64; 3] {
        let [deployments, replica_sets, pods] = cursors;
        let (changed, deployments) = self.api.changes(APPS, "deployments", deployments);
        self.deployments.extend(changed.iter().map(key_of));
        let (changed, replica_sets) = self.api.changes(APPS, "replicasets", replica_sets);
        for replica_set in &changed {
            self.replica_sets.insert(key_of(replica_set));
            self.deployments.extend(owner(replica_set));
        }
        let (changed, pods) = self.api.changes("v1", "pods", pods);
        for pod in &changed {
            self.replica_sets.extend(owner(pod));
            if text(pod, "/status/phase") == "Pending" {
                let start = Instant::now() + START_TIME;
                self.starting.entry(key_of(pod)).or_insert(start);
            }
        }
        [deployments, replica_sets, pods]
    }

    /// Reconciles all queued objects. A rejected write means that the object changed meanwhile;
    /// that event queues it again.
    fn reconcile(&mut self) {
        for key in std::mem::take(&mut self.deployments) {
            drop(self.deployment(&key));
        }
        for key in std::mem::take(&mut self.replica_sets) {
            drop(self.replica_set(&key));
        }
        let now = Instant::now();
        let due: Vec<Key> = self
            .starting
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.starting.remove(&key);
            drop(self.start(&key));
        }
    }

    fn deployment(&self, (namespace, name): &Key) -> Result<(), WriteError> {
        let Some(deployment) = self.api.get(APPS, "deployments", namespace, name) else {
            return Ok(());
        };
        let wanted = replica_set_of(&deployment);
        let uid = text(&deployment, "/metadata/uid");
        let mut owned = self.api.owned(APPS, "replicasets", namespace, uid);
        let current = text(&wanted, "/metadata/name").to_owned();
        let replicas = number(&deployment, "/spec/replicas");
        match owned.iter().find(|candidate| text(candidate, "/metadata/name") == current) {
            None => {
                self.api.create(wanted)?;
            }
            Some(replica_set) if number(replica_set, "/spec/replicas") != replicas => {
                self.scale(replica_set, replicas)?;
            }
            Some(replica_set) if number(replica_set, "/status/availableReplicas") >= replicas => {
                for old in &owned {
                    let other = text(old, "/metadata/name") != current;
                    if other && number(old, "/spec/replicas") > 0 {
                        self.scale(old, 0)?;
                    }
                }
            }
            Some(_) => {}
        }
        owned.sort_by_key(|candidate| text(candidate, "/metadata/name") != current);
        let status = deployment_status(&deployment, &owned);
        if status != *deployment.get("status").unwrap_or(&Value::Null) {
            let patch = json!({"status": status});
            self.api.patch(APPS, "deployments", namespace, name, &patch)?;
        }
        Ok(())
    }

    fn scale(&self, replica_set: &Value, replicas: i64) -> Result<(), WriteError> {
        let (namespace, name) = key_of(replica_set);
        let patch = json!({"spec": {"replicas": replicas}});
        self.api.patch(APPS, "replicasets", &namespace, &name, &patch).map(drop)
    }

    fn replica_set(&mut self, (namespace, name): &Key) -> Result<(), WriteError> {
        let Some(replica_set) = self.api.get(APPS, "replicasets", namespace, name) else {
            return Ok(());
        };
        let mut pods = self.api.owned("v1", "pods", namespace, text(&replica_set, "/metadata/uid"));
        let wanted = usize::try_from(number(&replica_set, "/spec/replicas")).unwrap_or(0);
        for _ in pods.len()..wanted {
            let pod = pod::placed(pod::from_replica_set(&replica_set), self.nodes, &mut self.rng);
            pods.push(self.api.create(pod)?);
        }
        for surplus in pods.split_off(wanted.min(pods.len())) {
            let (namespace, name) = key_of(&surplus);
            self.api.delete("v1", "pods", &namespace, &name)?;
        }
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let status = replica_set_status(&replica_set, pods.len(), ready);
        if status != *replica_set.get("status").unwrap_or(&Value::Null) {
            let mut changed = replica_set;
            changed["status"] = status;
            self.api.update_status(changed)?;
        }
        Ok(())
    }

    fn start(&mut self, (namespace, name): &Key) -> Result<(), WriteError> {
        let Some(mut pod) = self.api.get("v1", "pods", namespace, name) else { return Ok(()) };
        if text(&pod, "/spec/nodeName").is_empty() {
            pod = self.api.update(pod::placed(pod, self.nodes, &mut self.rng))?;
        }
        self.api.update_status(pod::running(pod, &mut self.rng)).map(drop)
    }
}

/// Returns the replica set for a deployment's present template.
pub(super) fn replica_set_of(deployment: &Value) -> Value {
    let meta = |name: &str| text(deployment, &format!("/metadata/{name}"));
    let mut template = deployment.pointer("/spec/template").cloned().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    let hash: String = format!("{:016x}", hasher.finish()).chars().take(10).collect();
    let mut labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_default();
    for map in [
        Some(&mut labels),
        selector.get_mut("matchLabels"),
        template.pointer_mut("/metadata/labels"),
    ] {
        if let Some(map) = map.and_then(Value::as_object_mut) {
            map.insert("pod-template-hash".to_owned(), hash.clone().into());
        }
    }
    let replicas = number(deployment, "/spec/replicas");
    json!({"apiVersion": APPS, "kind": "ReplicaSet",
        "metadata": {"name": format!("{}-{hash}", meta("name")), "namespace": meta("namespace"),
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/desired-replicas": replicas.to_string(),
                "deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [{"apiVersion": APPS, "kind": "Deployment", "name": meta("name"),
                "uid": meta("uid"), "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"replicas": replicas, "selector": selector, "template": template}})
}

/// Returns the status of a replica set with `pods` pods, of which `ready` are ready.
pub(super) fn replica_set_status(replica_set: &Value, pods: usize, ready: usize) -> Value {
    let mut status = json!({"replicas": pods});
    let counts =
        [("fullyLabeledReplicas", pods), ("readyReplicas", ready), ("availableReplicas", ready)];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status[name] = count.into();
    }
    status["observedGeneration"] =
        replica_set.pointer("/metadata/generation").cloned().unwrap_or_default();
    status
}

/// Returns the status of a deployment with these replica sets, the present one first.
pub(super) fn deployment_status(deployment: &Value, replica_sets: &[Value]) -> Value {
    let sum = |pointer: &str| -> i64 {
        replica_sets.iter().map(|replica_set| number(replica_set, pointer)).sum()
    };
    let (total, ready) = (sum("/status/replicas"), sum("/status/readyReplicas"));
    let updated = replica_sets.first().map_or(0, |first| number(first, "/status/replicas"));
    let wanted = number(deployment, "/spec/replicas");
    let generation = deployment.pointer("/metadata/generation").cloned().unwrap_or_default();
    let mut status = json!({"observedGeneration": generation});
    let counts = [
        ("replicas", total),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", ready),
        ("unavailableReplicas", (wanted - ready).max(0)),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status[name] = count.into();
    }
    let available = ready >= wanted;
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let state = if holds { "True" } else { "False" };
        let mut old = array(deployment, "/status/conditions").iter();
        let same = old.find(|old| text(old, "/type") == kind && text(old, "/reason") == reason);
        let since = same.map_or_else(now, |old| text(old, "/lastTransitionTime").to_owned());
        json!({"type": kind, "status": state, "lastUpdateTime": since, "lastTransitionTime": since,
            "reason": reason, "message": message})
    };
    let progress =
        if available && updated >= wanted { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
    status["conditions"] = json!([
        if available {
            condition(
                "Available",
                true,
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            condition(
                "Available",
                false,
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        },
        condition("Progressing", true, progress, "ReplicaSet is progressing."),
    ]);
    status
}

fn key_of(object: &Value) -> Key {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

fn owner(object: &Value) -> Option<Key> {
    let name = text(object, "/metadata/ownerReferences/0/name");
    let namespace = text(object, "/metadata/namespace");
    (!name.is_empty()).then(|| (namespace.to_owned(), name.to_owned()))
}

fn is_ready(pod: &Value) -> bool {
    array(pod, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "Ready" && text(condition, "/status") == "True"
    })
}
