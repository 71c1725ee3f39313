//! Updates: the state that follows from an old and a new one.

use serde_json::{Map, Value};

use super::defaults;
use crate::json::{array, text};
use crate::kinds::Kind;
use crate::status::ApiError;

/// The object, or the subresource of it, that a change applies to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTarget<'a> {
    /// Empty for none.
    pub(crate) namespace: &'a str,
    /// The object's name.
    pub(crate) name: &'a str,
    /// `status`, or empty for the object.
    pub(crate) subresource: &'a str,
}

/// Returns the state after an update. Fields that a client may not change come from the old state.
pub(super) fn merge_update(
    kind: &Kind,
    target: WriteTarget<'_>,
    old: &Value,
    mut new: Value,
) -> Result<Value, ApiError> {
    let (given, held) =
        (text(&new, "/metadata/resourceVersion"), text(old, "/metadata/resourceVersion"));
    if !given.is_empty() && given != held {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(ApiError::conflict(&kind.group, &kind.resource, target.name, why));
    }
    let name = text(&new, "/metadata/name");
    if name != target.name {
        let message = format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        );
        return Err(ApiError::bad_request(message));
    }
    let uid = text(&new, "/metadata/uid");
    if !uid.is_empty() && uid != text(old, "/metadata/uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            text(old, "/metadata/uid")
        );
        return Err(ApiError::conflict(&kind.group, &kind.resource, target.name, &why));
    }
    if target.subresource == "status" {
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

/// Copies a top-level key, or removes it if it is absent.
fn copy(from: &Value, to: &mut Value, name: &str) {
    let Some(map) = to.as_object_mut() else { return };
    match from.get(name) {
        Some(value) => drop(map.insert(name.to_owned(), value.clone())),
        None => drop(map.shift_remove(name)),
    }
}

/// Returns whether an object is marked as deleted and has no finalizers.
pub(super) fn is_finished(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
        && array(object, "/metadata/finalizers").is_empty()
}
