//! The YAML as written: plain structs that only mirror the file, everything optional. Unknown fields, wrong types and
//! duplicate keys are refused here, with line and column; what the values mean is judged by [`resolve`](super::resolve), once
//! flags have been laid over.
//!
//! Durations and sizes stay text here, so that all of those that are wrong are reported together.

mod identity;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use crate::config::file::identity::{
    AuditSection, AuthenticationSection, AuthorizationSection, FrontProxySection,
    GroupResourcesSection, PolicySection, RbacSection, RequestHeaderSection, RuleSection,
    TokensSection,
};

/// The `apiVersion` this build reads.
pub const API_VERSION: &str = "weir.dev/v1alpha1";

/// The `kind` this build reads.
pub const KIND: &str = "WeirConfiguration";

/// A configuration file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Where clients come in.
    #[serde(default)]
    pub server: ServerSection,
    /// Health and metrics.
    #[serde(default)]
    pub admin: AdminSection,
    /// The API server behind.
    #[serde(default)]
    pub upstream: UpstreamSection,
    /// What is cached.
    #[serde(default)]
    pub cache: CacheSection,
    /// Who clients are.
    #[serde(default)]
    pub authentication: AuthenticationSection,
    /// What they may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AuthorizationSection>,
    /// What is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditSection>,
    /// What is logged.
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
    /// Whether answers carry `X-Weir-Cache`.
    pub cache_header: Option<bool>,
    /// A duration.
    pub header_read_timeout: Option<String>,
    /// A duration.
    pub freshness_timeout: Option<String>,
    /// A duration.
    pub warmup_timeout: Option<String>,
    /// A duration.
    pub shutdown_timeout: Option<String>,
    /// A count.
    pub connections_per_address_max: Option<usize>,
    /// A duration.
    pub stall_timeout: Option<String>,
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
}

/// `certificate` of a listener: the files, or the names of one that Weir makes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateSection {
    /// The chain, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// The private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_file: Option<PathBuf>,
    /// What clients must trust, PEM.
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
    /// URLs that replace the kubeconfig's server.
    pub addresses: Option<Vec<String>>,
    /// A duration.
    pub connect_timeout: Option<String>,
    /// Whether HTTP/2 may be used.
    pub http2: Option<bool>,
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
    /// A count.
    pub page_size: Option<u32>,
}

/// `logging`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoggingSection {
    /// `text` or `json`.
    pub format: Option<String>,
    /// A filter in `tracing`'s syntax.
    pub filter: Option<String>,
}

impl ConfigFile {
    /// A file that leaves everything to the defaults.
    pub fn empty() -> Self {
        Self { api_version: API_VERSION.to_owned(), kind: KIND.to_owned(), ..Self::default() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let cause = |error: std::io::Error| FileError::Read { file: name.clone(), cause: error };
        let file = File::open(path).map_err(cause)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cause)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { file: name });
        }
        Self::parse(&name, &text)
    }

    /// Parses the text of a file; the name is for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        // Other components' files are told apart first: for a Deployment, "unknown field `metadata`" would mislead.
        let meta: TypeMeta = parse_yaml(file, text)?;
        for (field, found, expected) in
            [("apiVersion", meta.api_version, API_VERSION), ("kind", meta.kind, KIND)]
        {
            let found = found.unwrap_or_default();
            if found != expected {
                return Err(FileError::Type { file: file.to_owned(), field, expected, found });
            }
        }
        parse_yaml(file, text)
    }

    /// Writes it as YAML.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        serde_saphyr::to_string(self)
    }
}

/// Why a file can't be read as a configuration.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`].
    #[error("{file} has more than the {FILE_BYTES_MAX} bytes that a configuration may have")]
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
        /// What this build reads.
        expected: &'static str,
        /// What stands there; empty if nothing does.
        found: String,
    },
    /// No YAML, or an unknown field, or a value of the wrong type.
    #[error("{file}:{line}:{column}: {cause}{}", if field.is_empty() { String::new() } else { format!(" (field {field})") })]
    Syntax {
        /// The file.
        file: String,
        /// From 1.
        line: u64,
        /// From 1.
        column: u64,
        /// What is wrong.
        cause: String,
        /// The field on that line; empty if none can be told.
        field: String,
    },
}

/// What tells one kind of file from another; all else is let through.
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

/// The message on one line, without the parser's drawing of the place, which the caller names.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = text.collect::<Vec<_>>().join("; ");
    match text.rfind(" at line ").and_then(|place| text.get(..place)) {
        Some(message) => message.to_owned(),
        None => text,
    }
}

/// The field on the line of a mistake, whatever the parser says. Its value is not told: what was given by mistake may be a kubeconfig,
/// with a token on that very line.
fn field_at(text: &str, line: u64) -> String {
    let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.lines().nth(index).unwrap_or_default();
    let field = line.split_once(':').map_or("", |(field, _value)| field);
    let field = field.trim_start_matches([' ', '-']).trim_end();
    let plain = field.len() <= FIELD_BYTES_MAX && field.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { field.to_owned() } else { String::new() }
}

/// The longest name of a field is shorter.
const FIELD_BYTES_MAX: usize = 40;

/// A configuration of some hundred lines has some kilobytes; more is another file given by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;
