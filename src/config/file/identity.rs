//! The sections `authentication`, `authorization` and `audit` of the file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `authentication`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationSection {
    /// `sidecar` or `gateway`.
    pub mode: Option<String>,
    /// The CA of client certificates, PEM.
    #[serde(rename = "clientCAFile", skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    /// The front proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_header: Option<RequestHeaderSection>,
    /// `forward`, `authorize` or `refuse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<String>,
    /// Bearer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensSection>,
    /// Weir's own front-proxy certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_proxy: Option<FrontProxySection>,
    /// Whether requests of users of certificates are forwarded by impersonation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<bool>,
}

/// `authentication.requestHeader`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestHeaderSection {
    /// The CA of the front proxies' certificates, PEM.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<PathBuf>,
    /// Common names.
    pub allowed_names: Option<Vec<String>>,
    /// Header names.
    pub username_headers: Option<Vec<String>>,
    /// Header names.
    pub uid_headers: Option<Vec<String>>,
    /// Header names.
    pub group_headers: Option<Vec<String>>,
    /// Prefixes of header names.
    pub extra_header_prefixes: Option<Vec<String>>,
}

/// `authentication.tokens`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokensSection {
    /// Audiences.
    pub audiences: Option<Vec<String>>,
    /// A duration.
    pub ttl: Option<String>,
}

/// `authentication.frontProxy`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontProxySection {
    /// The chain, PEM.
    pub certificate_file: Option<PathBuf>,
    /// The private key, PEM.
    pub private_key_file: Option<PathBuf>,
}

/// `authorization`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationSection {
    /// A duration.
    #[serde(rename = "allowTTL")]
    pub allow_ttl: Option<String>,
    /// A duration, or `never`.
    pub watch_recheck: Option<String>,
    /// A count.
    pub watch_reviews_per_second: Option<u32>,
    /// A duration.
    pub stale_decision_grace: Option<String>,
    /// Decisions by roles and bindings.
    pub rbac: Option<RbacSection>,
}

/// `authorization.rbac`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RbacSection {
    /// Whether Weir decides by roles and bindings.
    pub enabled: Option<bool>,
    /// A count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_one_in: Option<u32>,
}

/// `audit`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditSection {
    /// `none`, `stdout` or an absolute path.
    pub output: Option<String>,
    /// `blocking` or `dropping`.
    pub buffer: Option<String>,
    /// Which requests are logged.
    pub policy: Option<PolicySection>,
}

/// `audit.policy`, after audit.k8s.io/v1 Policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySection {
    /// The first rule that matches decides.
    pub rules: Option<Vec<RuleSection>>,
}

/// One of `audit.policy.rules`; empty lists are omitted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleSection {
    /// `None` or `Metadata`.
    pub level: Option<String>,
    /// User names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_groups: Vec<String>,
    /// Verbs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Resources by group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<GroupResourcesSection>,
    /// Paths.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// The resources of one group in a rule, after audit.k8s.io/v1 GroupResources.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupResourcesSection {
    /// The group; empty for the core one.
    pub group: String,
    /// Resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
}
