//! Discovery, legacy and aggregated, and `/version` (`docs/semantics.md` §10.1, §10.2).

use std::hash::{DefaultHasher, Hash, Hasher};

use http::{Response, header};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::encode;
use super::kinds::{Kind, Registry, api_version};
use super::negotiate::negotiate_discovery;
use super::request::Request;
use super::shared::Shared;
use super::status::ApiError;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers `/version`. The body is always indented.
pub(super) fn version(shared: &Shared, request: &Request) -> Response<Body> {
    let minor = shared.options.minor;
    let version = json!({"major": "1", "minor": minor.to_string(),
        "gitVersion": format!("v1.{minor}.2-weir-simulator"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": "linux/amd64"});
    let mut response = answer::full(200, encode::indent(&encode::encode(&version)));
    answer::set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    if request.method == http::Method::HEAD {
        return answer::plain(405, "");
    }
    response
}

/// Answers `/api`, `/apis` and the paths below them down to a group's version.
pub(super) fn discovery(
    shared: &Shared,
    request: &Request,
    path: &str,
) -> Result<Response<Body>, ApiError> {
    let registry = shared.store.registry();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let offered = matches!(*segments.as_slice(), ["api" | "apis"]);
    let wanted = negotiate_discovery(request, offered)?;
    match *segments.as_slice() {
        ["api" | "apis"] if wanted => Ok(aggregated(shared, request, &registry, path == "/api")),
        ["api"] => {
            let versions = json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]});
            Ok(answer::value(request, 200, &versions))
        }
        ["apis"] => {
            let groups = named_groups(&registry);
            let mut groups: Vec<Value> =
                groups.map(|(name, versions)| group(name, versions, false)).collect();
            groups.extend(
                extra_groups(shared)
                    .iter()
                    .map(|(name, version)| group(name, std::slice::from_ref(version), false)),
            );
            let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
            Ok(answer::value(request, 200, &list))
        }
        ["apis", name] => {
            let served_group = registry.groups().iter().find(|(group_name, _)| group_name == name);
            let (name, versions) = served_group.ok_or_else(ApiError::unknown_path)?;
            Ok(answer::value(request, 200, &group(name, versions, true)))
        }
        ["api", version] => resources(request, &registry, "", version),
        ["apis", group, version] => resources(request, &registry, group, version),
        _ => Err(ApiError::unknown_path()),
    }
}

/// Returns an ETag of a document, in the upstream's form of 128 hexadecimal digits.
pub(super) fn etag(content: &[u8]) -> String {
    let digit = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, content).hash(&mut hasher);
        format!("{:016X}", hasher.finish())
    };
    (0..8).map(digit).collect()
}

fn resources(
    request: &Request,
    registry: &Registry,
    group: &str,
    version: &str,
) -> Result<Response<Body>, ApiError> {
    if !registry.has_version(group, version) {
        return Err(ApiError::unknown_path());
    }
    let kinds = registry.kinds().iter();
    let kinds = kinds.filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<Value> = kinds.flat_map(|kind| legacy(kind)).collect();
    let mut list = json!({"kind": "APIResourceList"});
    // The upstream's list of the core group has no apiVersion.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["groupVersion"] = api_version(group, version).into();
    list["resources"] = resources.into();
    Ok(answer::value(request, 200, &list))
}

/// Returns a kind and its subresources as `APIResource`s.
fn legacy(kind: &Kind) -> Vec<Value> {
    let mut resource = json!({"name": kind.resource, "singularName": kind.singular,
        "namespaced": kind.namespaced, "kind": kind.kind, "verbs": kind.verbs()});
    add_names(&mut resource, kind);
    if !kind.review {
        resource["storageVersionHash"] = storage_hash(kind).into();
    }
    let subresources = kind.subresources.iter().map(|name| {
        let (group, version, response_kind) = subresource_kind(kind, name);
        let mut value = json!({"name": format!("{}/{name}", kind.resource), "singularName": "",
            "namespaced": kind.namespaced});
        if !group.is_empty() {
            value["group"] = group.into();
            value["version"] = version.into();
        }
        value["kind"] = response_kind.into();
        value["verbs"] = subresource_verbs(name).into();
        value
    });
    std::iter::once(resource).chain(subresources).collect()
}

/// Adds the short names and the categories of a kind to its description.
fn add_names(resource: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        resource["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        resource["categories"] = kind.categories.clone().into();
    }
}

fn subresource_kind<'a>(kind: &'a Kind, name: &str) -> (&'a str, &'a str, &'a str) {
    match name {
        "scale" => ("autoscaling", "v1", "Scale"),
        "exec" => ("", "", "PodExecOptions"),
        "attach" => ("", "", "PodAttachOptions"),
        "portforward" => ("", "", "PodPortForwardOptions"),
        "proxy" => ("", "", "PodProxyOptions"),
        "eviction" => ("policy", "v1", "Eviction"),
        "binding" => ("", "", "Binding"),
        "token" => ("authentication.k8s.io", "v1", "TokenRequest"),
        _ => ("", "", &kind.kind),
    }
}

fn subresource_verbs(name: &str) -> Vec<&'static str> {
    match name {
        "status" | "scale" => vec!["get", "patch", "update"],
        "exec" | "attach" | "portforward" => vec!["create", "get"],
        "log" => vec!["get"],
        "finalize" => vec!["update"],
        "proxy" => vec!["create", "delete", "get", "patch", "update"],
        _ => vec!["create"],
    }
}

fn storage_hash(kind: &Kind) -> String {
    let hash = etag(format!("{}/{}", kind.group, kind.kind).as_bytes());
    hash.chars().take(11).chain("=".chars()).collect()
}

fn group(name: &str, versions: &[String], top: bool) -> Value {
    let version =
        |version: &String| json!({"groupVersion": api_version(name, version), "version": version});
    let described: Vec<Value> = versions.iter().map(version).collect();
    let preferred = versions.first().map(version);
    if top {
        return json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": described,
            "preferredVersion": preferred});
    }
    json!({"name": name, "versions": described, "preferredVersion": preferred})
}

fn named_groups(registry: &Registry) -> impl Iterator<Item = &'_ (String, Vec<String>)> {
    let groups = registry.groups().iter();
    groups.filter(|(name, _)| !name.is_empty())
}

/// Returns the group-versions of registered aggregated API servers.
fn extra_groups(shared: &Shared) -> Vec<(String, String)> {
    let paths = shared.aggregation.fixed.read();
    let mut versions: Vec<(String, String)> = paths
        .keys()
        .filter_map(|path| {
            let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
            (!version.contains('/')).then(|| (group.to_owned(), version.to_owned()))
        })
        .collect();
    versions.sort();
    versions
}

/// Returns the aggregated document, with its ETag.
fn aggregated(
    shared: &Shared,
    request: &Request,
    registry: &Registry,
    core: bool,
) -> Response<Body> {
    let groups = registry.groups().iter().filter(|(name, _)| name.is_empty() == core);
    let mut items: Vec<Value> = groups
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let kinds = registry.kinds().iter();
                    let kinds =
                        kinds.filter(|kind| kind.group == *name && kind.version == *version);
                    let resources: Vec<Value> = kinds.map(|kind| modern(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    if !core {
        items.extend(extra_items(shared));
    }
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items});
    let compact = encode::encode(&list);
    let tag = format!("\"{}\"", etag(&compact));
    let mut response = if request.header("if-none-match") == tag {
        answer::full(304, Vec::new())
    } else {
        answer::json(request, 200, compact)
    };
    let headers = response.headers_mut();
    answer::set(headers, header::CONTENT_TYPE, AGGREGATED);
    answer::set(headers, header::ETAG, &tag);
    answer::set(headers, header::VARY, "Accept");
    answer::set(headers, header::CACHE_CONTROL, "public");
    response
}

/// Returns the groups of registered aggregated API servers, built from their resource lists.
fn extra_items(shared: &Shared) -> Vec<Value> {
    let paths = shared.aggregation.fixed.read();
    let item = |(group, version): (String, String)| {
        let list = paths.get(&format!("/apis/{group}/{version}"))?;
        let resources: Vec<Value> = super::json::array(list, "/resources")
            .iter()
            .map(|resource| {
                let scope = if resource.get("namespaced") == Some(&Value::Bool(true)) { "Namespaced" } else { "Cluster" };
                json!({"resource": resource.get("name"),
                    "responseKind": {"group": group, "version": version, "kind": resource.get("kind")},
                    "scope": scope, "singularResource": resource.get("singularName"),
                    "verbs": resource.get("verbs")})
            })
            .collect();
        Some(json!({"metadata": {"name": group}, "versions": [
            {"version": version, "resources": resources, "freshness": "Current"}]}))
    };
    extra_groups(shared).into_iter().filter_map(item).collect()
}

/// Returns a kind as an `APIResourceDiscovery`.
fn modern(kind: &Kind) -> Value {
    let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
    let response = |group: &str, version: &str, response_kind: &str| json!({"group": group, "version": version, "kind": response_kind});
    let mut value = json!({"resource": kind.resource,
        "responseKind": response(&kind.group, &kind.version, &kind.kind),
        "scope": scope, "singularResource": kind.singular, "verbs": kind.verbs()});
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|name| {
            let (group, version, response_kind) = subresource_kind(kind, name);
            let is_default = version.is_empty();
            let (group, version) = if is_default {
                (kind.group.as_str(), kind.version.as_str())
            } else {
                (group, version)
            };
            json!({"subresource": name, "responseKind": response(group, version, response_kind),
                "verbs": subresource_verbs(name)})
        })
        .collect();
    add_names(&mut value, kind);
    if !subresources.is_empty() {
        value["subresources"] = subresources.into();
    }
    value
}
