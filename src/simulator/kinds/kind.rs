//! One kind of objects.

use serde_json::Value;

/// A resource in one version of its group.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural name, as in paths.
    pub(crate) resource: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    /// The singular name.
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    /// Short names, for discovery.
    pub(crate) short_names: Vec<String>,
    /// Categories such as `all`, for discovery.
    pub(crate) categories: Vec<String>,
    pub(crate) subresources: Vec<String>,
    /// Whether a CustomResourceDefinition declares it.
    pub(crate) custom: bool,
    /// Whether it can only be created, as reviews are.
    pub(crate) review: bool,
    /// The JSON that follows `metadata` in its bookmarks, without braces (`docs/semantics.md`
    /// Appendix A).
    pub(crate) bookmark_tail: String,
    /// The JSON paths of a custom resource's selectable fields, with their leading dot.
    pub(crate) selectable: Vec<String>,
    /// The selectable fields of all its versions, by which its objects are indexed.
    pub(crate) indexed: Vec<String>,
    /// `additionalPrinterColumns` of a custom resource.
    pub(crate) columns: Vec<Value>,
    /// The OpenAPI schema of a custom resource.
    pub(crate) schema: Value,
    /// Whether the schema has defaults.
    pub(crate) defaults: bool,
    /// The text of its deprecation warning, if it has one.
    pub(crate) warning: Option<String>,
}

impl Kind {
    /// Returns `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Returns the name of its collection in the store, which all versions share.
    pub(crate) fn storage(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }

    /// Returns whether the upstream has a watch cache for it (`docs/semantics.md` §3.9).
    pub(crate) fn cached(&self) -> bool {
        self.resource != "events"
    }

    /// Returns whether `metadata.generation` counts changes of the spec.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom
            || matches!(self.group.as_str(), "apps" | "batch" | "policy" | "networking.k8s.io")
            || matches!(self.resource.as_str(), "pods" | "customresourcedefinitions")
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|declared| declared == name)
    }

    /// Returns its verbs, for discovery.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        const ALL: &[&str] =
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        if self.review { &["create"] } else { ALL }
    }
}

/// Returns `v1` or `group/version`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
