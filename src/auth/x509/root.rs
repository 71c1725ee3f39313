//! One trusted CA certificate, and the verification of a chain against it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::x509::X509Version;

use super::certificate::{allows_clients, parse, validity};
use super::chain::PresentedChain;
use super::direct;

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
            .is_some_and(|issuer| direct::is_valid(chain.leaf(), &issuer, algorithms, now))
    }
}
