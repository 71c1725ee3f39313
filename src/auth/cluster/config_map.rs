//! The config map `kube-system/extension-apiserver-authentication`, as kube-apiserver writes it
//! (`clusterauthenticationtrust`): CAs in PEM, lists as JSON in texts.
//!
//! Its two parts are judged apart, so that one which cannot be read does not keep the other from being followed.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::auth::request_header::{Names, RequestHeader};
use crate::auth::x509::{Bundle, BundleError};

/// Where it is.
pub(crate) const PATH: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The most that is read of it: an object in etcd has 1.5 MiB at most, and JSON escapes its line ends.
pub(crate) const BYTES_MAX: usize = 4 << 20;

/// Why a part of it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigMapError {
    /// It is no config map.
    #[error("it is not a config map")]
    Malformed,
    /// A CA is unusable.
    #[error("{key}: {error}")]
    Bundle {
        /// Under which key.
        key: &'static str,
        /// Why.
        error: BundleError,
    },
    /// A list is none.
    #[error("{0}: it is not a list of texts in JSON")]
    List(&'static str),
}

/// What is in it; compared to see whether it changed.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ConfigMap {
    /// Always told; an answer without it is of something else, and must not count as a config map without CAs.
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// Reads it from JSON.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ConfigMapError> {
        let map: Self = serde_json::from_slice(body).map_err(|_| ConfigMapError::Malformed)?;
        if map.kind == "ConfigMap" { Ok(map) } else { Err(ConfigMapError::Malformed) }
    }

    /// The CA of clients; `None` for none.
    pub(crate) fn client(&self) -> Result<Option<Bundle>, ConfigMapError> {
        self.bundle("client-ca-file")
    }

    /// The rights of front proxies; `None` for none.
    pub(crate) fn front_proxy(&self) -> Result<Option<RequestHeader>, ConfigMapError> {
        let Some(bundle) = self.bundle("requestheader-client-ca-file")? else { return Ok(None) };
        let names = Names::new(
            self.list("requestheader-allowed-names")?,
            &self.list("requestheader-username-headers")?,
            &self.list("requestheader-uid-headers")?,
            &self.list("requestheader-group-headers")?,
            &self.list("requestheader-extra-headers-prefix")?,
        );
        Ok(Some(RequestHeader { bundle, names }))
    }

    /// What the part with the CA of clients is made of.
    pub(crate) fn client_text(&self) -> Vec<&str> {
        self.data.get("client-ca-file").map(String::as_str).into_iter().collect()
    }

    /// What the part of front proxies is made of.
    pub(crate) fn front_proxy_text(&self) -> Vec<(&str, &str)> {
        let part = self.data.iter().filter(|(key, _)| key.starts_with("requestheader-"));
        part.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    fn bundle(&self, key: &'static str) -> Result<Option<Bundle>, ConfigMapError> {
        match self.data.get(key).filter(|pem| !pem.trim().is_empty()) {
            Some(pem) => Bundle::parse(pem.as_bytes())
                .map(Some)
                .map_err(|error| ConfigMapError::Bundle { key, error }),
            None => Ok(None),
        }
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
