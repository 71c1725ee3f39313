//! A measured server: its address, its credentials, and how to read its CPU time and memory.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::client::Protocol;
use crate::usage::Usage;

/// The names of the servers in the results.
pub(crate) const UPSTREAM: &str = "upstream";
pub(crate) const WEIR: &str = "weir";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// Scheme and authority.
    pub(crate) url: Uri,
    /// `None` for plain text.
    tls: Option<Arc<ClientConfig>>,
    pub(crate) authorization: HeaderValue,
    pub(crate) usage: Usage,
}

impl Server {
    /// Returns a server that is trusted by the CAs in `ca` (PEM). The client uses no TLS for an
    /// `http` URL.
    pub(crate) fn new(name: &'static str, url: &str, ca: &str, token: &str) -> Self {
        let url: Uri = url.parse().expect("a URL: https://HOST:PORT");
        let tls = (url.scheme_str() == Some("https")).then(|| Arc::new(trusting(ca)));
        let authorization = HeaderValue::from_str(&format!("Bearer {token}")).expect("a token");
        Self { name, url, tls, authorization, usage: Usage::Unknown }
    }

    /// Sets how CPU time and memory are read: from the process `pid`, or from `metrics` if it is
    /// `None`.
    pub(crate) fn measured(
        mut self,
        pid: Option<u32>,
        metrics: Option<&str>,
        ca: &str,
        token: &str,
    ) -> Self {
        self.usage = match (pid, metrics) {
            (Some(pid), _) => Usage::Process(pid),
            (None, Some(url)) => {
                let server = Self::new(self.name, url, ca, token);
                let path = server.url.path().to_owned();
                Usage::Metrics(Box::new(server), path)
            }
            (None, None) => Usage::Unknown,
        };
        self
    }

    /// Returns the TLS configuration that offers `protocol`.
    pub(crate) fn tls(&self, protocol: Protocol) -> Option<Arc<ClientConfig>> {
        let mut tls = self.tls.clone()?;
        if protocol == Protocol::Http1 {
            Arc::make_mut(&mut tls).alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        Some(tls)
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host().expect("a host").trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        let default = if self.tls.is_some() { 443 } else { 80 };
        self.url.port_u16().unwrap_or(default)
    }
}

/// Reads a file of CAs. Without a path it returns an empty text, which is sufficient for plain
/// text.
pub(crate) fn read_ca(path: Option<&Path>) -> String {
    path.map(|path| std::fs::read_to_string(path).expect("a readable CA file")).unwrap_or_default()
}

fn trusting(ca: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder =
        builder.expect("the provider supports the versions").with_root_certificates(roots);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}
