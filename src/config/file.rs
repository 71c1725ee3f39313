//! The YAML file as written: plain structs that mirror the file, with every field optional. Unknown
//! fields, wrong types and duplicate keys are errors here, with line and column.
//! [`resolve`](super::resolve) validates the values, after it applied the flags.
//!
//! Durations and sizes stay text here, so that all wrong values are reported together.

mod drop_rule;
mod flow_control;
mod identity;
mod logging;
mod shadow;
mod tracing;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use crate::config::file::drop_rule::DropRuleSection;
pub use crate::config::file::flow_control::{
    FlowControlSection, FlowLevelSection, FlowLimitsSection, FlowRuleSection,
};
pub use crate::config::file::identity::{
    AuditSection, AuthenticationSection, AuthorizationSection, FrontProxySection,
    GroupResourcesSection, PolicySection, RbacSection, RequestHeaderSection, RuleSection,
    TokensSection,
};
pub use crate::config::file::logging::LoggingSection;
pub use crate::config::file::shadow::ShadowSection;
pub use crate::config::file::tracing::TracingSection;

/// The `apiVersion` that this build reads.
pub const API_VERSION: &str = "weir.dev/v1alpha1";

/// The `kind` that this build reads.
pub const KIND: &str = "WeirConfiguration";

/// A configuration file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Listeners.
    #[serde(default)]
    pub server: ServerSection,
    /// Health and metrics.
    #[serde(default)]
    pub admin: AdminSection,
    /// The API server.
    #[serde(default)]
    pub upstream: UpstreamSection,
    /// Caches.
    #[serde(default)]
    pub cache: CacheSection,
    /// How clients are authenticated.
    #[serde(default)]
    pub authentication: AuthenticationSection,
    /// How clients are authorized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AuthorizationSection>,
    /// The audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditSection>,
    /// Clients' costs.
    #[serde(default)]
    pub flow_control: FlowControlSection,
    /// The comparison of the caches with the API server.
    #[serde(default)]
    pub shadow: ShadowSection,
    /// Spans.
    #[serde(default)]
    pub tracing: TracingSection,
    /// The log.
    #[serde(default)]
    pub logging: LoggingSection,
}

/// `server`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerSection {
    /// The listeners.
    pub listeners: Option<Vec<ListenerSection>>,
    /// More names for a request's Host.
    pub allowed_hosts: Option<Vec<String>>,
    /// A duration.
    pub shutdown_delay: Option<String>,
    /// A duration.
    pub shutdown_timeout: Option<String>,
    /// A count.
    pub connections_per_address_max: Option<usize>,
    /// A count.
    pub connections_per_user_max: Option<usize>,
    /// At least 1.
    pub watches_per_user_max: Option<usize>,
}

/// One of `server.listeners`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerSection {
    /// `https://`, `http://` or `unix://`.
    pub listen: String,
    /// Only with `https://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateSection>,
    /// Not with `unix://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocolSection>,
}

/// `proxyProtocol` of a listener.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyProtocolSection {
    /// Networks in CIDR notation, or addresses.
    pub trusted_networks: Vec<String>,
}

/// `certificate` of a listener: its files, or the names of a certificate that Weir generates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateSection {
    /// The chain, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// The private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_file: Option<PathBuf>,
    /// The CA that clients must trust, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// DNS names and IP addresses of a generated certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_names: Option<Vec<String>>,
}

/// `admin`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminSection {
    /// An address and port, or `none`.
    pub listen: Option<String>,
    /// A Unix socket beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// `local` or `none`.
    pub detail: Option<String>,
    /// Whether `/readyz` passes while the upstream is away and caches can answer.
    pub ready_when_away: Option<bool>,
}

/// `upstream`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamSection {
    /// The kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Where the addresses of the API servers come from.
    #[serde(default)]
    pub endpoints: EndpointsSection,
    /// A duration.
    pub connect_timeout: Option<String>,
    /// Whether HTTP/2 may be used.
    pub http2: Option<bool>,
}

/// `upstream.endpoints`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointsSection {
    /// URLs.
    #[serde(rename = "static")]
    pub static_urls: Option<Vec<String>>,
    /// A name, and a port or none.
    pub dns: Option<String>,
    /// Whether the EndpointSlices of `default/kubernetes` name API servers.
    pub endpoint_slice: Option<bool>,
}

/// `cache`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CacheSection {
    /// Patterns.
    pub include: Option<Vec<String>>,
    /// Patterns.
    pub exclude: Option<Vec<String>>,
    /// `version/resource` or `group/version/resource`.
    pub warm: Option<Vec<String>>,
    /// A duration.
    pub idle_timeout: Option<String>,
    /// A size.
    pub resource_bytes_max: Option<String>,
    /// A size.
    pub total_bytes_max: Option<String>,
    /// A size.
    pub history_bytes_max: Option<String>,
    /// A size.
    pub gzip_bytes_max: Option<String>,
    /// `keepStreams` or `endStreams`.
    pub on_relist: Option<String>,
    /// A count.
    pub forward_budget: Option<usize>,
    /// A duration, or `never`.
    pub max_staleness: Option<String>,
    /// `forward` or `auto`; `always` for tests.
    pub consistent_lists: Option<String>,
    /// `off`, `observe` or `enforce`.
    pub verify: Option<String>,
    /// Rules.
    pub drop_managed_fields: Option<Vec<DropRuleSection>>,
}

impl ConfigFile {
    /// Returns a file that sets nothing.
    pub fn empty() -> Self {
        Self { api_version: API_VERSION.to_owned(), kind: KIND.to_owned(), ..Self::default() }
    }

    /// Reads the text of a file.
    pub fn read_text(path: &Path) -> Result<String, FileError> {
        let name = path.display().to_string();
        let cause = |error: std::io::Error| FileError::Read { file: name.clone(), cause: error };
        let file = File::open(path).map_err(cause)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cause)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { file: name });
        }
        Ok(text)
    }

    /// Parses the text of a file. `file` is its name in error messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        // Files of another kind are detected first: for a Deployment, "unknown field `metadata`"
        // would mislead.
        let meta: TypeMeta = parse_yaml(file, text)?;
        for (field, value, expected) in
            [("apiVersion", meta.api_version, API_VERSION), ("kind", meta.kind, KIND)]
        {
            let value = value.unwrap_or_default();
            if value != expected {
                return Err(FileError::Type {
                    file: file.to_owned(),
                    field,
                    expected,
                    found: value,
                });
            }
        }
        parse_yaml(file, text)
    }

    /// Returns the file as YAML.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        serde_saphyr::to_string(self)
    }
}

/// Why a file is not a configuration.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The file has more than [`FILE_BYTES_MAX`] bytes.
    #[error("{file} has more than the {FILE_BYTES_MAX} bytes allowed for a configuration")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// Another `apiVersion` or `kind`.
    #[error("{file}: {field} must be {expected:?}, not {found:?}")]
    Type {
        /// The file.
        file: String,
        /// The field.
        field: &'static str,
        /// The value that this build reads.
        expected: &'static str,
        /// The value in the file; empty if there is none.
        found: String,
    },
    /// The text is not YAML, or has an unknown field or a value of the wrong type.
    #[error("{file}:{line}:{column}: {cause}{}", if field.is_empty() { String::new() } else { format!(" (field {field})") })]
    Syntax {
        /// The file.
        file: String,
        /// Counted from 1.
        line: u64,
        /// Counted from 1.
        column: u64,
        /// The parser's message.
        cause: String,
        /// The field on that line; empty if there is none.
        field: String,
    },
}

/// The fields that identify the kind of a file; all other fields are ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TypeMeta {
    api_version: Option<String>,
    kind: Option<String>,
}

fn parse_yaml<T: serde::de::DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let location = error.location().unwrap_or(serde_saphyr::Location::UNKNOWN);
        FileError::Syntax {
            file: file.to_owned(),
            line: location.line(),
            column: location.column(),
            cause: plain_message(&error),
            field: field_at(text, location.line()),
        }
    })
}

/// Returns the parser's message on one line, without its drawing of the location, which the caller
/// reports.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = text.collect::<Vec<_>>().join("; ");
    match text.rfind(" at line ").and_then(|place| text.get(..place)) {
        Some(message) => message.to_owned(),
        None => text,
    }
}

/// Returns the field on the line of an error. Its value is never reported: the file may be a
/// kubeconfig given by mistake, with a token on that line.
fn field_at(text: &str, line: u64) -> String {
    let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.lines().nth(index).unwrap_or_default();
    let field = line.split_once(':').map_or("", |(field, _value)| field);
    let field = field.trim_start_matches([' ', '-']).trim_end();
    let plain = field.len() <= FIELD_BYTES_MAX && field.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { field.to_owned() } else { String::new() }
}

/// Longer than the longest field name.
const FIELD_BYTES_MAX: usize = 40;

/// A configuration has a few kilobytes; a larger file was given by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;
