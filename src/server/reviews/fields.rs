//! The managed fields of a review: which fields of its spec its sender has set
//! (structured-merge-diff, `fieldpath/serialize.go`).

use crate::server::reviews::messages::{NonResourceAttributes, ResourceAttributes, Spec, is_empty};

/// Returns `fieldsV1`. The fields stand in the order of their names.
pub(super) fn of_spec(spec: &Spec) -> String {
    let Spec { resource_attributes, non_resource_attributes, user, groups, extra, uid } = spec;
    let leaf = |is_set: bool| is_set.then(|| "{}".to_owned());
    let fields = [
        ("extra", (!extra.is_empty()).then(|| set(extra.keys().map(String::as_str)))),
        ("groups", leaf(!groups.is_empty())),
        ("nonResourceAttributes", non_resource_attributes.as_ref().map(of_path)),
        ("resourceAttributes", resource_attributes.as_ref().map(of_resource)),
        ("uid", leaf(!is_empty(uid))),
        ("user", leaf(!is_empty(user))),
    ];
    let fields = fields.iter().filter_map(|(name, fields)| {
        let fields = fields.as_ref()?;
        Some(format!(r#""f:{name}":{fields}"#))
    });
    let fields = fields.collect::<Vec<_>>().join(",");
    format!(r#"{{"f:spec":{{{fields}}}}}"#)
}

fn of_resource(attributes: &ResourceAttributes) -> String {
    let fields = [
        ("group", &attributes.group),
        ("name", &attributes.name),
        ("namespace", &attributes.namespace),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("verb", &attributes.verb),
        ("version", &attributes.version),
    ];
    set(fields.into_iter().filter(|(_, text)| !is_empty(text)).map(|(name, _)| name))
}

fn of_path(attributes: &NonResourceAttributes) -> String {
    let fields = [("path", &attributes.path), ("verb", &attributes.verb)];
    set(fields.into_iter().filter(|(_, text)| !is_empty(text)).map(|(name, _)| name))
}

/// Returns the set of an object and these fields of it, in order. An object without fields is a
/// leaf. The names need no escape in JSON.
fn set<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let fields: String = names.map(|name| format!(r#","f:{name}":{{}}"#)).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!(r#"{{".":{{}}{fields}}}"#) }
}
