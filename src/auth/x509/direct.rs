//! Verifies client certificates that a root signed directly, and that Go accepts but webpki does
//! not.
//!
//! Many users' certificates are made by hand: `openssl x509 -req` writes version 1, `openssl req
//! -x509
//! -CA` marks them as CAs, and some have `anyExtendedKeyUsage`. webpki refuses all three;
//! kube-apiserver accepts them. Only for these, and only directly below a root, this file checks
//! the rest: validity, names, usages and the signature, with the same crypto provider.

use rustls_pki_types::SignatureVerificationAlgorithm;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::certificate::{allows_clients, validity};
use super::signature;

/// Returns whether `leaf` is such a certificate, signed by `issuer` and valid at `now` (seconds
/// since 1970). The caller has checked that `issuer` is a valid root.
pub(super) fn is_valid(
    leaf: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    algorithms: &[&'static dyn SignatureVerificationAlgorithm],
    now: i64,
) -> bool {
    is_refused_by_webpki(leaf)
        && validity(leaf).contains(&now)
        && allows_clients(leaf) == Some(true)
        && leaf.issuer().as_raw() == issuer.subject().as_raw()
        // Only webpki implements name constraints.
        && matches!(issuer.name_constraints(), Ok(None))
        && !has_unknown_critical_extension(leaf)
        && signature::is_signed_by(leaf, issuer.public_key().raw, algorithms)
}

fn is_refused_by_webpki(leaf: &X509Certificate<'_>) -> bool {
    let is_ca = matches!(leaf.basic_constraints(), Ok(Some(constraints)) if constraints.value.ca);
    let any = matches!(leaf.extended_key_usage(), Ok(Some(usage)) if usage.value.any);
    leaf.version() == X509Version::V1 || is_ca || any
}

fn has_unknown_critical_extension(leaf: &X509Certificate<'_>) -> bool {
    use x509_parser::extensions::ParsedExtension as P;
    leaf.extensions().iter().filter(|extension| extension.critical).any(|extension| {
        !matches!(
            extension.parsed_extension(),
            P::BasicConstraints(_)
                | P::KeyUsage(_)
                | P::ExtendedKeyUsage(_)
                | P::SubjectAlternativeName(_)
        )
    })
}
