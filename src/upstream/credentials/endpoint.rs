//! The address of the upstream: a server URL, parsed once.

use std::fmt;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use rustls_pki_types::ServerName;

use crate::config::network::is_loopback_host;

/// A server URL such as `https://10.0.0.1:6443` or `https://rancher.example.com/k8s/clusters/c-1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    /// Whether to speak TLS.
    pub(crate) https: bool,
    /// The host to connect to, without brackets.
    pub(crate) host: String,
    /// The port to connect to.
    pub(crate) port: u16,
    /// The value of `Host` and `:authority`: host and port as the URL has them.
    pub(crate) authority: Authority,
    /// The prefix of every path. Empty, or starts with `/` and does not end with one.
    pub(crate) path_prefix: String,
    /// The name that the certificate must be valid for.
    pub(crate) server_name: ServerName<'static>,
    /// The URL, for messages.
    url: String,
}

impl Endpoint {
    /// Parses a URL. The error is a message.
    pub(crate) fn parse(url: &str, tls_server_name: Option<&str>) -> Result<Self, String> {
        if url.contains('@') {
            // Checked before any error that quotes the URL, which may contain a password.
            return Err(
                "the server URL contains a user name; put credentials under users".to_owned()
            );
        }
        let refuse = |problem: &str| format!("the server URL {url:?} {problem}");
        // An address without a scheme is taken for https, as kubectl does.
        let with_scheme =
            if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| refuse("cannot be parsed"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refuse("is neither https:// nor http://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        if uri.query().is_some() {
            return Err(refuse("has a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
        let name = tls_server_name.filter(|name| !name.is_empty()).unwrap_or(&host).to_owned();
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} is not a valid server name"))?;
        let path_prefix = uri.path().trim_end_matches('/').to_owned();
        let scheme = if https { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{path_prefix}");
        let authority = authority.clone();
        Ok(Self { https, host, port, authority, path_prefix, server_name, url })
    }

    /// Returns the same server at another address. `Host` and the name in the certificate stay.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let scheme = if self.https { "https" } else { "http" };
        let host_text = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let url = format!("{scheme}://{host_text}:{port}{}", self.path_prefix);
        Self { host: host.to_owned(), port, url, ..self.clone() }
    }

    /// Returns whether the server runs on this machine, by its URL.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback_host(&self.host)
    }

    /// Returns this server with the name in the certificate of `other`.
    pub(crate) fn with_name_of(self, other: &Self) -> Self {
        Self { server_name: other.server_name.clone(), ..self }
    }

    /// Returns whether both lead to the same place.
    pub(crate) fn is_same_address(&self, other: &Self) -> bool {
        (self.host.eq_ignore_ascii_case(&other.host), self.port, &self.path_prefix)
            == (true, other.port, &other.path_prefix)
    }

    /// Returns the URI of a request with this path and query. The error is a message.
    pub(crate) fn uri(&self, path_and_query: Option<&PathAndQuery>) -> Result<Uri, &'static str> {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if self.https { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(self.path_and_query(path_and_query)?);
        Uri::from_parts(uri).map_err(|_| "its path is not valid in a URI")
    }

    /// Returns a client's path and query with the prefix. The bytes of the path are not changed.
    /// The error is a message.
    fn path_and_query(
        &self,
        path_and_query: Option<&PathAndQuery>,
    ) -> Result<PathAndQuery, &'static str> {
        let target = path_and_query.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.path_prefix.is_empty() {
            return Ok(target);
        }
        // A server that resolves dot segments would leave the prefix, and reach another cluster of
        // a shared gateway with Weir's credential.
        if !target.as_str().starts_with('/') || has_parent_segment(target.path()) {
            return Err("its path has dot segments, and the upstream's address has a path");
        }
        PathAndQuery::try_from(format!("{}{target}", self.path_prefix))
            .map_err(|_| "it is too long")
    }
}

/// Returns whether a path has a `..` segment, in any notation: escaped, escaped repeatedly, or
/// between backslashes.
fn has_parent_segment(path: &str) -> bool {
    let mut plain = path.to_ascii_lowercase();
    for _ in 0..ESCAPES_MAX {
        if !plain.contains("%25") {
            break;
        }
        plain = plain.replace("%25", "%");
    }
    // No real path is escaped more often, and each level costs a pass.
    if plain.contains("%25") {
        return true;
    }
    let plain = plain.replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    plain.split(['/', '\\']).any(|segment| segment.split(';').next() == Some(".."))
}

/// The levels of escaping that are decoded.
const ESCAPES_MAX: usize = 4;

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let endpoint = Endpoint::parse("https://[::1]:6443/k8s/clusters/c-1/", None).unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 6443));
        assert_eq!(endpoint.authority.as_str(), "[::1]:6443");
        let path = PathAndQuery::from_static("/api/v1/pods?watch=1&x=%2F");
        assert_eq!(
            endpoint.path_and_query(Some(&path)).unwrap().as_str(),
            "/k8s/clusters/c-1/api/v1/pods?watch=1&x=%2F"
        );
        assert_eq!(Endpoint::parse("http://host", None).unwrap().port, 80);
        assert_eq!(Endpoint::parse("host", Some("other")).unwrap().to_string(), "https://host");
    }

    #[test]
    fn another_address_has_the_name_of_the_configured_one() {
        let endpoint = Endpoint::parse("https://api.example.com", None).unwrap();
        let other = endpoint.at("fd00::1", 6443);
        assert_eq!(other.to_string(), "https://[fd00::1]:6443");
        let path = PathAndQuery::from_static("/api?x=1");
        assert_eq!(other.uri(Some(&path)).unwrap(), "https://api.example.com/api?x=1");
        assert_eq!(other.server_name, endpoint.server_name);
        assert!(other.is_same_address(&endpoint.at("FD00::1", 6443)));
        assert!(!other.is_same_address(&endpoint));
    }

    #[test]
    fn no_path_leaves_the_prefix() {
        let endpoint = Endpoint::parse("https://host/k8s/clusters/c-1", None).unwrap();
        let bare = Endpoint::parse("https://host", None).unwrap();
        for path in [
            "/../c-2/api",
            "/api/..",
            "/%2e%2E/c-2/api",
            "/.%2e/c-2",
            "/a%2f..%2fb",
            "/..%5c..",
            "/%252e%252e/c-2",
            "/..;x=1/c-2",
            "/%2525252525252e%2525252525252e/c-2",
            "/a%2525252525",
            "*",
        ] {
            let path = PathAndQuery::from_static(path);
            assert!(endpoint.path_and_query(Some(&path)).is_err(), "{path}");
            assert_eq!(bare.path_and_query(Some(&path)).unwrap(), path);
        }
        for path in ["/api/v1/a..b/...", "/x?y=/../z", "/.well-known/x"] {
            let path = PathAndQuery::from_static(path);
            assert!(endpoint.path_and_query(Some(&path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn unusable_urls_are_refused_without_quoting_a_password() {
        for url in ["ftp://host", "https://", "https://host?x=1", "https://h h"] {
            assert!(Endpoint::parse(url, None).is_err(), "{url}");
        }
        for url in ["https://me:hunter2@host", "ftp://me:hunter2@host", "https://me:hunter2@h h"] {
            let error = Endpoint::parse(url, None).unwrap_err();
            assert!(!error.contains("hunter2"), "{url}");
        }
    }
}
