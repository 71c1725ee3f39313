//! Which server answers for a group and version: the API server itself, or an aggregated one.
//!
//! kube-aggregator looks at nothing but the APIService of the group and version
//! (`docs/semantics.md` §10.4). With `spec.service`, each request goes to that service, whatever
//! definitions there are, whatever labels the APIService has, and also while the service is down.
//! Without it, or without an APIService, the API server itself answers.
//!
//! API servers learn of a change one after another. When an APIService loses its service, one of
//! them may still ask the aggregated API server for a while; a list from there would become a cache
//! for everybody. So a version counts as aggregated for some time longer
//! (`docs/decisions/aggregated-apis.md`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::upstream::Upstream;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::discovery::documents::GroupVersion;
use crate::upstream::discovery::informer::{self, Collection, Facts, InformerState};
use crate::upstream::discovery::recently::Recently;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{Get, encode_query};

/// All APIServices.
pub(super) const API_SERVICES: Collection = Collection {
    path: "/apis/apiregistration.k8s.io/v1/apiservices",
    group: "apiregistration.k8s.io",
    resource: "apiservices",
};

/// The relevant fields of an APIService, which is named by its version and group.
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
    #[serde(default, deserialize_with = "is_present")]
    service: bool,
}

fn is_present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

impl ApiService {
    /// Whether an aggregated API server serves the version.
    pub(super) fn is_aggregated(&self) -> bool {
        self.spec.service
    }

    fn label(&self) -> &str {
        self.metadata.labels.get(AUTOMANAGED).map_or("", String::as_str)
    }
}

impl Facts for ApiService {
    /// One that cannot be read may have a service.
    fn unreadable() -> Option<Self> {
        let metadata = ServiceMetadata::default();
        Some(Self { metadata, spec: ApiServiceSpec { service: true } })
    }
}

/// The APIServices, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) enum ApiServices<'a> {
    /// All of them, by name.
    Listed(&'a BTreeMap<String, ApiService>),
    /// The upstream has no aggregator.
    Absent,
    /// Weir may not list them, or has not listed them yet.
    Unknown,
}

impl<'a> ApiServices<'a> {
    /// Takes them from their informer. `has_aggregator` is whether discovery lists the group of
    /// APIServices. If so, a 404 for them is not the API server's.
    pub(super) fn new(state: &'a InformerState<ApiService>, has_aggregator: bool) -> Self {
        match state {
            InformerState::Synced(services) => Self::Listed(services),
            InformerState::Absent if !has_aggregator => Self::Absent,
            InformerState::Absent | InformerState::Forbidden | InformerState::Pending => {
                Self::Unknown
            }
        }
    }

    /// Returns the groups and versions that aggregated API servers serve.
    pub(super) fn aggregated(self) -> impl Iterator<Item = GroupVersion> {
        let listed = match self {
            Self::Listed(services) => Some(services),
            Self::Absent | Self::Unknown => None,
        };
        let aggregated =
            listed.into_iter().flatten().filter(|(_, service)| service.is_aggregated());
        aggregated.filter_map(|(name, _)| {
            let (version, group) = name.split_once('.')?;
            Some((group.into(), version.into()))
        })
    }

    /// Returns the maker of the APIService of a version that the API server serves itself.
    pub(super) fn manager(self, group: &str, version: &str) -> Manager {
        let Self::Listed(services) = self else { return Manager::Unknown };
        let service = services.get(&name(group, version));
        match service.map_or("", ApiService::label) {
            "onstart" => Manager::ApiServer,
            "true" => Manager::Definitions,
            _ => Manager::Unknown,
        }
    }
}

/// The maker of an APIService, by a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// kube-apiserver, for a version of its own.
    ApiServer,
    /// kube-apiserver, for the versions of CustomResourceDefinitions.
    Definitions,
    /// Somebody else, or it is unknown.
    Unknown,
}

/// The versions that an aggregated API server serves, or served a moment ago.
pub(super) type AggregatedVersions = Recently<GroupVersion>;

/// Reads the APIService of a version, if there is one. Consistent: the upstream is asked for the
/// latest state. A list of one, because Weir's role need not allow to get one.
pub(super) async fn fetch(
    upstream: &Upstream,
    group: &str,
    version: &str,
) -> Result<Option<ApiService>, UpstreamError> {
    let name = encode_query(&name(group, version));
    let path = format!("{}?fieldSelector=metadata.name%3D{name}", API_SERVICES.path);
    let get = Get { timeout: FETCH_TIMEOUT, ..Get::json(&path) };
    let read = async {
        let answer = get.send(upstream).await?;
        read_body(answer.into_body(), SERVICE_BYTES_MAX).await
    };
    let body = with_timeout(FETCH_TIMEOUT, read).await?;
    informer::parse_list(&body, &path).map(|(_, services)| services.into_values().next())
}

/// Returns the name of the APIService of a version.
fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// How long one APIService may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response, which has one APIService with a certificate of a CA.
const SERVICE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A label that kube-apiserver sets: `onstart` on the versions that it serves itself, `true` on
/// those of CRDs.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
