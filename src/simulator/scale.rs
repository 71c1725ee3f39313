//! The `scale` subresource of deployments, replica sets and stateful sets.

use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::json::text;
use super::kinds::Kind;
use super::patch;
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::write;
use super::writes::{body, dry_run, write_target};

/// Answers GET, PUT and PATCH of a scale.
pub(super) fn scale(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
    verb: &str,
) -> Result<Response<Body>, ApiError> {
    let key = super::object::key(&target.namespace, &target.name);
    let not_found = || ApiError::not_found(&kind.group, &kind.resource, &target.name);
    let object = shared.store.get(kind, &key).ok_or_else(not_found)?.value();
    let wanted = match verb {
        "get" => return Ok(answer::value(request, 200, &view(&object))),
        "update" => body(request)?,
        "patch" => patch::apply(&patch::parse(request, kind)?, view(&object))?,
        _ => return Err(ApiError::method_not_allowed()),
    };
    let version = text(&wanted, "/metadata/resourceVersion").to_owned();
    let replicas = wanted.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let place = write_target(kind, target);
    let changed = write::modify(&shared.store, kind, place, dry_run(request)?, |mut object| {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas".to_owned(), replicas.into());
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
            && !version.is_empty()
        {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        Ok(object)
    })?;
    Ok(answer::value(request, 200, &view(&changed)))
}

fn view(object: &Value) -> Value {
    let metadata = |name: &str| text(object, &format!("/metadata/{name}"));
    let number = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_else(|| 0.into());
    let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata("name"), "namespace": metadata("namespace"),
            "uid": metadata("uid"), "resourceVersion": metadata("resourceVersion"),
            "creationTimestamp": metadata("creationTimestamp")},
        "spec": {"replicas": number("/spec/replicas")},
        "status": {"replicas": number("/status/replicas"), "selector": selector.join(",")}})
}
