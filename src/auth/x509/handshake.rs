//! The part of the TLS handshake that requests a client certificate.
//!
//! As in kube-apiserver (`tls.RequestClientCert`), a certificate is requested but not required, and
//! its issuer does not matter. The client must prove that it has the private key; the handshake
//! proves nothing else. The names of the CAs are sent as hints, as upstream does: Go's clients then
//! send no certificate of another issuer, and browsers offer only the certificates that match.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::x509::X509Version;

use super::certificate::parse;
use super::signature;

/// The names of the CAs whose certificates are accepted; they change with the CAs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    current: Arc<ArcSwap<Vec<DistinguishedName>>>,
}

impl Hints {
    /// Returns the current names; the same `Arc` until they change.
    pub fn load(&self) -> Arc<Vec<DistinguishedName>> {
        self.current.load_full()
    }

    /// Replaces the names.
    pub(crate) fn store(&self, names: Vec<DistinguishedName>) {
        let old = self.current.load();
        let bytes = |name: &DistinguishedName| AsRef::<[u8]>::as_ref(name).to_vec();
        if !old.iter().map(bytes).eq(names.iter().map(bytes)) {
            self.current.store(Arc::new(names));
        }
    }
}

/// Requests a certificate and accepts any whose private key the client has.
#[derive(Debug)]
pub struct AnyCertificate {
    hints: Arc<Vec<DistinguishedName>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    /// Creates a verifier that sends these names as hints.
    pub fn new(hints: Arc<Vec<DistinguishedName>>, provider: &CryptoProvider) -> Self {
        Self { hints, algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = key_of_version_1(certificate) else {
            return verify_tls12_signature(message, certificate, signed, &self.algorithms);
        };
        let matching =
            self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let algorithms = matching.flat_map(|(_, algorithms)| algorithms.iter());
        if signature::verify(algorithms, &key, message, signed.signature()) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match key_of_version_1(certificate) {
            Some(key) => {
                verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
            }
            None => verify_tls13_signature(message, certificate, signed, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the public key of a version 1 certificate, which webpki cannot parse.
fn key_of_version_1(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let parsed = parse(certificate).filter(|parsed| parsed.version() == X509Version::V1)?;
    Some(SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec()))
}
