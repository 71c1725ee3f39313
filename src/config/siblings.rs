//! Which other Weirs a cache may be filled from (`docs/decisions/seeding-from-siblings.md`).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The most siblings that are known at a time.
pub const SIBLINGS_MAX: usize = 32;

/// How long a new cache waits for siblings. Its ordinary list begins at most this much later than
/// without siblings.
pub const SEED_TIMEOUT: Duration = Duration::from_secs(2);

/// The weight of the objects that are sent at most: what one Weir hashes, sends, and the other one
/// decodes and hashes, within about half of [`SEED_TIMEOUT`]. Lists of 245 MB take 2.5 s.
pub const SEED_BYTES_MAX: usize = 64 << 20;

/// How much of a sibling's list is compared with the API server before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedPart {
    /// The objects whose metadata are compared: those of a page of the comparison that follows.
    pub objects: usize,
    /// The bytes of the first objects that are compared byte for byte, beside one object.
    pub whole_bytes: usize,
}

impl Default for ComparedPart {
    fn default() -> Self {
        Self { objects: COMPARED_OBJECTS, whole_bytes: COMPARED_BYTES }
    }
}

pub(crate) const COMPARED_OBJECTS: usize = 500;
pub(crate) const COMPARED_BYTES: usize = 64 * 1024;

/// The siblings, and the proof that each is one. Without addresses and a service there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingsConfig {
    /// URLs of siblings: https://, or http:// on a loopback address.
    pub addresses: Vec<String>,
    /// A service whose EndpointSlices name siblings.
    pub service: Option<ServiceName>,
    /// The name that the certificates must be valid for; `None` for the host of the address.
    pub server_name: Option<String>,
    /// The CA of the siblings' certificates, PEM. Each https:// address and a service need it.
    pub ca: Option<PathBuf>,
    /// The client certificate; `None` for the credentials that Weir has for the API server.
    pub certificate: Option<SiblingCertificate>,
    /// How long a cache waits for a sibling, its list and the proof. Tests have another one; there
    /// is no setting for it.
    pub timeout: Duration,
    /// The weight of the objects of a list that is sent to a sibling at most, in bytes. Tests have
    /// another one; there is no setting for it.
    pub list_bytes_max: usize,
    /// How much of a list is compared before it is used. Tests have less; there is no setting for
    /// it.
    pub compared: ComparedPart,
}

impl Default for SiblingsConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            service: None,
            server_name: None,
            ca: None,
            certificate: None,
            timeout: SEED_TIMEOUT,
            list_bytes_max: SEED_BYTES_MAX,
            compared: ComparedPart::default(),
        }
    }
}

/// A client certificate for siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingCertificate {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl SiblingsConfig {
    /// Whether a cache may be filled from a sibling.
    pub fn is_enabled(&self) -> bool {
        !self.addresses.is_empty() || self.service.is_some()
    }
}

/// A service by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_label = |part: &str| {
            let is_allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !part.is_empty() && part.len() <= 63 && part.bytes().all(is_allowed)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("expected NAMESPACE/NAME of a service, not {text:?}")),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
