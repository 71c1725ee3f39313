//! Where the addresses of the API servers come from.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

/// The most API servers of an upstream. A control plane has three or five.
pub const SERVERS_MAX: usize = 32;

/// The sources of API servers besides the kubeconfig's server. Without any, that server is the only
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointsConfig {
    /// URLs of API servers. They are used in any case.
    pub static_urls: Vec<String>,
    /// A DNS name with an address for each API server.
    pub dns: Option<DnsName>,
    /// Whether the EndpointSlices of the service `default/kubernetes` name API servers.
    pub endpoint_slice: bool,
    /// A replacement for the system's resolver of names; `None` for none. It is no setting of the
    /// YAML file: tests change the addresses of a name with it.
    pub resolver: Option<Resolver>,
}

impl EndpointsConfig {
    /// Returns whether API servers are found at run time.
    pub fn finds_servers(&self) -> bool {
        self.dns.is_some() || self.endpoint_slice
    }
}

/// Resolves a host name and a port to addresses.
#[derive(Clone)]
pub struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(&str, u16) -> Resolving + Send + Sync;

/// A name that is being resolved.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl Resolver {
    /// Creates a replacement that calls `resolve` each time.
    pub fn new(resolve: impl Fn(&str, u16) -> Resolving + Send + Sync + 'static) -> Self {
        Self(Arc::new(resolve))
    }

    /// Resolves a name.
    pub(crate) fn resolve(&self, host: &str, port: u16) -> Resolving {
        (self.0)(host, port)
    }
}

/// Only a clone of it is equal to it.
impl PartialEq for Resolver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resolver {}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// A DNS name, and the port of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// The name.
    pub host: String,
    /// The port; `None` for that of the kubeconfig's server.
    pub port: Option<u16>,
}

impl FromStr for DnsName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("expected a DNS name such as api.example.com or api:6443, not {text:?}");
        let (host, port) = match text.split_once(':') {
            None => (text, None),
            Some((host, port)) => (host, Some(port.parse().map_err(|_| refuse())?)),
        };
        let is_name = |label: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !label.is_empty() && label.len() <= 63 && label.bytes().all(is_allowed)
        };
        let labels = host.strip_suffix('.').unwrap_or(host);
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        if is_address || port == Some(0) || host.len() > 254 || !labels.split('.').all(is_name) {
            return Err(refuse());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_port_are_parsed() {
        for text in ["api", "api.example.com", "api.example.com.:6443", "kube_api:1"] {
            assert_eq!(text.parse::<DnsName>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.1", "https://api", "[::1]:1", "api:", "api:0", "api:65536", "a..b"]
        {
            assert!(text.parse::<DnsName>().is_err(), "{text}");
        }
    }
}
