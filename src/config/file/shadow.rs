//! The section of shadow mode.

use serde::{Deserialize, Serialize};

/// `shadow`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShadowSection {
    /// `off` or `compare`.
    pub mode: Option<String>,
    /// A percentage.
    pub cpu_share: Option<String>,
}
