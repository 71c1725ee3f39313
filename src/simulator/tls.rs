//! TLS of the listener: its certificate, and its policy for client certificates.
//!
//! As kube-apiserver does, it requests a client certificate and accepts any, or none: the handshake
//! only proves that the client has the key. `identity::certificate` verifies the certificate for
//! each request.

use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

use super::options::SimulatorOptions;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the acceptor, and the CA in PEM.
pub(super) fn acceptor(options: &SimulatorOptions) -> io::Result<(TlsAcceptor, String)> {
    let (config, ca) = configure(options).map_err(io::Error::other)?;
    Ok((TlsAcceptor::from(Arc::new(config)), ca))
}

fn configure(options: &SimulatorOptions) -> Result<(ServerConfig, String), BoxError> {
    let (certificate, key, ca) = generate()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match options.client_certificates {
        Some(_) => builder.with_client_cert_verifier(Arc::new(AnyCertificate(provider))),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, ca))
}

/// Generates a CA, and a certificate for the loopback addresses. Returns the certificate, its key,
/// and the CA in PEM.
fn generate() -> Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>, String), BoxError> {
    let ca_key = rcgen::KeyPair::generate()?;
    let mut ca = rcgen::CertificateParams::new(Vec::new())?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "weir-simulator-ca");
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate()?;
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let mut leaf = rcgen::CertificateParams::new(names)?;
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = leaf.signed_by(&key, &issuer)?.der().clone();
    Ok((certificate, PrivatePkcs8KeyDer::from(key.serialize_der()), ca_certificate.pem()))
}

/// Accepts any certificate whose key the client has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
