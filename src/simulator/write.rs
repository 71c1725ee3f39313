//! Writes by the API server's rules: names, conflicts, generations, finalizers, and namespaces.
//! HTTP and [`Api`](super::Api) both use them.
//!
//! Simplifications: no deletion is graceful (only finalizers delay it), dependents are deleted with
//! their owner at once, and a namespace is deleted with its objects.

mod checks;
mod defaults;
mod new_object;
mod update;

use std::sync::Arc;

use serde_json::{Value, json};
use weir_api::built_in_groups::is_built_in_group;

use self::checks::{check_preconditions, check_type};
use self::new_object::prepare_new;
use self::update::{is_finished, merge_update};
use super::json::{array, text};
use super::kinds::Kind;
use super::object::{Object, key};
use super::status::ApiError;
use super::store::{Change, Store};

pub(super) use self::checks::Preconditions;
pub(super) use self::defaults::{now, random_suffix};
pub(super) use self::update::WriteTarget;

/// The result of a deletion.
pub(super) struct Deleted {
    /// The last state of the object.
    pub(super) object: Arc<Object>,
    /// Whether the object is gone; otherwise finalizers delay its deletion.
    pub(super) gone: bool,
}

/// Creates an object, or with `dry_run` only returns the object that would be stored.
pub(super) fn create(
    store: &Store,
    kind: &Kind,
    namespace: &str,
    mut object: Value,
    dry_run: bool,
) -> Result<Value, ApiError> {
    check_type(kind, &mut object)?;
    let name = prepare_new(kind, namespace, &mut object)?;
    if kind.namespaced && !namespace_exists(store, namespace) {
        return Err(ApiError::not_found("", "namespaces", namespace));
    }
    defaults::apply(kind, &mut object);
    let mut preview = Value::Null;
    let stored = store.write(kind, &key(namespace, &name), |old| {
        if old.is_some() {
            return Err(ApiError::already_exists(&kind.group, &kind.resource, &name));
        }
        preview = object.clone();
        Ok(if dry_run { Change::Keep } else { Change::Put(object) })
    })?;
    let Some(stored) = stored.filter(|_| !dry_run) else { return Ok(preview) };
    let stored = stored.value();
    if kind.resource == "customresourcedefinitions" {
        register_definition(store, &stored);
    }
    Ok(stored)
}

/// Changes an object, or the part of it that a subresource names, by a function of its present
/// state.
pub(super) fn modify(
    store: &Store,
    kind: &Kind,
    target: WriteTarget<'_>,
    dry_run: bool,
    change: impl FnOnce(Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let mut preview = Value::Null;
    let mut removed = false;
    let stored = store.write(kind, &key(target.namespace, target.name), |old| {
        let not_found = || ApiError::not_found(&kind.group, &kind.resource, target.name);
        let old = old.ok_or_else(not_found)?;
        let mut new = change(old.clone())?;
        check_type(kind, &mut new)?;
        let new = merge_update(kind, target, &old, new)?;
        removed = is_finished(&new);
        preview = new.clone();
        Ok(match (dry_run, removed) {
            (true, _) => Change::Keep,
            (false, true) => Change::Remove,
            (false, false) => Change::Put(new),
        })
    })?;
    if dry_run {
        return Ok(preview);
    }
    let Some(stored) = stored else { return Ok(preview) };
    if removed {
        after_removal(store, kind, &stored);
    }
    Ok(stored.value())
}

/// Deletes an object, or marks it as deleted if it has finalizers.
pub(super) fn delete(
    store: &Store,
    kind: &Kind,
    namespace: &str,
    name: &str,
    conditions: &Preconditions,
) -> Result<Deleted, ApiError> {
    if kind.resource == "customresourcedefinitions"
        && let Some(definition) = store.get(kind, name)
    {
        let definition = definition.value();
        check_preconditions(kind, name, &definition, conditions)?;
        remove_instances(store, &definition);
    }
    let mut gone = true;
    let stored = store.write(kind, &key(namespace, name), |old| {
        let not_found = || ApiError::not_found(&kind.group, &kind.resource, name);
        let mut old = old.ok_or_else(not_found)?;
        check_preconditions(kind, name, &old, conditions)?;
        if array(&old, "/metadata/finalizers").is_empty() {
            return Ok(Change::Remove);
        }
        gone = false;
        if let Some(metadata) = old.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("deletionTimestamp").or_insert_with(|| now().into());
            metadata.entry("deletionGracePeriodSeconds").or_insert_with(|| 0.into());
        }
        Ok(Change::Put(old))
    })?;
    let not_found = || ApiError::not_found(&kind.group, &kind.resource, name);
    let object = stored.ok_or_else(not_found)?;
    if gone {
        after_removal(store, kind, &object);
    }
    Ok(Deleted { object, gone })
}

/// Deletes the dependents of a deleted object, or the objects of a deleted namespace.
fn after_removal(store: &Store, kind: &Kind, object: &Object) {
    let namespace =
        (kind.group.is_empty() && kind.resource == "namespaces").then_some(&object.name);
    // These kinds have many short-lived objects and own nothing, so the search for dependents is
    // skipped.
    if matches!(kind.resource.as_str(), "pods" | "events" | "leases" | "endpointslices") {
        return;
    }
    let value = object.value();
    let uid = text(&value, "/metadata/uid");
    let mut dependents = store.find(|candidate| {
        namespace.is_some_and(|namespace| candidate.namespace == *namespace)
            || candidate.owners.iter().any(|owner| **owner == *uid)
    });
    if kind.resource == "customresourcedefinitions" {
        unregister_definition(store, &value);
    }
    for (kind, key) in dependents.drain(..) {
        let removed = store.write(&kind, &key, |_| Ok(Change::Remove));
        if let Ok(Some(removed)) = removed {
            after_removal(store, &kind, &removed);
        }
    }
}

/// Deletes the objects of a definition that is about to be deleted. Their watches send each
/// deletion before they end.
fn remove_instances(store: &Store, definition: &Value) {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let registry = store.registry();
    let kind = registry.kinds().iter().find(|kind| kind.group == group && kind.resource == plural);
    let Some(kind) = kind else { return };
    let keys: Vec<Arc<str>> =
        store.read(kind, |collection, _| collection.objects.keys().cloned().collect());
    for key in keys {
        if let Ok(Some(removed)) = store.write(kind, &key, |_| Ok(Change::Remove)) {
            after_removal(store, kind, &removed);
        }
    }
}

/// Creates the APIService of a group and version, unless it exists; `service` is the namespace and
/// name of an aggregated API server.
pub(super) fn register(store: &Store, group: &str, version: &str, service: Option<(&str, &str)>) {
    let kind = store.registry().find("apiregistration.k8s.io", "v1", "apiservices");
    // An error means that it exists already.
    let object = api_service(group, version, service);
    drop(kind.map(|kind| create(store, &kind, "", object, false)));
}

/// Creates the APIServices of the versions that a CustomResourceDefinition serves.
fn register_definition(store: &Store, definition: &Value) {
    for version in served_versions(definition) {
        register(store, text(definition, "/spec/group"), version, None);
    }
}

/// Deletes the APIServices of a deleted CustomResourceDefinition whose versions no other one
/// serves.
fn unregister_definition(store: &Store, definition: &Value) {
    let registry = store.registry();
    let Some(kind) = registry.find("apiregistration.k8s.io", "v1", "apiservices") else { return };
    let group = text(definition, "/spec/group");
    for version in
        served_versions(definition).filter(|version| !registry.has_version(group, version))
    {
        // It may be deleted already.
        let name = format!("{version}.{group}");
        drop(delete(store, &kind, "", &name, &Preconditions::default()));
    }
}

fn namespace_exists(store: &Store, namespace: &str) -> bool {
    let kind = store.registry().find("", "v1", "namespaces");
    kind.is_some_and(|kind| store.get(&kind, namespace).is_some())
}

/// Returns the APIService of a group and version; `service` is the namespace and name of an
/// aggregated API server.
fn api_service(group: &str, version: &str, service: Option<(&str, &str)>) -> Value {
    let reason = if service.is_some() { "Passed" } else { "Local" };
    let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": now(),
        "reason": reason, "message": "Local APIServices are always available"});
    let mut spec = json!({"group": group, "version": version, "groupPriorityMinimum": 1000,
        "versionPriority": 100});
    if let Some((namespace, name)) = service {
        spec["service"] = json!({"namespace": namespace, "name": name, "port": 443});
    }
    let labels = match service {
        Some(_) => json!({}),
        None => {
            let manager = if is_built_in_group(group) { "onstart" } else { "true" };
            json!({"kube-aggregator.kubernetes.io/automanaged": manager})
        }
    };
    json!({"metadata": {"name": format!("{version}.{group}"), "labels": labels}, "spec": spec,
        "status": {"conditions": [condition]}})
}

/// Returns the versions that a CustomResourceDefinition serves.
fn served_versions(definition: &Value) -> impl Iterator<Item = &str> {
    let versions = array(definition, "/spec/versions").iter();
    let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
    served.map(|version| text(version, "/name"))
}
