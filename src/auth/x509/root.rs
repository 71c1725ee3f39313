//! One trusted CA certificate, and the verification of a chain against it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::certificate::{allows_clients, parse, validity};
use super::chain::PresentedChain;
use super::signature;

/// A CA certificate of a bundle.
#[derive(Debug)]
pub(super) struct Root {
    der: CertificateDer<'static>,
    /// The subject in DER.
    subject: Vec<u8>,
    validity: Range<i64>,
    /// Whether the certificate may sign others.
    may_sign: bool,
    /// Whether its extended key usages, if any, allow client authentication.
    allows_clients: bool,
    /// A verifier with this root only.
    verifier: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
}

impl Root {
    /// Parses a certificate; `None` if it cannot be used as a root.
    pub(super) fn new(
        der: CertificateDer<'static>,
        provider: &Arc<CryptoProvider>,
    ) -> Option<Self> {
        let mut store = RootCertStore::empty();
        store.add(der.clone()).ok()?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .ok()?;
        let parsed = parse(&der)?;
        let may_sign =
            match parsed.basic_constraints().ok()? {
                Some(constraints) => constraints.value.ca,
                // A certificate of version 1 has no extensions; it is trusted because it is in the
                // bundle.
                None => parsed.version() != X509Version::V3,
            } && parsed.key_usage().ok()?.is_none_or(|usage| usage.value.key_cert_sign());
        let subject = parsed.subject().as_raw().to_vec();
        let (validity, allows_clients) = (validity(&parsed), allows_clients(&parsed)?);
        let provider = Arc::clone(provider);
        Some(Self { subject, validity, may_sign, allows_clients, verifier, provider, der })
    }

    /// Returns the name of this CA, for the hints of a handshake.
    pub(super) fn hints(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    /// Returns the seconds in which the certificate is valid.
    pub(super) fn validity(&self) -> &Range<i64> {
        &self.validity
    }

    /// Returns whether this certificate could be the root of the chain, judging by names only.
    pub(super) fn may_anchor(&self, chain: &PresentedChain<'_>) -> bool {
        chain.has_issuer(&self.subject) || chain.leaf_der() == Some(&self.der)
    }

    /// Returns whether the chain leads to this root at `now` (seconds since 1970).
    pub(super) fn trusts(&self, chain: &PresentedChain<'_>, now: i64) -> bool {
        if !self.may_anchor(chain) || !self.validity.contains(&now) || !self.allows_clients {
            return false;
        }
        let Some((leaf, rest)) = chain.certificates().split_first() else { return false };
        // A certificate that is itself in the bundle needs no signature.
        if *leaf == self.der {
            return true;
        }
        let Ok(seconds) = u64::try_from(now) else { return false };
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.may_sign
            && (self.verifier.verify_client_cert(leaf, rest, time).is_ok()
                || self.trusts_directly(chain, now))
    }

    fn trusts_directly(&self, chain: &PresentedChain<'_>, now: i64) -> bool {
        let algorithms = self.provider.signature_verification_algorithms.all;
        parse(&self.der)
            .is_some_and(|issuer| is_signed_directly(chain.leaf(), &issuer, algorithms, now))
    }
}

/// Returns whether `leaf` is one that `issuer` signed directly, that is valid at `now` (seconds
/// since 1970), and that Go accepts but webpki does not. The caller has checked that `issuer` is a
/// valid root.
///
/// Many users' certificates are made by hand: `openssl x509 -req` writes version 1, `openssl req
/// -x509 -CA` marks them as CAs, and some have `anyExtendedKeyUsage`. webpki refuses all three;
/// kube-apiserver accepts them. Only for these, and only directly below a root, the rest is checked
/// here: validity, names, usages and the signature, with the same crypto provider.
fn is_signed_directly(
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
