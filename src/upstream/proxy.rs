//! Proxies between Weir and the upstream, as client-go reads them: `proxy-url` of the kubeconfig,
//! else the environment variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`
//! (`docs/decisions/kubeconfig.md`).
//!
//! All proxies become a tunnel: `http` and `https` proxies by CONNECT, `socks5` by its own
//! handshake. The same bytes are sent through the tunnel as without a proxy, TLS with the upstream
//! included. A proxy's credentials come from its URL, and no error or log contains them.

mod exclusions;
mod http_connect;
mod socks5;

use std::fmt;
use std::sync::Arc;

use http::Uri;
use rustls_pki_types::ServerName;

use self::exclusions::Exclusions;
use crate::api::query::percent_decode;
use crate::config::seams::Connection;

/// The proxies that may be used, and where none is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    /// The kubeconfig's proxy. It is used for every host, and the environment does not count.
    fixed: Option<Proxy>,
    https: Option<Proxy>,
    http: Option<Proxy>,
    exclusions: Exclusions,
}

impl Proxies {
    /// Uses `fixed` for all connections, or what the environment says if there is none.
    pub(crate) fn new(fixed: Option<Proxy>) -> Self {
        match fixed {
            Some(_) => Self { fixed, ..Self::default() },
            None => Self::from_variables(|name| std::env::var(name).ok()),
        }
    }

    /// Reads the variables, each in upper case, or in lower case if that is unset or empty. A URL
    /// that cannot be used is ignored with a warning, as Go ignores it.
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| {
            let set = |name: &str| variable(name).filter(|value| !value.is_empty());
            set(name).or_else(|| set(&name.to_lowercase()))
        };
        let proxy = |name: &str| {
            let parsed = Proxy::parse_lenient(&value(name)?);
            let warn = |problem: &String| tracing::warn!("{name} is ignored: it {problem}");
            parsed.inspect_err(warn).ok()
        };
        // The environment of a CGI program has the request's header `Proxy` as HTTP_PROXY.
        let is_cgi = value("REQUEST_METHOD").is_some();
        Self {
            fixed: None,
            https: proxy("HTTPS_PROXY"),
            http: if is_cgi { None } else { proxy("HTTP_PROXY") },
            exclusions: Exclusions::parse(&value("NO_PROXY").unwrap_or_default()),
        }
    }

    /// Returns the proxy for connections to a host and port; `None` for a direct connection.
    pub(crate) fn select(&self, https: bool, host: &str, port: u16) -> Option<&Proxy> {
        if self.fixed.is_some() {
            return self.fixed.as_ref();
        }
        let proxy = if https { self.https.as_ref() } else { self.http.as_ref() }?;
        (!self.exclusions.contains(host, port)).then_some(proxy)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    scheme: ProxyScheme,
    pub(crate) host: String,
    pub(crate) port: u16,
    credentials: Option<ProxyCredentials>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyScheme {
    Http,
    Https,
    Socks5,
}

/// The user name and password in a proxy's URL.
#[derive(Clone, PartialEq, Eq)]
struct ProxyCredentials {
    user: String,
    password: String,
}

impl Proxy {
    /// Parses a URL as `proxy-url` has it. The error is a message that does not quote the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("has no scheme")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyScheme::Http,
            "https" => ProxyScheme::Https,
            "socks5" => ProxyScheme::Socks5,
            _ => return Err("must begin with http://, https:// or socks5://".to_owned()),
        };
        // The scheme does not matter to the parser, and it knows no socks5.
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| "is not a valid URL")?;
        let authority = uri.authority().ok_or("has no host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("has no host".to_owned());
        }
        let default_port = match scheme {
            ProxyScheme::Http => 80,
            ProxyScheme::Https => 443,
            ProxyScheme::Socks5 => 1080,
        };
        let credentials = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((user_info, _)) => Some(ProxyCredentials::parse(user_info)?),
        };
        let port = authority.port_u16().unwrap_or(default_port);
        Ok(Self { scheme, host, port, credentials })
    }

    /// Parses a URL, or a host with or without a port, as the environment variables have it.
    fn parse_lenient(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            Self::parse(text)
        } else {
            Self::parse(&format!("http://{text}"))
        }
    }

    /// Makes a connection to the proxy a connection to `host` and `port`. `tls` is the
    /// configuration for a proxy that itself speaks TLS: that of the upstream, as in client-go. The
    /// error is a message.
    pub(crate) async fn tunnel(
        &self,
        connection: impl Connection + 'static,
        host: &str,
        port: u16,
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> Result<Box<dyn Connection>, String> {
        let tunneled = match self.scheme {
            ProxyScheme::Http => self.http_connect(Box::new(connection), host, port).await,
            ProxyScheme::Https => {
                let secured = self.secure(connection, tls).await;
                match secured {
                    Ok(secured) => self.http_connect(secured, host, port).await,
                    Err(problem) => Err(problem),
                }
            }
            ProxyScheme::Socks5 => {
                let credentials = self.credentials.as_ref();
                let credentials =
                    credentials.map(|login| (login.user.as_str(), login.password.as_str()));
                socks5::handshake(Box::new(connection), host, port, credentials).await
            }
        };
        tunneled.map_err(|problem| format!("the proxy {self} {problem}"))
    }

    async fn http_connect(
        &self,
        connection: Box<dyn Connection>,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn Connection>, String> {
        let credentials = self.credentials.as_ref();
        let credentials = credentials.map(|login| format!("{}:{}", login.user, login.password));
        let target = host_and_port(host, port);
        http_connect::handshake(connection, &target, credentials.as_deref()).await
    }

    async fn secure(
        &self,
        connection: impl Connection + 'static,
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> Result<Box<dyn Connection>, String> {
        let tls = tls.ok_or("speaks TLS, but the upstream does not, so there is no authority")?;
        let name = ServerName::try_from(self.host.clone()).map_err(|_| "has an invalid name")?;
        let connected = tokio_rustls::TlsConnector::from(tls.clone()).connect(name, connection);
        match connected.await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("cannot be used over TLS: {error}")),
        }
    }
}

impl ProxyCredentials {
    fn parse(user_info: &str) -> Result<Self, String> {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let decode = |text: &str| {
            let decoded = percent_decode(text.as_bytes(), false)?;
            String::from_utf8(decoded).ok()
        };
        let bad_escape = || "has a bad escape in its user name or password".to_owned();
        Ok(Self {
            user: decode(user).ok_or_else(bad_escape)?,
            password: decode(password).ok_or_else(bad_escape)?,
        })
    }
}

/// Without the credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            ProxyScheme::Http => "http",
            ProxyScheme::Https => "https",
            ProxyScheme::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", host_and_port(&self.host, self.port))
    }
}

/// Without the credentials.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests;
