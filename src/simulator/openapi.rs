//! OpenAPI, to the extent that kubectl needs to validate, explain and apply: a schema for each kind
//! that allows everything (`docs/semantics.md` §10.3). Version 2 has no schemas.

use http::{Response, header};
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::discovery::etag;
use super::encode;
use super::kinds::{Kind, Registry};
use super::request::Request;
use super::shared::Shared;
use super::status::ApiError;

/// Answers `/openapi/v2`. Protobuf, which kubectl prefers, gets 406.
pub(super) fn v2(shared: &Shared, request: &Request) -> Result<Response<Body>, ApiError> {
    if !accepts_json(request) {
        return Ok(vary(answer::full(406, Vec::new()), &["Accept-Encoding", "Accept"]));
    }
    let definitions: Map<String, Value> = shared
        .store
        .registry()
        .kinds()
        .iter()
        .map(|kind| (schema_name(kind), schema(kind)))
        .collect();
    let document = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {}, "definitions": definitions});
    let compact = encode::encode(&document);
    let tag = format!("\"{}\"", etag(&compact));
    Ok(vary(cached(request, compact, &tag), &["Accept-Encoding", "Accept"]))
}

/// Answers `/openapi/v3` and the documents below it.
pub(super) fn v3(
    shared: &Shared,
    request: &Request,
    path: &str,
) -> Result<Response<Body>, ApiError> {
    let registry = shared.store.registry();
    let below = path.trim_start_matches("/openapi/v3").trim_matches('/');
    if below.is_empty() {
        return Ok(index(request, &registry));
    }
    let words: Vec<&str> = below.split('/').collect();
    let (group, version) = match *words.as_slice() {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return Err(ApiError::unknown_path()),
    };
    if !registry.has_version(group, version) {
        return Err(ApiError::unknown_path());
    }
    if !accepts_json(request) {
        return Ok(answer::full(406, Vec::new()));
    }
    let compact = document(&registry, group, version);
    let hash = etag(&compact);
    match request.param("hash") {
        Some(given) if given != hash => {
            let mut response = answer::full(301, Vec::new());
            let location = format!("{path}?hash={hash}");
            answer::set(response.headers_mut(), header::LOCATION, &location);
            answer::set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
            answer::set(response.headers_mut(), header::ETAG, &format!("\"{hash}\""));
            Ok(vary(response, &["Accept"]))
        }
        given => {
            let mut response = cached(request, compact, &format!("\"{hash}\""));
            if given.is_some() {
                let headers = response.headers_mut();
                let year = jiff::SignedDuration::from_hours(365 * 24);
                let expires = jiff::Timestamp::now() + year;
                let expires = expires.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
                answer::set(headers, header::CACHE_CONTROL, "public, immutable");
                answer::set(headers, header::EXPIRES, &expires);
            }
            Ok(vary(response, &["Accept"]))
        }
    }
}

/// Returns a document as Go's file server sends it: never indented, and 304 to a client that has
/// it.
fn cached(request: &Request, document: bytes::Bytes, tag: &str) -> Response<Body> {
    let mut response = if request.header("if-none-match") == tag {
        answer::full(304, Vec::new())
    } else {
        let mut response = answer::full(200, document.to_vec());
        let headers = response.headers_mut();
        answer::set(headers, header::CONTENT_TYPE, "application/json");
        answer::set(headers, header::ACCEPT_RANGES, "bytes");
        answer::set(headers, header::LAST_MODIFIED, LAST_MODIFIED);
        response
    };
    answer::set(response.headers_mut(), header::ETAG, tag);
    response
}

fn vary(mut response: Response<Body>, names: &[&'static str]) -> Response<Body> {
    for name in names {
        response.headers_mut().append(header::VARY, http::HeaderValue::from_static(name));
    }
    response
}

fn index(request: &Request, registry: &Registry) -> Response<Body> {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let hash = etag(&document(registry, group, version));
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    let mut response = answer::value(request, 200, &json!({"paths": paths}));
    answer::set(response.headers_mut(), header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

fn document(registry: &Registry, group: &str, version: &str) -> bytes::Bytes {
    let kinds = registry.kinds().iter();
    let kinds = kinds.filter(|kind| kind.group == group && kind.version == version);
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    for kind in kinds {
        schemas.insert(schema_name(kind), schema(kind));
        let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("{prefix}/{version}{scope}/{}", kind.resource);
        let gvk = json!({"group": group, "version": version, "kind": kind.kind});
        let parameter =
            json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let operation = |action: &str| {
            json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
                "parameters": [parameter], "responses": {"200": {"description": "OK"}}})
        };
        paths.insert(path.clone(), json!({"post": operation("post"), "get": operation("list")}));
        let one = json!({"get": operation("get"), "patch": operation("patch"),
            "put": operation("put"), "delete": operation("delete")});
        paths.insert(format!("{path}/{{name}}"), one);
    }
    let document = json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths, "components": {"schemas": schemas}});
    encode::encode(&document)
}

/// Returns a schema that names the kind and allows everything; a custom resource has its own.
fn schema(kind: &Kind) -> Value {
    let mut schema = if kind.schema.is_object() { kind.schema.clone() } else { json!({}) };
    schema["type"] = "object".into();
    let text = json!({"type": "string"});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    if schema.get("properties").is_none() {
        schema["properties"] = json!({});
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.entry("apiVersion").or_insert_with(|| text.clone());
        properties.entry("kind").or_insert(text);
        properties.insert("metadata".to_owned(), open.clone());
        if !kind.custom {
            for field in ["spec", "status", "data"] {
                properties.insert(field.to_owned(), open.clone());
            }
        }
    }
    if !kind.custom {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    schema["description"] = format!("{} of the simulator.", kind.kind).into();
    schema["x-kubernetes-group-version-kind"] = json!([gvk]);
    schema
}

fn schema_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { &kind.group };
    let mut words: Vec<&str> = group.split('.').collect();
    words.reverse();
    format!("io.weir.{}.{}.{}", words.join("."), kind.version, kind.kind)
}

fn accepts_json(request: &Request) -> bool {
    let accept = request.header("accept");
    accept.is_empty() || accept.contains("application/json") || accept.contains("*/*")
}

/// The upstream sends the time at which it built a document; the simulator sends a constant.
const LAST_MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
