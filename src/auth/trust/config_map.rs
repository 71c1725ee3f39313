//! The config map `kube-system/extension-apiserver-authentication`, as kube-apiserver writes it
//! (`clusterauthenticationtrust`): CAs in PEM, lists as JSON in strings.
//!
//! Its two parts are parsed separately, so that an invalid one does not prevent updates of the
//! other.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::auth::request_header::{RequestHeaderNames, RequestHeaderRules};
use crate::auth::x509::{Bundle, BundleError};

/// The path of the config map.
pub(crate) const PATH: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The maximum size of the response: an object in etcd has at most 1.5 MiB, and JSON escapes its
/// line ends.
pub(crate) const BYTES_MAX: usize = 4 << 20;

/// Why a part of the config map cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigMapError {
    /// The response is not a config map.
    #[error("it is not a config map")]
    Malformed,
    /// A bundle of CA certificates is invalid.
    #[error("{key}: {error}")]
    Bundle {
        /// The key of the bundle.
        key: &'static str,
        /// The defect of the bundle.
        error: BundleError,
    },
    /// The value of the key is not a list.
    #[error("{0}: it is not a JSON list of strings")]
    List(&'static str),
}

/// The content, which is compared to detect a change.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ConfigMap {
    /// Required: a response of another kind must not count as a config map without CAs.
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// Parses JSON.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ConfigMapError> {
        let map: Self = serde_json::from_slice(body).map_err(|_| ConfigMapError::Malformed)?;
        if map.kind == "ConfigMap" { Ok(map) } else { Err(ConfigMapError::Malformed) }
    }

    /// Returns the CA of clients, if the cluster has one.
    pub(crate) fn client_ca(&self) -> Result<Option<Bundle>, ConfigMapError> {
        self.bundle("client-ca-file")
    }

    /// Returns the rules for front proxies, if the cluster has any.
    pub(crate) fn front_proxy(&self) -> Result<Option<RequestHeaderRules>, ConfigMapError> {
        let Some(ca) = self.bundle(PROXY_CA)? else { return Ok(None) };
        Ok(Some(RequestHeaderRules { ca, names: self.header_names()? }))
    }

    /// Returns the headers of front proxies, if the cluster has any. A CA that Weir cannot parse
    /// does not matter: the API server may be able to.
    pub(crate) fn front_proxy_headers(&self) -> Result<Option<RequestHeaderNames>, ConfigMapError> {
        match self.text(PROXY_CA) {
            Some(_) => self.header_names().map(Some),
            None => Ok(None),
        }
    }

    fn header_names(&self) -> Result<RequestHeaderNames, ConfigMapError> {
        Ok(RequestHeaderNames::new(
            self.list("requestheader-allowed-names")?,
            &self.list("requestheader-username-headers")?,
            &self.list("requestheader-uid-headers")?,
            &self.list("requestheader-group-headers")?,
            &self.list("requestheader-extra-headers-prefix")?,
        ))
    }

    /// Returns the source text of the CA of clients.
    pub(crate) fn client_text(&self) -> Vec<&str> {
        self.data.get("client-ca-file").map(String::as_str).into_iter().collect()
    }

    /// Returns the source text of the rules for front proxies.
    pub(crate) fn front_proxy_text(&self) -> Vec<(&str, &str)> {
        let part = self.data.iter().filter(|(key, _)| key.starts_with("requestheader-"));
        part.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    fn bundle(&self, key: &'static str) -> Result<Option<Bundle>, ConfigMapError> {
        match self.text(key) {
            Some(pem) => Bundle::parse(pem.as_bytes())
                .map(Some)
                .map_err(|error| ConfigMapError::Bundle { key, error }),
            None => Ok(None),
        }
    }

    /// Returns the value of a key, unless it is blank.
    fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(String::as_str).filter(|text| !text.trim().is_empty())
    }

    fn list(&self, key: &'static str) -> Result<Vec<String>, ConfigMapError> {
        match self.data.get(key).filter(|list| !list.is_empty()) {
            // Go writes `null` for an empty list.
            Some(list) => serde_json::from_str::<Option<Vec<String>>>(list)
                .map(Option::unwrap_or_default)
                .map_err(|_| ConfigMapError::List(key)),
            None => Ok(Vec::new()),
        }
    }
}

/// The key of the CA of front proxies. Without it, the API server reads none of their headers.
const PROXY_CA: &str = "requestheader-client-ca-file";
