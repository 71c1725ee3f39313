//! A server to be loaded: where it is, how to trust it, and what it has used.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::client::Protocol;
use crate::usage::Usage;

/// The names of those compared, as the results have them.
pub(crate) const UPSTREAM: &str = "upstream";
pub(crate) const WEIR: &str = "weir";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// Scheme and authority.
    pub(crate) url: Uri,
    /// Without it, plain text.
    tls: Option<Arc<ClientConfig>>,
    pub(crate) authorization: HeaderValue,
    pub(crate) usage: Usage,
}

impl Server {
    /// One that is reached over TLS, trusted by a CA's PEM, or in plain text if its URL says so.
    pub(crate) fn new(name: &'static str, url: &str, ca: &str, token: &str) -> Self {
        let url: Uri = url.parse().expect("a URL: https://HOST:PORT");
        let tls = (url.scheme_str() == Some("https")).then(|| Arc::new(trusting(ca)));
        let authorization = HeaderValue::from_str(&format!("Bearer {token}")).expect("a token");
        Self { name, url, tls, authorization, usage: Usage::Unknown }
    }

    /// With the process that serves, or the metrics that tell of it.
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

    /// What a connection of this protocol offers.
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

/// A CA's file; nothing of it is needed for plain text.
pub(crate) fn read_ca(path: Option<&Path>) -> String {
    path.map(|path| std::fs::read_to_string(path).expect("a CA's file")).unwrap_or_default()
}

fn trusting(ca: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider has them").with_root_certificates(roots);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}
