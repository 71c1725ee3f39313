//! Verifies signatures by keys of certificates that webpki cannot parse, with the algorithms of the
//! crypto provider.

use rustls_pki_types::SignatureVerificationAlgorithm;
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::certificate::X509Certificate;

/// A signature algorithm of the crypto provider.
type Algorithm = &'static dyn SignatureVerificationAlgorithm;

/// Returns whether a certificate is signed with this public key (SubjectPublicKeyInfo in DER).
pub(super) fn is_signed_by(
    certificate: &X509Certificate<'_>,
    issuer_key: &[u8],
    algorithms: &[Algorithm],
) -> bool {
    let Some(algorithm) = algorithm_of(certificate.as_raw()) else { return false };
    let matching =
        algorithms.iter().filter(|supported| supported.signature_alg_id().as_ref() == algorithm);
    let message: &[u8] = certificate.tbs_certificate.as_ref();
    let signature = &certificate.signature_value;
    signature.unused_bits == 0 && verify(matching, issuer_key, message, &signature.data)
}

/// Returns whether one of the algorithms verifies the signature of `message` with this public key
/// (SubjectPublicKeyInfo in DER).
pub(super) fn verify<'a>(
    algorithms: impl IntoIterator<Item = &'a Algorithm>,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Some((algorithm, key)) = split_key(key) else { return false };
    algorithms
        .into_iter()
        .filter(|supported| supported.public_key_alg_id().as_ref() == algorithm)
        .any(|supported| supported.verify_signature(key, message, signature).is_ok())
}

/// Returns the content of the outer `signatureAlgorithm`, or `None` if it differs from the signed
/// one. webpki and Go compare the two as well.
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

/// Splits a SubjectPublicKeyInfo into the algorithm's identifier and the key.
fn split_key(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, outer) = Any::from_der(info).ok()?;
    let (rest, algorithm) = Any::from_der(outer.data).ok()?;
    let (_, bits) = Any::from_der(rest).ok()?;
    match bits.data.split_first() {
        Some((0, key)) => Some((algorithm.data, key)),
        _ => None,
    }
}
