//! When certificates expire.

use rustls::SignatureScheme;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The expiries of the certificates of an identity, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateExpiries {
    /// The client certificate that the upstream sees; `None` without one.
    pub(crate) client: Option<i64>,
    /// The first of the CAs that the upstream's certificate is verified with; `None` without TLS,
    /// and if the system's CAs are used.
    pub(crate) ca: Option<i64>,
}

impl CertificateExpiries {
    /// Reads the certificates of a TLS configuration, and CAs in DER.
    pub(super) fn new(tls: &rustls::ClientConfig, cas: &[Vec<u8>]) -> Self {
        let resolver = &tls.client_auth_cert_resolver;
        let key = resolver.has_certs().then(|| resolver.resolve(&[], SCHEMES)).flatten();
        let leaf = key.as_ref().and_then(|key| key.cert.first()).map(|leaf| &**leaf);
        Self { client: first_expiry(leaf), ca: first_expiry(cas.iter().map(Vec::as_slice)) }
    }
}

/// Returns when the first of some certificates in DER expires, in seconds since 1970. Those that
/// cannot be parsed do not count.
pub(crate) fn first_expiry<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Option<i64> {
    let not_after = |der| {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        Some(parsed.validity().not_after.timestamp())
    };
    certificates.into_iter().filter_map(not_after).min()
}

/// All that kube-apiserver accepts, so that a certificate is found whatever its key.
const SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["weir".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_first_expiry_of_several_certificates_counts() {
        let [first, second] = [certificate(2031), certificate(2030)];
        let ends = |certificates: &[&[u8]]| first_expiry(certificates.iter().copied());
        assert_eq!(ends(&[&first, &second, b"no certificate"]), Some(1_893_456_000));
        assert_eq!(ends(&[&first]), Some(1_924_992_000));
        assert_eq!(ends(&[b"no certificate"]), None);
    }
}
