//! The common parts of the clients of tests and benches over TLS and HTTP/2.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_rustls::TlsConnector;

/// Requests that a closed connection never took, and that were sent again on another one.
pub(crate) static LEFT_IN_QUEUE: AtomicUsize = AtomicUsize::new(0);

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

/// Whether the server says that it did not begin the request.
pub(crate) fn is_unprocessed(error: &hyper::Error) -> bool {
    reset(error).is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Returns the error of HTTP/2 behind an error.
pub(crate) fn reset<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a h2::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<h2::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
