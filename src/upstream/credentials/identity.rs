//! One version of the credentials: address, TLS configuration and headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use kube_client::Config;

use super::endpoint::Endpoint;
use super::expiry::CertificateExpiries;
use super::loaded_config::LoadedConfig;
use super::tls;
use super::token_source::TokenSource;
use crate::upstream::error::UpstreamError;
use crate::upstream::proxy::Proxies;

/// The address, TLS configuration and headers for connections and requests. Immutable: a change of
/// the credentials creates a new identity.
pub(crate) struct Identity {
    /// The configured API server. There may be others, with the same authority and name.
    pub(crate) endpoint: Endpoint,
    /// The proxies before the upstream.
    pub(crate) proxies: Proxies,
    /// TLS for connections that may negotiate HTTP/2 (by ALPN); `None` for plain HTTP.
    pub(crate) tls_http2: Option<Arc<rustls::ClientConfig>>,
    /// TLS for connections that must speak HTTP/1.1.
    pub(crate) tls_http1: Option<Arc<rustls::ClientConfig>>,
    /// The expiries of the certificates.
    pub(crate) expiries: CertificateExpiries,
    /// Incremented when certificates or authorities change.
    pub(crate) tls_generation: u64,
    /// The kubeconfig's impersonation headers; empty if there are none.
    pub(crate) impersonation: HeaderMap,
    /// Provides the `Authorization` of each request.
    pub(crate) token_source: TokenSource,
    /// The namespace of the context, or of the pod.
    pub(crate) default_namespace: String,
    /// The part of the configuration that describes the cluster, without Weir's credentials.
    pub(super) cluster: Arc<LoadedConfig>,
}

impl Identity {
    /// Returns whether what fills caches should be compressed: on a link, not within a machine, and
    /// unless the kubeconfig's `disable-compression` says no.
    pub(crate) fn accepts_gzip(&self) -> bool {
        !self.endpoint.is_loopback() && !self.cluster.config.disable_compression
    }
}

/// Creates an identity from a configuration. Blocks: an exec plugin may run.
pub(super) fn build(loaded: &LoadedConfig, tls_generation: u64) -> Result<Identity, UpstreamError> {
    let mut config = loaded.config.clone();
    let server = config.cluster_url.to_string();
    let endpoint = Endpoint::parse(&server, config.tls_server_name.as_deref())
        .map_err(|problem| UpstreamError::Credentials(format!("{}: {problem}", loaded.origin)))?;
    let token_source = TokenSource::new(&mut config, &loaded.origin)?;
    let mut expiries = CertificateExpiries::default();
    let (tls_http2, tls_http1) = if endpoint.https {
        let tls = tls::client_config(&config).map_err(|problem| {
            UpstreamError::Credentials(format!("{}: {problem}", loaded.origin))
        })?;
        expiries = CertificateExpiries::new(&tls, config.root_cert.as_deref().unwrap_or_default());
        (Some(with_alpn(tls.clone(), &[b"h2", b"http/1.1"])), Some(with_alpn(tls, &[b"http/1.1"])))
    } else {
        (None, None)
    };
    Ok(Identity {
        endpoint,
        proxies: Proxies::new(loaded.proxy.clone()),
        tls_http2,
        tls_http1,
        expiries,
        tls_generation,
        impersonation: impersonation(&config, &loaded.origin)?,
        token_source,
        default_namespace: config.default_namespace,
        cluster: Arc::new(loaded.cluster()),
    })
}

fn with_alpn(mut tls: rustls::ClientConfig, protocols: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(tls)
}

/// Returns the headers for `as`, `as-uid`, `as-groups` and `as-user-extra` of the kubeconfig, as
/// client-go sends them.
fn impersonation(config: &Config, origin: &str) -> Result<HeaderMap, UpstreamError> {
    let refuse =
        |what: &str| UpstreamError::Credentials(format!("{origin}: {what} is not a valid header"));
    let mut headers = HeaderMap::new();
    let mut append = |name: &str, value: &str| {
        let name = HeaderName::try_from(name).map_err(|_| refuse("as-user-extra"))?;
        let value = HeaderValue::try_from(value).map_err(|_| refuse(name.as_str()))?;
        headers.append(name, value);
        Ok::<(), UpstreamError>(())
    };
    let auth = &config.auth_info;
    if let Some(user) = auth.impersonate.as_deref().filter(|user| !user.is_empty()) {
        append("impersonate-user", user)?;
    }
    if let Some(uid) = auth.impersonate_uid.as_deref().filter(|uid| !uid.is_empty()) {
        append("impersonate-uid", uid)?;
    }
    for group in auth.impersonate_groups.iter().flatten() {
        append("impersonate-group", group)?;
    }
    for (key, values) in auth.impersonate_user_extra.iter().flatten() {
        let name = format!("impersonate-extra-{}", escape_extra_key(key));
        for value in values {
            append(&name, value)?;
        }
    }
    Ok(headers)
}

/// Percent-escapes the characters that a header name must not contain, and `%` itself (client-go,
/// `transport/round_trippers.go`).
pub(crate) fn escape_extra_key(key: &str) -> String {
    key.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            escaped.push(char::from(byte.to_ascii_lowercase()));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}
