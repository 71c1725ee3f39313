//! The section of tracing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `tracing`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TracingSection {
    /// A URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only with `https://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// At most a million.
    pub sampling_rate_per_million: Option<u32>,
}
