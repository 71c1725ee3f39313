//! The checks of a write: the type of the object, and the preconditions of a deletion.

use serde_json::Value;

use crate::json::text;
use crate::kinds::Kind;
use crate::status::ApiError;

/// The conditions of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    /// The required uid; empty for any.
    pub(crate) uid: String,
    /// The required resourceVersion; empty for any.
    pub(crate) resource_version: String,
}

/// Rejects an object of another kind. Adds an absent kind and apiVersion.
pub(super) fn check_type(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
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

pub(super) fn check_preconditions(
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
