//! `cache.dropManagedFields` as written.

use serde::{Deserialize, Serialize};

/// A rule of `cache.dropManagedFields`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropRuleSection {
    /// Products, or what they begin with and `*`.
    pub user_agents: Vec<String>,
    /// Patterns; none for all resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}
