//! `upstream`: the API servers, and where their addresses come from.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::kinds::{Derived, List, Maybe, Part};
use crate::config::reader::Reader;
use crate::config::scalars::{Flag, Parsed, Plain, Text};
use crate::config::section::section;

/// The most API servers of an upstream. A control plane has three or five.
pub const SERVERS_MAX: usize = 32;

section! {
    /// The API server that Weir reads from and forwards to.
    pub struct UpstreamConfig {
        /// The kubeconfig, of which the current context counts. Defaults: $KUBECONFIG,
        /// ~/.kube/config, or the service account of the pod. A proxy before the API server is that
        /// of the kubeconfig (proxy-url), else that of HTTPS_PROXY and NO_PROXY, as for kubectl.
        restart kubeconfig: Option<PathBuf> = None, Maybe(Plain);

        /// The API servers. The server of the kubeconfig, or of the service account, is the only
        /// one unless others are named here; then it is the last resort. All have the certificate
        /// authority of the kubeconfig, and a certificate for the name of its server (or
        /// tls-server-name).
        restart endpoints: EndpointsConfig = EndpointsConfig::default(), Part;

        /// Whether HTTP/2 is used where the API server offers it. Even then each list that fills a
        /// cache uses an HTTP/1.1 connection.
        // One TLS connection carries many watches.
        restart http2: bool = true, Flag;

        /// The context in the kubeconfig, of the flag `--context`; `None` for the current one.
        restart context: Option<String> = None, Derived;
    }
}

section! {
    /// The sources of API servers besides the kubeconfig's server. Without any, that server is the
    /// only one.
    pub struct EndpointsConfig {
        /// URLs of API servers: https://10.0.0.1:6443. Without a kubeconfig, http:// URLs need
        /// none.
        restart static_urls["static"]: Vec<String> = Vec::new(), List(Parsed(upstream_url));

        /// A DNS name with an address for each API server, as HOST or HOST:PORT. It is resolved
        /// again every 30 s.
        restart dns: Option<DnsName> = None, Maybe(Text);

        /// Whether the EndpointSlices of the service kubernetes name the API servers. Weir lists
        /// and watches them in the namespace default. An API server that DNS or an EndpointSlice
        /// names is used once the uid of the namespace kube-system shows that it serves the same
        /// cluster. Weir must be allowed to list namespaces.
        restart endpoint_slice: bool = false, Flag;
    }
}

impl EndpointsConfig {
    /// Returns whether API servers are found at run time.
    pub fn finds_servers(&self) -> bool {
        self.dns.is_some() || self.endpoint_slice
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

impl EndpointsConfig {
    /// Refuses what the URLs are together.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        let path = "upstream.endpoints.static";
        if self.static_urls.len() > SERVERS_MAX {
            reader.refuse(path, format!("at most {SERVERS_MAX} API servers are supported"));
        }
        for (index, url) in self.static_urls.iter().enumerate() {
            let is_same = |other: &String| other.trim_end_matches('/') == url.trim_end_matches('/');
            if self.static_urls.iter().take(index).any(is_same) {
                reader.refuse(format!("{path}[{index}]"), format!("{url} is listed twice"));
            }
        }
    }
}

/// Parses the URL of a server, which may have a path before the API's, and no user information.
fn upstream_url(text: &str) -> Result<String, String> {
    let expected = || format!("expected a URL such as https://10.0.0.1:6443, not {text:?}");
    let uri: http::Uri = text.parse().map_err(|_| {
        if text.contains('@') {
            "cannot be parsed as a URL, and is not repeated here because it may contain a password"
                .to_owned()
        } else {
            expected()
        }
    })?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let userinfo = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if userinfo {
        // The message omits the URL, which may contain a password.
        return Err(
            "contains a user name; put credentials into the kubeconfig, under users".to_owned()
        );
    }
    if !matches!(scheme, "https" | "http") || !has_host || uri.query().is_some() {
        return Err(expected());
    }
    Ok(text.to_owned())
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
