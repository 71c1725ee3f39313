//! The HTTP side of create, update and delete.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::json::text;
use super::kinds::Kind;
use super::list;
use super::negotiate::{Shape, negotiate};
use super::object::Object;
use super::protobuf;
use super::render;
use super::request::{Options, Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::write::{self, Preconditions, WriteTarget};

/// Answers a POST.
pub(super) fn create(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let object = body(request)?;
    let dry_run = dry_run(request)?;
    let created = write::create(&shared.store, kind, &target.namespace, object, dry_run)?;
    respond(request, kind, 201, created)
}

/// Answers a PUT of an object or of its status.
pub(super) fn update(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let object = body(request)?;
    let (place, dry_run) = (write_target(kind, target), dry_run(request)?);
    let changed = write::modify(&shared.store, kind, place, dry_run, |_| Ok(object))?;
    respond(request, kind, 200, changed)
}

/// Answers a DELETE of one object.
pub(super) fn delete(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let options = if request.body.is_empty() { Value::Null } else { body(request)? };
    let conditions = Preconditions {
        uid: text(&options, "/preconditions/uid").to_owned(),
        resource_version: text(&options, "/preconditions/resourceVersion").to_owned(),
    };
    let namespace = write_target(kind, target).namespace;
    let key = super::object::key(namespace, &target.name);
    if dry_run(request)? || options.get("dryRun").is_some_and(|value| !value.is_null()) {
        let stored = shared.store.get(kind, &key);
        let not_found = || ApiError::not_found(&kind.group, &kind.resource, &target.name);
        return respond(request, kind, 200, stored.ok_or_else(not_found)?.value());
    }
    let deleted = write::delete(&shared.store, kind, namespace, &target.name, &conditions)?;
    if !deleted.gone || kind.resource == "pods" {
        return respond(request, kind, 200, deleted.object.value());
    }
    let mut details = serde_json::Map::new();
    details.insert("name".to_owned(), target.name.clone().into());
    if !kind.group.is_empty() {
        details.insert("group".to_owned(), kind.group.clone().into());
    }
    details.insert("kind".to_owned(), kind.resource.clone().into());
    let uid = text(&deleted.object.value(), "/metadata/uid").to_owned();
    details.insert("uid".to_owned(), uid.into());
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details});
    Ok(answer::value(request, 200, &status))
}

/// Answers a DELETE of a collection with the deleted objects.
pub(super) fn delete_collection(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let options = Options::decode(request, shared.options.watch_list())?;
    let selector = list::selector(shared, kind, target, &options)?;
    let dry_run = dry_run(request)?;
    let matching: Vec<_> = shared.store.read(kind, |collection, _| {
        let objects = collection.objects.values().filter(|object| selector.matches(object));
        objects.cloned().collect()
    });
    let any = Preconditions::default();
    let mut items = Vec::new();
    for object in matching {
        if dry_run {
            items.push(object.value());
            continue;
        }
        let deleted = write::delete(&shared.store, kind, &object.namespace, &object.name, &any);
        // Another request may have deleted it.
        items.extend(deleted.ok().map(|deleted| deleted.object.value()));
    }
    let metadata = json!({"resourceVersion": shared.store.revision().to_string()});
    let list = json!({"kind": kind.list_kind, "apiVersion": kind.api_version(),
        "metadata": metadata, "items": items});
    Ok(answer::value(request, 200, &list))
}

/// Returns a changed object in the negotiated form.
pub(super) fn respond(
    request: &Request,
    kind: &Kind,
    code: u16,
    value: Value,
) -> Result<Response<Body>, ApiError> {
    let form = negotiate(request, kind, Shape::Object)?;
    let revision = text(&value, "/metadata/resourceVersion").parse().unwrap_or(0);
    let object = Arc::new(Object::new(kind, revision, value));
    render::object(request, kind, &form, code, &object)
}

/// Returns the object that a request writes. The path of a namespace sets both its name and its
/// namespace.
pub(super) fn write_target<'a>(kind: &Kind, target: &'a Target) -> WriteTarget<'a> {
    let namespace = if kind.namespaced { target.namespace.as_str() } else { "" };
    let subresource = if target.subresource == "status" { "status" } else { "" };
    WriteTarget { namespace, name: &target.name, subresource }
}

/// Returns whether the request is a dry run. Another value than `All` is an error, and nothing is
/// written.
pub(super) fn dry_run(request: &Request) -> Result<bool, ApiError> {
    match request.param("dryRun") {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => {
            let text = format!("dryRun: Unsupported value: {other:?}: supported values: \"All\"");
            Err(ApiError::new(422, "Invalid", format!("the options are invalid: {text}")))
        }
    }
}

/// Decodes the body: JSON, or protobuf of the types that kubectl sends in protobuf.
pub(super) fn body(request: &Request) -> Result<Value, ApiError> {
    let media = request.header("content-type").split(';').next().unwrap_or_default().trim();
    let unknown = || {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        ApiError::new(415, "UnsupportedMediaType", message)
    };
    match media {
        "" | "application/json" => serde_json::from_slice(&request.body).map_err(|error| {
            ApiError::bad_request(format!("the object provided is not valid JSON: {error}"))
        }),
        "application/vnd.kubernetes.protobuf" => {
            protobuf::decode(&request.body).ok_or_else(unknown)
        }
        _ => Err(unknown()),
    }
}
