//! The section `flowControl`. What it shares with FlowSchemas and PriorityLevelConfigurations has
//! their field names; unlike there, an unknown field is an error.

use serde::{Deserialize, Serialize};

/// `flowControl`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowControlSection {
    /// `off`, `observe` or `enforce`.
    pub mode: Option<String>,
    /// The seats of one API server.
    pub seats_per_server: Option<u64>,
    /// `off`, `observe` or `enforce`.
    pub adaptive: Option<String>,
    /// Priority levels beside the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<FlowLevelSection>,
    /// Rules beside the cluster's FlowSchemas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FlowRuleSection>,
}

/// `flowControl.levels[]`: a priority level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowLevelSection {
    /// Its name.
    pub name: String,
    /// The level of kube-apiserver as which it ranks; `catch-all` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// `spec.limited` of a PriorityLevelConfiguration.
    pub limited: LimitedSection,
}

/// `spec.limited` of a PriorityLevelConfiguration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitedSection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominal_concurrency_shares: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lendable_percent: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowing_limit_percent: Option<i32>,
    pub limit_response: LimitResponseSection,
}

/// `limitResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitResponseSection {
    /// `Queue` or `Reject`.
    pub r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queuing: Option<QueuingSection>,
}

/// `queuing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueuingSection {
    #[serde(default)]
    pub queues: i64,
    #[serde(default)]
    pub hand_size: i64,
    #[serde(default)]
    pub queue_length_limit: i64,
}

/// `flowControl.rules[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowRuleSection {
    /// Its name.
    pub name: String,
    /// `spec.rules` of a FlowSchema; without it, every request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub r#match: Vec<FlowMatchSection>,
    /// First products of User-Agents, such as `kubectl/*`; without them, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_agents: Vec<String>,
    /// `enforce` or `observe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `all` or `upstream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The limits of each flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<FlowLimitsSection>,
    /// The priority level of what is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// `ByUser`, `ByNamespace`, `ByUserAgent`, `ByUserAndAgent` or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinguisher: Option<String>,
}

/// `limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowLimitsSection {
    /// At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Requests that may come at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// A size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<String>,
    /// Open watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watches: Option<u32>,
    /// `forbid`, or the size of a collection that may be listed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpaged_lists: Option<String>,
}

/// A member of `spec.rules` of a FlowSchema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowMatchSection {
    #[serde(default)]
    pub subjects: Vec<FlowSubjectSection>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_rules: Vec<ResourceRuleSection>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_resource_rules: Vec<NonResourceRuleSection>,
}

/// A member of `subjects`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowSubjectSection {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<NameSection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<NameSection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountSection>,
}

/// A user or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NameSection {
    pub name: String,
}

/// A service account, or `*` for all of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccountSection {
    pub namespace: String,
    pub name: String,
}

/// A member of `resourceRules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceRuleSection {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    #[serde(default)]
    pub namespaces: Vec<String>,
    #[serde(default)]
    pub cluster_scope: bool,
}

/// A member of `nonResourceRules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NonResourceRuleSection {
    pub verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}
