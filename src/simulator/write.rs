//! Writes with the API server's rules: names, conflicts, generations, finalizers, namespaces (used by HTTP and by
//! [`Api`](super::Api) alike).
//!
//! Simplified: nothing is deleted gracefully (only finalizers delay it), dependents go with their owner at once, and a
//! namespace takes its objects with it.

mod api_services;
mod bootstrap;
mod defaults;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::{Kind, array, text};
use super::object::{Object, key};
use super::status::ApiError;
use super::store::{Change, Store};

pub(super) use self::api_services::register;
pub(super) use self::bootstrap::bootstrap;
pub(super) use self::defaults::{now, random_suffix};

/// What was deleted.
pub(super) struct Deleted {
    /// Its last state.
    pub(super) object: Arc<Object>,
    /// Whether it is gone; otherwise finalizers hold it.
    pub(super) gone: bool,
}

/// The conditions of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct Preconditions {
    /// The uid it must have; empty for any.
    pub(super) uid: String,
    /// The resourceVersion it must have; empty for any.
    pub(super) resource_version: String,
}

/// Creates an object; with `dry_run` only says what would be stored.
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
        api_services::register_definition(store, &stored);
    }
    Ok(stored)
}

/// Changes an object, or the part of it that a subresource is, by a function of its present state.
pub(super) fn modify(
    store: &Store,
    kind: &Kind,
    place: Place<'_>,
    dry_run: bool,
    change: impl FnOnce(Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let mut preview = Value::Null;
    let mut removed = false;
    let stored = store.write(kind, &key(place.namespace, place.name), |old| {
        let not_found = || ApiError::not_found(&kind.group, &kind.resource, place.name);
        let old = old.ok_or_else(not_found)?;
        let mut new = change(old.clone())?;
        check_type(kind, &mut new)?;
        let new = merge_update(kind, place, &old, new)?;
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

/// Deletes an object, or marks it as deleted while finalizers hold it.
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

/// Where a change applies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Empty for none.
    pub(super) namespace: &'a str,
    /// The object's name.
    pub(super) name: &'a str,
    /// `status`, or empty for the object.
    pub(super) subresource: &'a str,
}

/// What goes with an object: its dependents, or a namespace's objects.
fn after_removal(store: &Store, kind: &Kind, object: &Object) {
    let namespace =
        (kind.group.is_empty() && kind.resource == "namespaces").then_some(&object.name);
    // The many short-lived kinds own nothing; no search for their dependents.
    if matches!(kind.resource.as_str(), "pods" | "events" | "leases" | "endpointslices") {
        return;
    }
    let value = object.value();
    let uid = text(&value, "/metadata/uid");
    let mut found = store.find(|candidate| {
        namespace.is_some_and(|namespace| candidate.namespace == *namespace)
            || candidate.owners.iter().any(|owner| **owner == *uid)
    });
    if kind.resource == "customresourcedefinitions" {
        api_services::unregister_definition(store, &value);
    }
    for (kind, key) in found.drain(..) {
        let removed = store.write(&kind, &key, |_| Ok(Change::Remove));
        if let Ok(Some(removed)) = removed {
            after_removal(store, &kind, &removed);
        }
    }
}

/// Removes the objects of a definition that is about to go: their watchers see each of them go first.
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

/// Completes the metadata of a new object, and tells its name.
fn prepare_new(kind: &Kind, namespace: &str, object: &mut Value) -> Result<String, ApiError> {
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request("the object provided is not an object"));
    };
    let metadata = map.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    let given = text(metadata, "/namespace").to_owned();
    let mut name = text(metadata, "/name").to_owned();
    let prefix = text(metadata, "/generateName").to_owned();
    if kind.namespaced && !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if name.is_empty() && prefix.is_empty() {
        let text = "Required value: name or generateName is required";
        return Err(ApiError::invalid(&kind.group, &kind.kind, "", "metadata.name", text));
    }
    if name.is_empty() {
        name = format!("{prefix}{}", random_suffix());
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(ApiError::bad_request("metadata is not an object"));
    };
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|rv| !rv.is_empty()) {
        return Err(ApiError::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ));
    }
    metadata.insert("name".to_owned(), name.clone().into());
    if kind.namespaced {
        metadata.insert("namespace".to_owned(), namespace.into());
    } else {
        metadata.shift_remove("namespace");
    }
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), now().into());
    for own in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        metadata.shift_remove(own);
    }
    if kind.has_generation() {
        metadata.insert("generation".to_owned(), 1.into());
    }
    Ok(name)
}

/// The state after an update: what a client may not change comes from the old one.
fn merge_update(
    kind: &Kind,
    place: Place<'_>,
    old: &Value,
    mut new: Value,
) -> Result<Value, ApiError> {
    let (given, held) =
        (text(&new, "/metadata/resourceVersion"), text(old, "/metadata/resourceVersion"));
    if !given.is_empty() && given != held {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(ApiError::conflict(&kind.group, &kind.resource, place.name, why));
    }
    let name = text(&new, "/metadata/name");
    if name != place.name {
        let message = format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.name
        );
        return Err(ApiError::bad_request(message));
    }
    let uid = text(&new, "/metadata/uid");
    if !uid.is_empty() && uid != text(old, "/metadata/uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            text(old, "/metadata/uid")
        );
        return Err(ApiError::conflict(&kind.group, &kind.resource, place.name, &why));
    }
    if place.subresource == "status" {
        let mut merged = old.clone();
        copy(&new, &mut merged, "status");
        return Ok(merged);
    }
    if kind.has_subresource("status") {
        copy(old, &mut new, "status");
    }
    let changed = new.get("spec") != old.get("spec");
    let kept = old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        keep_own_metadata(metadata, &kept);
        if let (true, Some(generation)) = (changed, kept.get("generation").and_then(Value::as_u64))
        {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
    }
    defaults::apply(kind, &mut new);
    Ok(new)
}

/// Restores the metadata that only the server writes.
fn keep_own_metadata(metadata: &mut Map<String, Value>, old: &Map<String, Value>) {
    const OWN: [&str; 7] = [
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    for name in OWN {
        match old.get(name) {
            Some(value) => drop(metadata.insert(name.to_owned(), value.clone())),
            None => drop(metadata.shift_remove(name)),
        }
    }
}

/// Copies a top-level key, or its absence.
fn copy(from: &Value, to: &mut Value, name: &str) {
    let Some(map) = to.as_object_mut() else { return };
    match from.get(name) {
        Some(value) => drop(map.insert(name.to_owned(), value.clone())),
        None => drop(map.shift_remove(name)),
    }
}

/// Whether an object is marked as deleted and nothing holds it any more.
fn is_finished(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
        && array(object, "/metadata/finalizers").is_empty()
}

/// Refuses an object of another kind; fills in an absent kind and apiVersion.
fn check_type(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let api_version = kind.api_version();
    let (given_version, given_kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let other = (!given_version.is_empty() && given_version != api_version)
        || (!given_kind.is_empty() && given_kind != kind.kind);
    if other {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): it is {given_version}, {given_kind}",
            kind.kind
        );
        return Err(ApiError::bad_request(message));
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".to_owned(), kind.kind.clone().into());
        map.insert("apiVersion".to_owned(), api_version.into());
    }
    Ok(())
}

fn check_preconditions(
    kind: &Kind,
    name: &str,
    object: &Value,
    conditions: &Preconditions,
) -> Result<(), ApiError> {
    let (uid, version) = (text(object, "/metadata/uid"), text(object, "/metadata/resourceVersion"));
    let why = if !conditions.uid.is_empty() && conditions.uid != uid {
        let wanted = &conditions.uid;
        format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}")
    } else if !conditions.resource_version.is_empty() && conditions.resource_version != version {
        let wanted = &conditions.resource_version;
        format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
        )
    } else {
        return Ok(());
    };
    Err(ApiError::conflict(&kind.group, &kind.resource, name, &why))
}

fn namespace_exists(store: &Store, namespace: &str) -> bool {
    let kind = store.registry().find("", "v1", "namespaces");
    kind.is_some_and(|kind| store.get(&kind, namespace).is_some())
}
