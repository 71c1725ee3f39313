//! The kinds that CustomResourceDefinitions declare.

use serde_json::Value;

use super::kind::Kind;
use crate::defaults;
use crate::json::{array, text, texts};
use weir_api::built_in_groups::is_built_in_group;

/// Returns the JSON paths of a version's selectable fields.
fn selectable(version: &Value) -> Vec<String> {
    let fields = array(version, "/selectableFields").iter();
    fields.map(|field| text(field, "/jsonPath").to_owned()).collect()
}

/// Returns the kinds that a CustomResourceDefinition declares, one for each served version, the
/// storage version first.
pub(super) fn custom_kinds(definition: &Value) -> Vec<Kind> {
    let resource = text(definition, "/spec/names/plural");
    let kind = text(definition, "/spec/names/kind");
    let or = |given: &str, default: String| {
        if given.is_empty() { default } else { given.to_owned() }
    };
    let mut versions: Vec<&Value> = array(definition, "/spec/versions").iter().collect();
    versions.retain(|version| version.pointer("/served") == Some(&Value::Bool(true)));
    versions.sort_by_key(|version| version.pointer("/storage") != Some(&Value::Bool(true)));
    let kind = |version: &&Value| Kind {
        group: text(definition, "/spec/group").to_owned(),
        version: text(version, "/name").to_owned(),
        resource: resource.to_owned(),
        kind: kind.to_owned(),
        list_kind: or(text(definition, "/spec/names/listKind"), format!("{kind}List")),
        singular: or(text(definition, "/spec/names/singular"), kind.to_lowercase()),
        namespaced: text(definition, "/spec/scope") != "Cluster",
        short_names: texts(definition, "/spec/names/shortNames"),
        categories: texts(definition, "/spec/names/categories"),
        subresources: version
            .pointer("/subresources")
            .and_then(Value::as_object)
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default(),
        // A definition in a group of kube-apiserver stands for a kind of its own that is missing
        // here.
        custom: !is_built_in_group(text(definition, "/spec/group")),
        review: false,
        bookmark_tail: String::new(),
        selectable: selectable(version),
        indexed: versions.iter().flat_map(|version| selectable(version)).collect(),
        columns: array(version, "/additionalPrinterColumns").to_vec(),
        schema: version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default(),
        defaults: version.pointer("/schema/openAPIV3Schema").is_some_and(defaults::any),
        warning: (version.pointer("/deprecated") == Some(&Value::Bool(true))).then(|| {
            let group_version =
                format!("{}/{}", text(definition, "/spec/group"), text(version, "/name"));
            or(
                text(version, "/deprecationWarning"),
                format!("{group_version} {kind} is deprecated"),
            )
        }),
    };
    versions.iter().map(kind).collect()
}
