//! Signatures made with a key that stands in a certificate which webpki does not read; checked by the provider's algorithms.

use rustls_pki_types::SignatureVerificationAlgorithm;
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::certificate::X509Certificate;

/// An algorithm of the provider.
type Algorithm = &'static dyn SignatureVerificationAlgorithm;

/// Whether a certificate is signed with this public key (SubjectPublicKeyInfo in DER).
pub(super) fn of_certificate(
    algorithms: &[Algorithm],
    issuer_key: &[u8],
    certificate: &X509Certificate<'_>,
) -> bool {
    let Some(algorithm) = algorithm_of(certificate.as_raw()) else { return false };
    let fitting = algorithms.iter().filter(|known| known.signature_alg_id().as_ref() == algorithm);
    let message: &[u8] = certificate.tbs_certificate.as_ref();
    let signature = &certificate.signature_value;
    signature.unused_bits == 0 && verify(fitting, issuer_key, message, &signature.data)
}

/// Whether one of the algorithms finds a message signed with this public key (SubjectPublicKeyInfo in DER).
pub(super) fn verify<'a>(
    algorithms: impl IntoIterator<Item = &'a Algorithm>,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Some((algorithm, key)) = split_key(key) else { return false };
    algorithms
        .into_iter()
        .filter(|known| known.public_key_alg_id().as_ref() == algorithm)
        .any(|known| known.verify_signature(key, message, signature).is_ok())
}

/// The content of the outer `signatureAlgorithm`, which webpki and Go compare with the one that is signed.
fn algorithm_of(certificate: &[u8]) -> Option<&[u8]> {
    let (_, outer) = Any::from_der(certificate).ok()?;
    let (rest, signed) = Any::from_der(outer.data).ok()?;
    let (_, algorithm) = Any::from_der(rest).ok()?;
    // version [0], serialNumber, signature, ...
    let (mut after, mut part) = Any::from_der(signed.data).ok()?;
    if part.header.is_contextspecific() {
        (after, part) = Any::from_der(after).ok()?;
    }
    let (_, inner) = Any::from_der(after).ok()?;
    (part.header.is_universal() && inner.data == algorithm.data).then_some(algorithm.data)
}

/// The algorithm's identifier, and the key itself.
fn split_key(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, outer) = Any::from_der(info).ok()?;
    let (rest, algorithm) = Any::from_der(outer.data).ok()?;
    let (_, bits) = Any::from_der(rest).ok()?;
    match bits.data.split_first() {
        Some((0, key)) => Some((algorithm.data, key)),
        _ => None,
    }
}
