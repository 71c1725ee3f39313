//! Combines discovery documents, CRDs and APIServices into the description of each resource.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::built_in_groups::is_built_in_group;
use crate::api::resource::{ApiResource, GroupVersionResource, Shape};
use crate::api::selectable::SelectableFields;
use crate::upstream::discovery::documents::{DiscoveredResource, ServedResources};

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

/// The relevant fields of an APIService.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct ApiService {
    #[serde(default)]
    metadata: ServiceMetadata,
    spec: ApiServiceSpec,
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Deserialize)]
struct ServiceMetadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct ApiServiceSpec {
    #[serde(default)]
    group: Box<str>,
    version: Box<str>,
    #[serde(default, deserialize_with = "is_present")]
    service: bool,
}

fn is_present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Returns the description of each served resource. `custom` and `services` are `None` if Weir's
/// identity may not list them.
pub(super) fn resolve(
    served: &ServedResources,
    custom: Option<&BTreeMap<String, CustomResource>>,
    services: Option<&BTreeMap<String, ApiService>>,
) -> HashMap<GroupVersionResource, Arc<ApiResource>> {
    let custom = custom_by_name(custom);
    let services = services.map(|services| {
        let by_version = services
            .values()
            .map(|service| ((&*service.spec.group, &*service.spec.version), service));
        by_version.collect::<HashMap<_, _>>()
    });
    let mut resources = HashMap::new();
    for ((group, version), all) in served {
        let built_in = is_built_in(group, version, services.as_ref());
        for listed in all {
            let gvr = GroupVersionResource::new(group, version, &listed.resource);
            let definition = custom.get(&(&**group, &*listed.resource)).and_then(|definition| {
                Some((
                    definition,
                    definition.spec.versions.iter().find(|v| *v.name == **version && v.served)?,
                ))
            });
            let resource = match definition {
                Some((definition, version)) => custom_resource(&gvr, listed, definition, version),
                None => typed_resource(&gvr, listed, !built_in),
            };
            resources.insert(gvr, Arc::new(resource));
        }
    }
    resources
}

/// Keeps the custom resources of `before` that are not served now although their definitions are
/// unchanged: an instance of the upstream that starts, or lags, does not serve them for a moment.
pub(super) fn keep_defined(
    resources: &mut HashMap<GroupVersionResource, Arc<ApiResource>>,
    before: &HashMap<GroupVersionResource, Arc<ApiResource>>,
    custom: Option<&BTreeMap<String, CustomResource>>,
) {
    let custom = custom_by_name(custom);
    for (gvr, known) in before {
        let definition = custom.get(&(&*gvr.group, &*gvr.resource));
        let is_defined =
            definition.is_some_and(|definition| revision(definition) == known.revision);
        if is_defined && known.shape == Shape::Custom && !resources.contains_key(gvr) {
            resources.insert(gvr.clone(), known.clone());
        }
    }
}

/// Returns a number that differs between definitions.
fn revision(definition: &CustomResource) -> u64 {
    let mut hasher = DefaultHasher::new();
    definition.hash(&mut hasher);
    hasher.finish()
}

type ByName<'a> = HashMap<(&'a str, &'a str), &'a CustomResource>;

fn custom_by_name(custom: Option<&BTreeMap<String, CustomResource>>) -> ByName<'_> {
    let all = custom.into_iter().flat_map(BTreeMap::values);
    all.map(|crd| ((&*crd.spec.group, &*crd.status.accepted_names.plural), crd)).collect()
}

/// Returns whether kube-apiserver serves a version itself, from typed Go structs.
fn is_built_in(
    group: &str,
    version: &str,
    services: Option<&HashMap<(&str, &str), &ApiService>>,
) -> bool {
    let service = services.and_then(|services| services.get(&(group, version)));
    match service {
        Some(service) if service.spec.service => false,
        Some(service)
            if service.metadata.labels.get(AUTOMANAGED).is_some_and(|v| v == "onstart") =>
        {
            true
        }
        _ => is_built_in_group(group),
    }
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

/// A label that kube-apiserver sets: `onstart` on the versions that it serves itself, `true` on
/// those of CRDs.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> ServedResources {
        let listed = |resource: &str, kind: &str| DiscoveredResource {
            resource: resource.into(),
            kind: kind.into(),
            namespaced: true,
            list_watchable: true,
        };
        ServedResources::from([
            (("".into(), "v1".into()), vec![listed("pods", "Pod")]),
            (("example.com".into(), "v1".into()), vec![listed("widgets", "Widget")]),
            (("metrics.k8s.io".into(), "v1beta1".into()), vec![listed("pods", "PodMetrics")]),
            (("new.k8s.io".into(), "v1".into()), vec![listed("things", "Thing")]),
        ])
    }

    fn widgets(generation: i64) -> BTreeMap<String, CustomResource> {
        let crd = serde_json::json!({
            "metadata": {"name": "widgets.example.com", "uid": "u", "generation": generation},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {},
                "versions": [{"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.color"}]}]},
            "status": {"acceptedNames": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetCollection"}},
        });
        BTreeMap::from([("widgets.example.com".to_owned(), serde_json::from_value(crd).unwrap())])
    }

    fn services() -> BTreeMap<String, ApiService> {
        let service = |group: &str, version: &str, service: bool, automanaged: &str| {
            let value = serde_json::json!({
                "metadata": {"name": "x", "labels": {AUTOMANAGED: automanaged}},
                "spec": {"group": group, "version": version, "service": service.then(|| serde_json::json!({"name": "s"}))},
            });
            (format!("{version}.{group}"), serde_json::from_value(value).unwrap())
        };
        BTreeMap::from([
            service("", "v1", false, "onstart"),
            service("example.com", "v1", false, "true"),
            service("metrics.k8s.io", "v1beta1", true, ""),
            service("new.k8s.io", "v1", false, "onstart"),
        ])
    }

    fn find(
        resources: &HashMap<GroupVersionResource, Arc<ApiResource>>,
        gvr: (&str, &str, &str),
    ) -> ApiResource {
        ApiResource::clone(&resources[&GroupVersionResource::new(gvr.0, gvr.1, gvr.2)])
    }

    #[test]
    fn custom_built_in_and_aggregated_resources_are_distinguished() {
        let (crds, services) = (widgets(1), services());
        let resources = resolve(&served(), Some(&crds), Some(&services));
        let pods = find(&resources, ("", "v1", "pods"));
        assert_eq!(
            (pods.shape, pods.aggregated, &*pods.list_kind),
            (Shape::BuiltIn, false, "PodList")
        );
        let widgets = find(&resources, ("example.com", "v1", "widgets"));
        assert_eq!((widgets.shape, widgets.aggregated), (Shape::Custom, false));
        assert_eq!(&*widgets.list_kind, "WidgetCollection");
        assert_eq!(widgets.selectable.len(), 1);
        assert!(find(&resources, ("metrics.k8s.io", "v1beta1", "pods")).aggregated);
        assert!(!find(&resources, ("new.k8s.io", "v1", "things")).aggregated);
    }

    #[test]
    fn unknown_groups_count_as_aggregated() {
        let resources = resolve(&served(), None, None);
        assert!(!find(&resources, ("", "v1", "pods")).aggregated);
        for gvr in [
            ("example.com", "v1", "widgets"),
            ("metrics.k8s.io", "v1beta1", "pods"),
            ("new.k8s.io", "v1", "things"),
        ] {
            assert!(find(&resources, gvr).aggregated, "{gvr:?}");
        }
    }

    /// An API server that starts serves a custom resource a moment after its definition.
    #[test]
    fn a_custom_resource_stays_while_its_definition_does() {
        let (crds, services) = (widgets(1), services());
        let before = resolve(&served(), Some(&crds), Some(&services));
        let gvr = GroupVersionResource::new("example.com", "v1", "widgets");
        let kept = |crds: Option<&BTreeMap<String, CustomResource>>| {
            let mut served = served();
            served.retain(|(group, _), _| group.is_empty());
            let mut resources = resolve(&served, crds, Some(&services));
            keep_defined(&mut resources, &before, crds);
            resources.get(&gvr).cloned()
        };
        assert_eq!(kept(Some(&crds)), Some(before[&gvr].clone()));
        assert_eq!(kept(Some(&widgets(2))), None, "the definition changed");
        assert_eq!(kept(Some(&BTreeMap::new())), None, "the definition was deleted");
        assert_eq!(kept(None), None);
    }

    #[test]
    fn a_changed_definition_has_another_revision() {
        let services = services();
        let revision = |generation| {
            let crds = widgets(generation);
            find(
                &resolve(&served(), Some(&crds), Some(&services)),
                ("example.com", "v1", "widgets"),
            )
            .revision
        };
        assert_eq!(revision(1), revision(1));
        assert_ne!(revision(1), revision(2));
    }
}
