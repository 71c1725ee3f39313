//! The kinds that the simulator serves: a static table of built-in ones, and those that the stored
//! CustomResourceDefinitions add. A [`Registry`] is a value; it is replaced whole when a CRD changes.

mod built_in;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use self::built_in::BUILT_IN;
use super::defaults;

/// One resource as one version of its group serves it.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The API group; empty for the core group.
    pub(super) group: String,
    /// The version.
    pub(super) version: String,
    /// The plural path word.
    pub(super) resource: String,
    /// The kind of its objects.
    pub(super) kind: String,
    /// The kind of its lists.
    pub(super) list_kind: String,
    /// The singular path word.
    pub(super) singular: String,
    /// Whether its objects live in namespaces.
    pub(super) namespaced: bool,
    /// Short names, for discovery.
    pub(super) short_names: Vec<String>,
    /// Categories such as `all`, for discovery.
    pub(super) categories: Vec<String>,
    /// Its subresources.
    pub(super) subresources: Vec<String>,
    /// Whether a CustomResourceDefinition declares it.
    pub(super) custom: bool,
    /// Whether it can only be created, as reviews are.
    pub(super) review: bool,
    /// What follows `metadata` in its bookmarks, in JSON, without braces (semantics.md Appendix A).
    pub(super) bookmark_tail: String,
    /// The JSON paths of a custom resource's selectable fields, with their leading dot.
    pub(super) selectable: Vec<String>,
    /// Those of all its versions, by which its objects are indexed.
    pub(super) indexed: Vec<String>,
    /// `additionalPrinterColumns` of a custom resource.
    pub(super) columns: Vec<Value>,
    /// The OpenAPI schema of a custom resource.
    pub(super) schema: Value,
    /// Whether the schema has defaults.
    defaults: bool,
    /// The text of its deprecation warning, if it has one.
    pub(super) warning: Option<String>,
}

impl Kind {
    /// `v1` or `group/version`.
    pub(super) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The name of its collection in the store: shared by all versions.
    pub(super) fn storage(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }

    /// Whether the upstream keeps a watch cache of it (semantics.md §3.9).
    pub(super) fn cached(&self) -> bool {
        self.resource != "events"
    }

    /// Whether `metadata.generation` counts its specs.
    pub(super) fn has_generation(&self) -> bool {
        self.custom
            || matches!(self.group.as_str(), "apps" | "batch" | "policy" | "networking.k8s.io")
            || matches!(self.resource.as_str(), "pods" | "customresourcedefinitions")
    }

    /// Whether its objects get defaults when they are read.
    pub(super) fn has_defaults(&self) -> bool {
        self.defaults
    }

    /// Whether it has this subresource.
    pub(super) fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|known| known == name)
    }

    /// The verbs of discovery.
    pub(super) fn verbs(&self) -> &'static [&'static str] {
        const ALL: &[&str] =
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        if self.review { &["create"] } else { ALL }
    }
}

/// All kinds served at one time.
#[derive(Debug, Default)]
pub(super) struct Registry {
    kinds: Vec<Arc<Kind>>,
    by_path: HashMap<(String, String, String), Arc<Kind>>,
    groups: Vec<(String, Vec<String>)>,
}

impl Registry {
    /// The built-in kinds, and those of the given CustomResourceDefinitions.
    pub(super) fn new<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let mut kinds: Vec<Arc<Kind>> =
            BUILT_IN.iter().map(|row| Arc::new(row.to_kind())).collect();
        kinds.extend(definitions.flat_map(custom_kinds).map(Arc::new));
        let by_path = kinds.iter().map(|kind| {
            let path = (kind.group.clone(), kind.version.clone(), kind.resource.clone());
            (path, Arc::clone(kind))
        });
        Self { by_path: by_path.collect(), groups: groups(&kinds), kinds }
    }

    /// All kinds, in the order of discovery.
    pub(super) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind at a path.
    pub(super) fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        let path = (group.to_owned(), version.to_owned(), resource.to_owned());
        self.by_path.get(&path).cloned()
    }

    /// The kind of an object by its `apiVersion` and `kind`.
    pub(super) fn find_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let mut found = self.kinds.iter();
        found.find(|known| known.kind == kind && known.api_version() == api_version).cloned()
    }

    /// Whether anything is served under a group and version.
    pub(super) fn has_version(&self, group: &str, version: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.version == version)
    }

    /// The groups with their versions, the preferred one first, in the order of the table; the core group is `""`.
    pub(super) fn groups(&self) -> &[(String, Vec<String>)] {
        &self.groups
    }
}

fn groups(kinds: &[Arc<Kind>]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for kind in kinds {
        let known = groups.iter_mut().find(|(group, _)| *group == kind.group);
        match known {
            Some((_, versions)) if versions.contains(&kind.version) => {}
            Some((_, versions)) => versions.push(kind.version.clone()),
            None => groups.push((kind.group.clone(), vec![kind.version.clone()])),
        }
    }
    groups
}

/// `v1` or `group/version`.
pub(super) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A string at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of an array at a JSON pointer.
pub(super) fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings of an array at a JSON pointer.
pub(super) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    array(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The JSON paths of a version's selectable fields.
fn selectable(version: &Value) -> Vec<String> {
    let fields = array(version, "/selectableFields").iter();
    fields.map(|field| text(field, "/jsonPath").to_owned()).collect()
}

/// The kinds that a CustomResourceDefinition declares, one a served version, the storage version first.
fn custom_kinds(definition: &Value) -> Vec<Kind> {
    let resource = text(definition, "/spec/names/plural");
    let kind = text(definition, "/spec/names/kind");
    let or = |given: &str, default: String| {
        if given.is_empty() { default } else { given.to_owned() }
    };
    let mut versions: Vec<&Value> = array(definition, "/spec/versions").iter().collect();
    versions.retain(|version| version.pointer("/served") == Some(&Value::Bool(true)));
    versions.sort_by_key(|version| version.pointer("/storage") != Some(&Value::Bool(true)));
    let one = |version: &&Value| Kind {
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
        custom: true,
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
    versions.iter().map(one).collect()
}
