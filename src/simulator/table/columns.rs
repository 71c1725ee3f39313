//! The columns of each kind's table, and the cells of the simpler kinds (`docs/semantics.md`
//! Appendix B).

use serde_json::{Value, json};

use super::age::age;
use super::workloads;
use crate::json::{array, text};
use crate::kinds::Kind;

pub(super) fn definitions(kind: &Kind) -> Value {
    if kind.custom {
        return custom_definitions(kind);
    }
    let columns: Vec<Value> = columns(kind).split(", ").map(definition).collect();
    Value::Array(columns)
}

/// Returns whether a kind has no printer of its own.
pub(super) fn is_default(kind: &Kind) -> bool {
    columns(kind) == DEFAULT
}

/// Returns the cells of an object's row.
pub(super) fn cells(kind: &Kind, object: &Value) -> Value {
    if kind.custom {
        return custom_cells(kind, object);
    }
    let name = text(object, "/metadata/name");
    let created = text(object, "/metadata/creationTimestamp");
    let age = age(created);
    let count = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
    };
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "configmaps") => json!([name, count("/data") + count("/binaryData"), age]),
        ("", "secrets") => json!([name, text(object, "/type"), count("/data"), age]),
        ("", "namespaces") => json!([name, text(object, "/status/phase"), age]),
        ("", "serviceaccounts") => json!([name, age]),
        ("", "pods") => workloads::pod(object, &age),
        ("", "nodes") => workloads::node(object, &age),
        ("", "services") => workloads::service(object, &age),
        ("", "events") => workloads::event(object),
        ("apps", "deployments") => workloads::deployment(object, &age),
        ("apps", "replicasets") => workloads::replica_set(object, &age),
        ("apps", "statefulsets") => workloads::stateful_set(object, &age),
        ("coordination.k8s.io", _) => json!([name, text(object, "/spec/holderIdentity"), age]),
        ("discovery.k8s.io", _) => workloads::endpoint_slice(object, &age),
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => {
            binding(object, name, &age)
        }
        ("apiregistration.k8s.io", _) => {
            let available = text(object, "/status/conditions/0/status");
            let available = if available.is_empty() { "Unknown" } else { available };
            let service = match text(object, "/spec/service/name") {
                "" => "Local".to_owned(),
                name => format!("{}/{name}", text(object, "/spec/service/namespace")),
            };
            json!([name, service, available, age])
        }
        ("storage.k8s.io", "storageclasses") => {
            json!([name, text(object, "/provisioner"), "Delete", "Immediate", false, age])
        }
        _ if columns(kind) == NAME_AGE => json!([name, age]),
        _ => {
            let created = if created.is_empty() { "0001-01-01T00:00:00Z" } else { created };
            json!([name, created])
        }
    }
}

fn binding(object: &Value, name: &str, age: &str) -> Value {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subject_names = |kind: &str| {
        let subjects = array(object, "/subjects").iter();
        let names = subjects.filter(|subject| text(subject, "/kind") == kind).map(|subject| {
            match text(subject, "/namespace") {
                "" => text(subject, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(subject, "/name")),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    };
    json!([
        name,
        role,
        age,
        subject_names("User"),
        subject_names("Group"),
        subject_names("ServiceAccount")
    ])
}

/// Parses `Name:type*`: the type defaults to string, and the star marks a column that only `-o
/// wide` shows.
fn definition(column: &str) -> Value {
    let (column, priority) = match column.strip_suffix('*') {
        Some(column) => (column, 1),
        None => (column, 0),
    };
    let (name, kind) = column.split_once(':').unwrap_or((column, "string"));
    let format = if name == "Name" { "name" } else { "" };
    json!({"name": name, "type": kind, "format": format, "description": description(name),
        "priority": priority})
}

fn description(name: &str) -> &'static str {
    match name {
        "Name" => {
            "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
        }
        "Age" | "Created At" => {
            "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
        }
        _ => "",
    }
}

fn custom_definitions(kind: &Kind) -> Value {
    let mut columns = vec![definition("Name")];
    let declared = kind.columns.iter().map(|column| {
        let path = text(column, "/jsonPath");
        let fallback = format!("Custom resource definition column (in JSONPath format): {path}");
        let description = match text(column, "/description") {
            "" => fallback,
            given => given.to_owned(),
        };
        json!({"name": text(column, "/name"), "type": text(column, "/type"),
            "format": text(column, "/format"), "description": description,
            "priority": column.get("priority").and_then(Value::as_i64).unwrap_or(0)})
    });
    columns.extend(declared);
    if kind.columns.is_empty() {
        columns.push(json!({"name": "Age", "type": "date", "format": "",
            "description": description("Age"), "priority": 0}));
    }
    Value::Array(columns)
}

fn custom_cells(kind: &Kind, object: &Value) -> Value {
    let mut cells = vec![json!(text(object, "/metadata/name"))];
    for column in &kind.columns {
        let path = text(column, "/jsonPath").replace('.', "/");
        let value = object.pointer(&path).cloned().unwrap_or_default();
        cells.push(match (text(column, "/type"), value) {
            (_, Value::Null) => Value::Null,
            ("date", value) => age(value.as_str().unwrap_or_default()).into(),
            ("string", Value::String(text)) => text.into(),
            ("string", other) => other.to_string().into(),
            (_, other) => other,
        });
    }
    if kind.columns.is_empty() {
        cells.push(age(text(object, "/metadata/creationTimestamp")).into());
    }
    Value::Array(cells)
}

const DEFAULT: &str = "Name, Created At:date";
const NAME_AGE: &str = "Name, Age";

fn columns(kind: &Kind) -> &'static str {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "configmaps") => "Name, Data, Age",
        ("", "secrets") => "Name, Type, Data, Age",
        ("", "namespaces") => "Name, Status, Age",
        ("", "serviceaccounts") => NAME_AGE,
        ("", "pods") => {
            "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*"
        }
        ("", "nodes") => {
            "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, Container-Runtime*"
        }
        ("", "services") => "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*",
        ("", "events") => {
            "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*"
        }
        ("apps", "deployments") => {
            "Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*"
        }
        ("apps", "replicasets") => {
            "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*"
        }
        ("apps", "statefulsets") => "Name, Ready, Age, Containers*, Images*",
        ("coordination.k8s.io", _) => "Name, Holder, Age",
        ("discovery.k8s.io", _) => "Name, AddressType, Ports, Endpoints, Age",
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => {
            "Name, Role, Age, Users*, Groups*, ServiceAccounts*"
        }
        ("apiregistration.k8s.io", _) => "Name, Service, Available, Age",
        ("storage.k8s.io", "storageclasses") => {
            "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion:boolean, Age"
        }
        ("" | "rbac.authorization.k8s.io" | "apiextensions.k8s.io", _) => DEFAULT,
        _ => NAME_AGE,
    }
}
