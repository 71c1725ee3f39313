//! Combines discovery documents, CRDs and APIServices into the description of each resource.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;

use crate::api::built_in_groups::is_built_in_group;
use crate::api::keyed_hash::BuildHashOfHash;
use crate::api::resource::{ApiResource, GroupVersionResource, Shape};
use crate::api::selectable::SelectableFields;
use crate::upstream::discovery::api_services::{AggregatedVersions, ApiServices, Manager};
use crate::upstream::discovery::documents::{DiscoveredResource, ServedResources};
use crate::upstream::discovery::informer::Facts;

pub(super) type Resources = HashMap<GroupVersionResource, Arc<ApiResource>, BuildHashOfHash>;

/// The relevant fields of a CustomResourceDefinition.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
pub(super) struct CustomResource {
    metadata: CrdMetadata,
    spec: CrdSpec,
    #[serde(default)]
    status: CrdStatus,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
struct CrdMetadata {
    uid: Box<str>,
    /// Changes with the spec: schema, defaults, conversion, versions.
    #[serde(default)]
    generation: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
struct CrdSpec {
    group: Box<str>,
    versions: Vec<CrdVersion>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrdVersion {
    name: Box<str>,
    served: bool,
    #[serde(default)]
    selectable_fields: Vec<SelectableField>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CrdStatus {
    accepted_names: CrdNames,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CrdNames {
    plural: Box<str>,
    kind: Box<str>,
    list_kind: Box<str>,
}

/// The clients that read from the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// All have Weir's identity: sidecar mode.
    One,
    /// Each has an identity of its own: gateway mode.
    Many,
}

/// The facts that decide which server answers for a resource, and how it writes the objects.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// The definitions of custom resources, by name; `None` if they are not known.
    pub(super) definitions: Option<&'a BTreeMap<String, CustomResource>>,
    /// The APIServices.
    pub(super) services: ApiServices<'a>,
    /// The versions that aggregated API servers serve, or served a moment ago.
    pub(super) aggregated: &'a AggregatedVersions,
    /// The clients that read from the caches.
    pub(super) readers: Readers,
}

/// The form in which the API server itself writes the objects of a resource.
enum Local<'a> {
    Custom(&'a CustomResource, &'a CrdVersion),
    BuiltIn,
}

/// Returns the description of each served resource.
pub(super) fn resolve(served: &ServedResources, sources: Sources<'_>) -> Resources {
    let definitions = definitions_by_name(sources.definitions);
    let mut resources = Resources::default();
    for ((group, version), listed_resources) in served {
        for listed in listed_resources {
            let gvr = GroupVersionResource::new(group, version, &listed.resource);
            let definition = definitions.get(&(&**group, &*listed.resource)).copied();
            let resource = match sources.local(&gvr, definition) {
                Some(Local::Custom(definition, version)) => {
                    custom_resource(&gvr, listed, definition, version)
                }
                Some(Local::BuiltIn) => typed_resource(&gvr, listed, false),
                None => typed_resource(&gvr, listed, true),
            };
            resources.insert(gvr, Arc::new(resource));
        }
    }
    resources
}

impl Sources<'_> {
    /// Returns how the API server itself writes the objects of a resource; `None` if an aggregated
    /// API server answers for the resource, or if that cannot be ruled out, or if it is not known
    /// how they are written. The APIService comes first, as it does in kube-aggregator.
    fn local<'a>(
        &self,
        gvr: &GroupVersionResource,
        definition: Option<&'a CustomResource>,
    ) -> Option<Local<'a>> {
        let (group, version) = (&*gvr.group, &*gvr.version);
        if !self.is_local(group, version) {
            return None;
        }
        let definition = definition.and_then(|definition| {
            let mut versions = definition.spec.versions.iter();
            Some((
                definition,
                versions.find(|candidate| &*candidate.name == version && candidate.served)?,
            ))
        });
        let is_built_in = is_built_in_group(group);
        match (definition, self.services.manager(group, version)) {
            // kube-apiserver ignores definitions of resources that it has itself.
            (Some(_), Manager::ApiServer) => is_built_in.then_some(Local::BuiltIn),
            // It may have the version itself, or not.
            (Some(_), _) if is_built_in => None,
            (Some((definition, version)), _) => Some(Local::Custom(definition, version)),
            // The definition is not known yet.
            (None, Manager::Definitions) => None,
            (None, Manager::ApiServer) => Some(Local::BuiltIn),
            (None, Manager::Unknown) => is_built_in.then_some(Local::BuiltIn),
        }
    }

    /// Whether the API server itself answers for a version, for sure. An APIService may give any
    /// version to an aggregated API server, also one that kube-apiserver has itself.
    fn is_local(&self, group: &str, version: &str) -> bool {
        if self.aggregated.contains(&(group.into(), version.into())) {
            return false;
        }
        match self.services {
            ApiServices::Listed(_) | ApiServices::Absent => true,
            // The only reader may see all that an aggregated API server shows to Weir. Custom
            // resources are left out, because their groups are the ones that change their server.
            ApiServices::Unknown => self.readers == Readers::One && is_built_in_group(group),
        }
    }
}

/// Returns the custom resources whose definitions differ between two states of discovery. The
/// instances of an upstream learn of a change one after another. Meanwhile they write the same
/// objects in different bytes, so a cache that starts then verifies what it was given
/// (`docs/decisions/upstream-bytes.md`).
pub(super) fn redefined<'a>(
    before: &'a Resources,
    after: &'a Resources,
) -> impl Iterator<Item = GroupVersionResource> + 'a {
    let changed = after.iter().filter(|(gvr, resource)| {
        resource.shape == Shape::Custom
            && before.get(gvr).is_some_and(|previous| previous.revision != resource.revision)
    });
    changed.map(|(gvr, _)| gvr.clone())
}

/// Keeps the custom resources of `before` that are not served now although their definitions are
/// unchanged: an instance of the upstream that starts, or lags, does not serve them for a moment.
pub(super) fn keep_defined(resources: &mut Resources, before: &Resources, sources: Sources<'_>) {
    let definitions = definitions_by_name(sources.definitions);
    for (gvr, previous) in before {
        let definition = definitions.get(&(&*gvr.group, &*gvr.resource)).copied();
        let is_defined =
            definition.is_some_and(|definition| revision(definition) == previous.revision);
        let is_local = || matches!(sources.local(gvr, definition), Some(Local::Custom(..)));
        if is_defined
            && previous.shape == Shape::Custom
            && !resources.contains_key(gvr)
            && is_local()
        {
            resources.insert(gvr.clone(), previous.clone());
        }
    }
}

impl Facts for CustomResource {
    /// One that cannot be read defines nothing.
    fn unreadable() -> Option<Self> {
        None
    }
}

/// Returns a number that differs between definitions.
fn revision(definition: &CustomResource) -> u64 {
    let mut hasher = DefaultHasher::new();
    definition.hash(&mut hasher);
    hasher.finish()
}

type DefinitionsByName<'a> = HashMap<(&'a str, &'a str), &'a CustomResource>;

fn definitions_by_name(
    definitions: Option<&BTreeMap<String, CustomResource>>,
) -> DefinitionsByName<'_> {
    let crds = definitions.into_iter().flat_map(BTreeMap::values);
    crds.map(|crd| ((&*crd.spec.group, &*crd.status.accepted_names.plural), crd)).collect()
}

fn custom_resource(
    gvr: &GroupVersionResource,
    listed: &DiscoveredResource,
    definition: &CustomResource,
    version: &CrdVersion,
) -> ApiResource {
    let names = &definition.status.accepted_names;
    let list_kind = match &*names.list_kind {
        "" => format!("{}List", listed.kind),
        list_kind => list_kind.to_owned(),
    };
    let paths: Vec<_> =
        version.selectable_fields.iter().map(|field| field.json_path.clone()).collect();
    ApiResource {
        kind: (*listed.kind).into(),
        list_kind: list_kind.into(),
        namespaced: listed.namespaced,
        list_watchable: listed.list_watchable,
        shape: Shape::Custom,
        aggregated: false,
        revision: revision(definition),
        selectable: Arc::new(SelectableFields::custom(listed.namespaced, &paths)),
        gvr: gvr.clone(),
    }
}

fn typed_resource(
    gvr: &GroupVersionResource,
    listed: &DiscoveredResource,
    aggregated: bool,
) -> ApiResource {
    ApiResource {
        kind: (*listed.kind).into(),
        list_kind: format!("{}List", listed.kind).into(),
        namespaced: listed.namespaced,
        list_watchable: listed.list_watchable,
        shape: Shape::BuiltIn,
        aggregated,
        revision: 0,
        selectable: Arc::new(SelectableFields::built_in(gvr)),
        gvr: gvr.clone(),
    }
}

#[cfg(test)]
mod tests;
