//! The TLS configuration of a kubeconfig: the trusted authorities, and Weir's client certificate.
//!
//! kube-client makes the same within its client, which brings some twenty other crates.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_client::Config;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;

use crate::upstream::error::chain;

/// Returns the configuration. Without an authority the machine's own are trusted, as by client-go.
/// Reads the files of the client certificate. The error is a message, which has no content of them.
pub(super) fn client_config(config: &Config) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder();
    let builder = match &config.root_cert {
        _ if config.accept_invalid_certs => {
            tracing::warn!("the API server is not verified (insecure-skip-tls-verify)");
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer))
        }
        Some(authorities) => {
            let mut store = RootCertStore::empty();
            for authority in authorities {
                let added = store.add(CertificateDer::from_slice(authority));
                added.map_err(|error| format!("certificate-authority: {error}"))?;
            }
            builder.with_root_certificates(store)
        }
        None => builder.with_platform_verifier().map_err(|error| chain(&error))?,
    };
    Ok(match client_certificate(config)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("client-certificate or client-key: {error}"))?,
        None => builder.with_no_client_auth(),
    })
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(config: &Config) -> Result<Option<ClientCertificate>, String> {
    let auth = &config.auth_info;
    let certificate =
        ("client-certificate", auth.client_certificate_data.as_deref(), &auth.client_certificate);
    let key_data = auth.client_key_data.as_ref().map(|data| data.expose_secret());
    let key = ("client-key", key_data, &auth.client_key);
    let (certificate, key) = match (read(certificate)?, read(key)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (None, Some(_)) => return Err("client-certificate: it is missing".to_owned()),
        (Some(_), None) => return Err("client-key: it is missing".to_owned()),
    };
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or("client-certificate: it is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| "client-key: it has no unencrypted key in PEM")?;
    Ok(Some((chain, key)))
}

/// Returns the data of a field, or the content of the file that its other form names.
fn read(
    (field, data, file): (&str, Option<&str>, &Option<String>),
) -> Result<Option<Vec<u8>>, String> {
    match (data.filter(|data| !data.is_empty()), file) {
        (Some(data), _) => {
            let decoded = STANDARD.decode(data);
            decoded.map(Some).map_err(|_| format!("{field}: its data is not base64"))
        }
        (None, Some(file)) => {
            std::fs::read(file).map(Some).map_err(|error| format!("{field}: {file}: {error}"))
        }
        (None, None) => Ok(None),
    }
}

/// Trusts any server, for `insecure-skip-tls-verify`.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme as Scheme;
        vec![
            Scheme::ECDSA_NISTP256_SHA256,
            Scheme::ECDSA_NISTP384_SHA384,
            Scheme::ECDSA_NISTP521_SHA512,
            Scheme::ED25519,
            Scheme::RSA_PSS_SHA256,
            Scheme::RSA_PSS_SHA384,
            Scheme::RSA_PSS_SHA512,
            Scheme::RSA_PKCS1_SHA256,
            Scheme::RSA_PKCS1_SHA384,
            Scheme::RSA_PKCS1_SHA512,
            Scheme::RSA_PKCS1_SHA1,
            Scheme::ECDSA_SHA1_Legacy,
        ]
    }
}

#[cfg(test)]
mod tests;
