//! Certificates that a root signed itself, and that webpki does not read, but Go does.
//!
//! Many users' certificates are made by hand: `openssl x509 -req` makes them of version 1, `openssl req -x509 -CA` marks them as CAs, and some have
//! `anyExtendedKeyUsage`. webpki refuses all three; kube-apiserver takes them. Only for these, and only directly below a root, the rest is
//! checked here: times, names, usages and the signature, by the same provider.

use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::{Root, for_clients, parse, signature, valid};

/// Whether a root signed a client's certificate of such a kind, which is good at a time. The root itself has been looked at.
pub(super) fn trusts(root: &Root, leaf: &X509Certificate<'_>, now: i64) -> bool {
    let Some(issuer) = parse(&root.der) else { return false };
    is_special(leaf)
        && valid(leaf).contains(&now)
        && for_clients(leaf) == Some(true)
        && leaf.issuer().as_raw() == root.subject
        // Names are webpki's to judge.
        && matches!(issuer.name_constraints(), Ok(None))
        && !has_unknown_critical(leaf)
        && signature::of_certificate(
            root.provider.signature_verification_algorithms.all,
            issuer.public_key().raw,
            leaf,
        )
}

fn is_special(leaf: &X509Certificate<'_>) -> bool {
    let is_ca = matches!(leaf.basic_constraints(), Ok(Some(constraints)) if constraints.value.ca);
    let any = matches!(leaf.extended_key_usage(), Ok(Some(usage)) if usage.value.any);
    leaf.version() == X509Version::V1 || is_ca || any
}

/// Whether there is an extension that must be understood and is not.
fn has_unknown_critical(leaf: &X509Certificate<'_>) -> bool {
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
