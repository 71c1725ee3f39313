//! The metadata of new objects.

use serde_json::{Value, json};

use super::defaults::{now, random_suffix};
use crate::json::text;
use crate::kinds::Kind;
use crate::status::ApiError;

/// Completes the metadata of a new object, and returns its name.
pub(super) fn prepare_new(
    kind: &Kind,
    namespace: &str,
    object: &mut Value,
) -> Result<String, ApiError> {
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
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        metadata.shift_remove(field);
    }
    if kind.has_generation() {
        metadata.insert("generation".to_owned(), 1.into());
    }
    Ok(name)
}
