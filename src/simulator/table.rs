//! Tables, as kubectl requests them (`docs/semantics.md` §9.3).

use std::sync::Arc;

use serde_json::{Value, json};

use super::json::text;
use super::kinds::Kind;
use super::normalize::partial_metadata;
use super::object::Object;
use super::request::Request;
use super::status::ApiError;

mod age;
mod columns;
mod workloads;

/// Returns the table of a list, or of one object.
pub(super) fn list(
    request: &Request,
    kind: &Kind,
    version: &str,
    metadata: Value,
    objects: &[Arc<Object>],
) -> Result<Value, ApiError> {
    let include = request.param("includeObject").unwrap_or_default();
    if !matches!(include, "" | "Metadata" | "Object" | "None") {
        let message = format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        );
        return Err(ApiError::bad_request(message));
    }
    let rows: Vec<Value> =
        objects.iter().map(|object| row(kind, version, include, &object.value())).collect();
    let rows = if rows.is_empty() && columns::is_default(kind) { Value::Null } else { rows.into() };
    Ok(
        json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": columns::definitions(kind), "rows": rows}),
    )
}

/// Returns the table of a watch event. Only the first of a stream has columns.
pub(super) fn event(
    kind: &Kind,
    version: &str,
    include: &str,
    object: &Value,
    first: bool,
) -> Value {
    let metadata = json!({"resourceVersion": text(object, "/metadata/resourceVersion")});
    let columns = if first { columns::definitions(kind) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": columns, "rows": [row(kind, version, include, object)]})
}

fn row(kind: &Kind, version: &str, include: &str, object: &Value) -> Value {
    let object_view = match include {
        "None" => Value::Null,
        "Object" => object.clone(),
        _ => partial_metadata(object, &format!("meta.k8s.io/{version}")),
    };
    json!({"cells": columns::cells(kind, object), "object": object_view})
}
