//! The common parts of the clients of tests and benches over TLS and HTTP/2.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_rustls::TlsConnector;

/// Returns a connector that trusts the certificates of a CA, PEM, and offers HTTP/2 alone.
pub(crate) fn connector(ca: &[u8]) -> TlsConnector {
    connector_for(ca, b"h2")
}

/// Returns a connector that trusts the certificates of a CA, PEM, and offers one protocol.
pub(crate) fn connector_for(ca: &[u8], protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate.expect("PEM")).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}
