//! TLS of a listener.
//!
//! In gateway mode clients are asked for certificates, which are verified with each request. A
//! resumed session keeps the certificates of its first handshake (rustls stores them with the
//! session), and they are verified like any others.

use std::sync::Arc;

use rustls::DistinguishedName;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::TlsAcceptor;

use crate::auth::x509::handshake::{AnyCertificate, Hints};
use crate::config::CertificateConfig;
use crate::server::accept::certificate::{
    CertificateError, CertificateReloader, CertificateResolver, ServingCertificate,
};

pub(crate) struct TlsSetup {
    pub(crate) acceptors: TlsAcceptors,
    pub(crate) ca_pem: String,
    /// Keeps the serving certificate current, if it is read from files.
    pub(crate) reloader: Option<CertificateReloader>,
}

impl TlsSetup {
    /// Loads the serving certificate. With `hints`, clients are asked for certificates.
    pub(crate) fn new(
        config: &CertificateConfig,
        hints: Option<Hints>,
    ) -> Result<Self, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let ServingCertificate { resolver, ca_pem, reloader } =
            ServingCertificate::load(config, &provider)?;
        let acceptors = TlsAcceptors::new(provider, resolver, hints)?;
        Ok(Self { acceptors, ca_pem, reloader })
    }
}

/// Provides the acceptor of each connection, with the current hints of client CAs.
pub(crate) struct TlsAcceptors {
    provider: Arc<CryptoProvider>,
    resolver: Arc<CertificateResolver>,
    client_cas: Option<ClientCaHints>,
    config: Arc<rustls::ServerConfig>,
}

/// The names of CAs that clients are asked for certificates of.
struct ClientCaHints {
    hints: Hints,
    /// The names in the current `config`.
    used: Arc<Vec<DistinguishedName>>,
}

impl TlsAcceptors {
    fn new(
        provider: Arc<CryptoProvider>,
        resolver: Arc<CertificateResolver>,
        hints: Option<Hints>,
    ) -> Result<Self, CertificateError> {
        let client_cas = hints.map(|hints| ClientCaHints { used: hints.load(), hints });
        let used = client_cas.as_ref().map(|cas| Arc::clone(&cas.used));
        let config = server_config(Arc::clone(&provider), Arc::clone(&resolver), used)?;
        Ok(Self { provider, resolver, client_cas, config: Arc::new(config) })
    }

    pub(crate) fn serving(&self) -> &Arc<CertificateResolver> {
        &self.resolver
    }

    pub(crate) fn current(&mut self) -> TlsAcceptor {
        if let Some(cas) = &mut self.client_cas {
            let hints = cas.hints.load();
            if !Arc::ptr_eq(&hints, &cas.used) {
                cas.used = Arc::clone(&hints);
                let (provider, resolver) = (&self.provider, &self.resolver);
                match server_config(Arc::clone(provider), Arc::clone(resolver), Some(hints)) {
                    Ok(mut config) => {
                        // Clients can still resume their sessions.
                        config.session_storage = Arc::clone(&self.config.session_storage);
                        self.config = Arc::new(config);
                    }
                    Err(error) => tracing::warn!(%error, "keeping the old hints of client CAs"),
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn server_config(
    provider: Arc<CryptoProvider>,
    resolver: Arc<CertificateResolver>,
    hints: Option<Arc<Vec<DistinguishedName>>>,
) -> Result<rustls::ServerConfig, CertificateError> {
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(CertificateError::Tls)?;
    let builder = match hints {
        Some(hints) => {
            builder.with_client_cert_verifier(Arc::new(AnyCertificate::new(hints, &provider)))
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    // HTTP/1.1 must be offered: HTTP/2 has no upgrades (`docs/semantics.md` §11).
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
