//! Users of client certificates, found as kube-apiserver finds them (semantics.md §12.1; apiserver `request/x509`).
//!
//! The handshake only proves that the client has the key ([`handshake`]); whether its chain is good is judged later, for each request's own
//! time ([`Bundle::trusts`]), since connections outlive certificates, and since a certificate of an unknown CA is a 401 and no TLS error.
//!
//! The chain is webpki's to verify, one root at a time. Go, which the upstream uses, judges some things otherwise, and a user whom the upstream
//! knows must not be unknown here, nor the other way round; so for each root it is looked at here what webpki takes for granted (its times, whether
//! it may sign, its usages), and `direct` accepts what webpki cannot read. What stays different is refused here: RSA keys below 2048 bits.

mod direct;
pub mod handshake;
mod signature;
mod subject;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

pub(crate) use subject::{CREDENTIAL_ID, add_authenticated, common_name, user};

/// Why a bundle of CA certificates cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BundleError {
    /// It is no PEM.
    #[error("it is not in PEM")]
    Pem,
    /// There is none in it.
    #[error("it holds no certificate")]
    Empty,
    /// One cannot be read.
    #[error("the certificate with number {0} in it cannot be read")]
    Certificate(usize),
}

/// The certificates of CAs that are trusted.
#[derive(Debug)]
pub(crate) struct Bundle {
    roots: Vec<Root>,
    subjects: Vec<DistinguishedName>,
}

/// One of them.
#[derive(Debug)]
struct Root {
    der: CertificateDer<'static>,
    /// Its subject, in DER.
    subject: Vec<u8>,
    valid: Range<i64>,
    /// Whether it may sign certificates.
    signs: bool,
    /// Whether its extended key usages, if it has any, leave room for clients.
    for_clients: bool,
    /// Knows this root alone.
    verifier: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
}

/// What a client showed, parsed.
pub(crate) struct Shown<'a> {
    certificates: &'a [CertificateDer<'static>],
    leaf: X509Certificate<'a>,
    /// The issuers of all, in DER.
    issuers: Vec<Vec<u8>>,
    valid: Vec<Range<i64>>,
}

impl Bundle {
    /// Reads PEM; whatever else is in it but certificates is skipped, as upstream.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, BundleError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = Vec::new();
        for (index, der) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let der = der.map_err(|_| BundleError::Pem)?;
            let root = Root::new(der, &provider);
            roots.push(root.ok_or(BundleError::Certificate(index + 1))?);
        }
        if roots.is_empty() {
            return Err(BundleError::Empty);
        }
        let subjects = roots.iter().flat_map(|root| root.verifier.root_hint_subjects().to_vec());
        Ok(Self { subjects: subjects.collect(), roots })
    }

    /// The CAs' names, for the hints of a handshake.
    pub(crate) fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Whether a client's chain leads to one of the roots at a time (seconds since 1970).
    pub(crate) fn trusts(&self, shown: &Shown<'_>, now: i64) -> bool {
        self.roots.iter().any(|root| root.trusts(shown, now))
    }

    /// The first second, after `now`, in which a chain that is good now no longer is.
    pub(crate) fn trusts_until(&self, shown: &Shown<'_>, now: i64) -> i64 {
        let leaf = shown.valid.first().map_or(now, |valid| valid.end);
        let mut changes = self.changes(shown);
        changes.retain(|&at| at > now && at < leaf);
        changes.sort_unstable();
        changes.dedup();
        changes.into_iter().find(|&at| !self.trusts(shown, at)).unwrap_or(leaf)
    }

    /// The seconds in which the answer for this chain may change.
    pub(crate) fn changes(&self, shown: &Shown<'_>) -> Vec<i64> {
        let roots = self.roots.iter().filter(|root| root.concerns(shown)).map(|root| &root.valid);
        roots.chain(&shown.valid).flat_map(|valid| [valid.start, valid.end]).collect()
    }
}

impl Root {
    fn new(der: CertificateDer<'static>, provider: &Arc<CryptoProvider>) -> Option<Self> {
        let mut store = RootCertStore::empty();
        store.add(der.clone()).ok()?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .ok()?;
        let parsed = parse(&der)?;
        let signs = match parsed.basic_constraints().ok()? {
            Some(constraints) => constraints.value.ca,
            // Those of version 1 have no extensions, and are trusted for being in the bundle.
            None => parsed.version() != x509_parser::x509::X509Version::V3,
        } && parsed.key_usage().ok()?.is_none_or(|usage| usage.value.key_cert_sign());
        let subject = parsed.subject().as_raw().to_vec();
        let (valid, for_clients) = (valid(&parsed), for_clients(&parsed)?);
        let provider = Arc::clone(provider);
        Some(Self { subject, valid, signs, for_clients, verifier, provider, der })
    }

    /// Whether it could be the root of this chain.
    fn concerns(&self, shown: &Shown<'_>) -> bool {
        shown.issuers.contains(&self.subject) || shown.leaf_der() == Some(&self.der)
    }

    fn trusts(&self, shown: &Shown<'_>, now: i64) -> bool {
        if !self.concerns(shown) || !self.valid.contains(&now) || !self.for_clients {
            return false;
        }
        let Some((leaf, rest)) = shown.certificates.split_first() else { return false };
        // A certificate that is in the bundle itself needs no signature.
        if *leaf == self.der {
            return true;
        }
        let Ok(seconds) = u64::try_from(now) else { return false };
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.signs
            && (self.verifier.verify_client_cert(leaf, rest, time).is_ok()
                || direct::trusts(self, &shown.leaf, now))
    }
}

impl<'a> Shown<'a> {
    /// `None` if one of them cannot be read, or there are none, or too many.
    pub(crate) fn parse(certificates: &'a [CertificateDer<'static>]) -> Option<Self> {
        if certificates.len() > CERTIFICATES_MAX {
            return None;
        }
        let all: Vec<_> = certificates.iter().map(|der| parse(der)).collect::<Option<_>>()?;
        let issuers = all.iter().map(|parsed| parsed.issuer().as_raw().to_vec()).collect();
        let valid = all.iter().map(valid).collect();
        let leaf = all.into_iter().next()?;
        Some(Self { certificates, leaf, issuers, valid })
    }

    /// The client's own certificate.
    pub(crate) fn leaf(&self) -> &X509Certificate<'a> {
        &self.leaf
    }

    fn leaf_der(&self) -> Option<&'a CertificateDer<'static>> {
        self.certificates.first()
    }
}

/// A certificate, and nothing after it.
fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .ok()
        .filter(|(rest, _)| rest.is_empty())
        .map(|(_, parsed)| parsed)
}

/// The seconds in which it is good. The last one, `notAfter`, is among them from its beginning to its end: RFC 5280 has the limit inclusive, and the
/// clock here counts whole seconds. Go compares to the nanosecond and refuses just after the second has begun, so kube-apiserver is up to a second
/// earlier.
fn valid(parsed: &X509Certificate<'_>) -> Range<i64> {
    let validity = parsed.validity();
    validity.not_before.timestamp()..validity.not_after.timestamp().saturating_add(1)
}

/// Whether its extended key usages allow a client, or it has none; `None` if they cannot be read.
fn for_clients(parsed: &X509Certificate<'_>) -> Option<bool> {
    let usage = parsed.extended_key_usage().ok()?;
    Some(usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
}

/// More than any chain has; webpki follows six intermediates at most. What rustls takes in a handshake is bounded in bytes.
const CERTIFICATES_MAX: usize = 16;
