//! The shape of stored objects and of metadata views: the order in which the upstream writes their
//! fields (`docs/semantics.md` §3.6, §9.2).

use serde_json::{Map, Value};

use super::encode::sort_keys;
use super::kinds::Kind;
use super::protobuf;

/// Returns an object in the shape in which the upstream writes it.
pub(super) fn normalize(kind: &Kind, object: Value) -> Value {
    if kind.custom {
        return sort_keys(object);
    }
    if protobuf::knows(&kind.kind) {
        return protobuf::shape(&kind.kind, object).unwrap_or_default();
    }
    // A kind without a table gets only its metadata in order. Other fields keep the order in which
    // they were written.
    let Value::Object(mut map) = object else { return object };
    let mut shaped = Map::new();
    for field in ["kind", "apiVersion", "metadata"] {
        if let Some(value) = map.shift_remove(field) {
            let value = if field == "metadata" { metadata(value) } else { value };
            shaped.insert(field.to_owned(), value);
        }
    }
    let status = map.shift_remove("status");
    shaped.append(&mut map);
    shaped.extend(status.map(|status| ("status".to_owned(), status)));
    Value::Object(shaped)
}

/// Returns a metadata-only view of an object, with metadata in typed order (`docs/semantics.md`
/// §9.2).
pub(super) fn partial_metadata(object: &Value, group_version: &str) -> Value {
    let mut view = Map::new();
    view.insert("kind".to_owned(), "PartialObjectMetadata".into());
    view.insert("apiVersion".to_owned(), group_version.into());
    view.insert(
        "metadata".to_owned(),
        metadata(object.get("metadata").cloned().unwrap_or_default()),
    );
    Value::Object(view)
}

/// Returns metadata in its typed shape.
fn metadata(value: Value) -> Value {
    protobuf::shape("ObjectMeta", value).unwrap_or_default()
}
