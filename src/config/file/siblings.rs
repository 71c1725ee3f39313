//! `cache.siblings` as written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `cache.siblings`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SiblingsSection {
    /// URLs.
    pub addresses: Option<Vec<String>>,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// A DNS name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_file: Option<PathBuf>,
}
