//! Aggregated discovery documents: one for `/api`, one for `/apis` (`docs/semantics.md` §10). Every
//! supported API server serves them; without them nothing is known, and nothing is cached.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use crate::upstream::error::UpstreamError;
use crate::upstream::{Upstream, fetch};

/// A group and a version. The core group is empty.
pub(super) type GroupVersion = (Box<str>, Box<str>);

/// One resource as discovery lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DiscoveredResource {
    /// The plural name.
    pub resource: Box<str>,
    /// The kind of the objects.
    pub kind: Box<str>,
    /// Whether the objects have namespaces.
    pub namespaced: bool,
    /// Whether the verbs include both `list` and `watch`.
    pub list_watchable: bool,
}

pub(super) type ServedResources = BTreeMap<GroupVersion, Vec<DiscoveredResource>>;

/// The last documents of `/api` and `/apis`, with the ETags that let the upstream send only
/// changes.
#[derive(Default)]
pub(super) struct Documents {
    roots: [Root; 2],
}

#[derive(Default)]
struct Root {
    etag: Option<HeaderValue>,
    served: Arc<ServedResources>,
}

impl Documents {
    /// Reads the served resources. A group whose document cannot be read keeps its last resources,
    /// so that a broken aggregated API does not affect the others.
    pub(super) async fn refresh(
        &mut self,
        upstream: &Upstream,
    ) -> Result<ServedResources, UpstreamError> {
        let mut resources = ServedResources::new();
        for (root, path) in self.roots.iter_mut().zip(["/api", "/apis"]) {
            root.refresh(upstream, path).await?;
            resources.extend(root.served.iter().map(|(gv, listed)| (gv.clone(), listed.clone())));
        }
        Ok(resources)
    }
}

impl Root {
    async fn refresh(&mut self, upstream: &Upstream, path: &str) -> Result<(), UpstreamError> {
        let response =
            fetch::get(upstream, path, ACCEPT, self.etag.as_ref(), DOCUMENT_BYTES_MAX).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(());
        }
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        if content_type.contains("as=APIGroupDiscoveryList") {
            let (served, stale) = aggregated(response.body())?;
            self.served = Arc::new(keep_stale(served, stale, &self.served));
            self.etag = response.headers().get(ETAG).cloned();
            return Ok(());
        }
        Err(UpstreamError::Malformed(format!(
            "{path} is no aggregated discovery (apidiscovery.k8s.io/v2), which Kubernetes has since \
             1.30"
        )))
    }
}

/// Restores the last resources of versions that the upstream marks as stale and lists as empty.
fn keep_stale(
    mut served: ServedResources,
    stale: Vec<GroupVersion>,
    last: &ServedResources,
) -> ServedResources {
    for group_version in stale {
        let listed = served.entry(group_version.clone()).or_default();
        if listed.is_empty()
            && let Some(last) = last.get(&group_version)
        {
            listed.clone_from(last);
        }
    }
    served
}

fn aggregated(body: &[u8]) -> Result<(ServedResources, Vec<GroupVersion>), UpstreamError> {
    let list: GroupDiscoveryList = serde_json::from_slice(body)
        .map_err(|_| UpstreamError::Malformed("aggregated discovery".to_owned()))?;
    let (mut served, mut stale) = (ServedResources::new(), Vec::new());
    for group in list.items {
        for version in group.versions {
            let group_version = (group.metadata.name.clone(), version.version);
            if version.freshness == "Stale" {
                stale.push(group_version.clone());
            }
            let listed = version.resources.into_iter().filter_map(|resource| {
                Some(DiscoveredResource {
                    kind: resource.response_kind?.kind,
                    namespaced: resource.scope == "Namespaced",
                    list_watchable: is_list_watchable(&resource.verbs.unwrap_or_default()),
                    resource: resource.resource,
                })
            });
            served.insert(group_version, listed.collect());
        }
    }
    Ok((served, stale))
}

fn is_list_watchable(verbs: &[Box<str>]) -> bool {
    ["list", "watch"].iter().all(|wanted| verbs.iter().any(|verb| &**verb == *wanted))
}

#[derive(Deserialize)]
struct GroupDiscoveryList {
    #[serde(default)]
    items: Vec<GroupDiscovery>,
}

#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default)]
    versions: Vec<VersionDiscovery>,
}

#[derive(Default, Deserialize)]
struct GroupMetadata {
    /// Absent for the core group.
    #[serde(default)]
    name: Box<str>,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: Box<str>,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<ResourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: Box<str>,
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    /// `null` in an aggregated API server's document that names no verbs.
    verbs: Option<Vec<Box<str>>>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Box<str>,
}

/// An older or other server answers with another document, and not with a 406.
const ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// The largest document. That of a cluster with a thousand CRDs has a few megabytes.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_documents_are_parsed() {
        let body = br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
            {"metadata":{},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","verbs":["get","list","watch"],"subresources":[]},
                {"resource":"bindings","responseKind":{"group":"","version":"","kind":"Binding"},"scope":"Namespaced","verbs":["create"]},
                {"resource":"odd","scope":"Cluster","verbs":[]}]}]},
            {"metadata":{"name":"subresources.kubevirt.io"},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"expand-vm-spec","responseKind":{"group":"","version":"","kind":"VirtualMachine"},"scope":"Namespaced","verbs":null}]}]},
            {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]}"#;
        let (served, stale) = aggregated(body).unwrap();
        let core = &served[&("".into(), "v1".into())];
        assert_eq!(core.len(), 2);
        assert!(core[0].list_watchable && core[0].namespaced);
        assert!(!core[1].list_watchable);
        let kubevirt = &served[&("subresources.kubevirt.io".into(), "v1".into())];
        assert!(!kubevirt[0].list_watchable);
        assert_eq!(stale, [("metrics.k8s.io".into(), "v1beta1".into())]);

        let last = ServedResources::from([(stale[0].clone(), core.clone())]);
        let kept = keep_stale(served, stale.clone(), &last);
        assert_eq!(kept[&stale[0]].len(), 2, "a stale group keeps its last resources");
    }
}
