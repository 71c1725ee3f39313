//! A bundle of CA certificates.

use std::sync::Arc;

use rustls::DistinguishedName;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::chain::PresentedChain;
use super::root::Root;

/// Why a bundle of CA certificates cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BundleError {
    /// The file is not PEM.
    #[error("it is not in PEM")]
    Pem,
    /// The file contains no certificate.
    #[error("it contains no certificate")]
    Empty,
    /// A certificate cannot be parsed; the number counts from 1.
    #[error("certificate number {0} cannot be parsed")]
    Certificate(usize),
}

/// The certificates of trusted CAs.
#[derive(Debug)]
pub(crate) struct Bundle {
    roots: Vec<Root>,
    subjects: Vec<DistinguishedName>,
}

impl Bundle {
    /// Parses PEM. Sections other than certificates are skipped, as upstream.
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
        let subjects = roots.iter().flat_map(|root| root.hints().to_vec());
        Ok(Self { subjects: subjects.collect(), roots })
    }

    /// Returns the names of the CAs, for the hints of a handshake.
    pub(crate) fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Returns whether the chain leads to one of the roots at `now` (seconds since 1970).
    pub(crate) fn trusts(&self, chain: &PresentedChain<'_>, now: i64) -> bool {
        self.roots.iter().any(|root| root.trusts(chain, now))
    }

    /// Returns the first second after `now` at which a chain that is trusted at `now` no longer is.
    pub(crate) fn trusted_until(&self, chain: &PresentedChain<'_>, now: i64) -> i64 {
        let leaf_end = chain.leaf_end().unwrap_or(now);
        let mut changes = self.changes(chain);
        changes.retain(|&at| at > now && at < leaf_end);
        changes.sort_unstable();
        changes.dedup();
        changes.into_iter().find(|&at| !self.trusts(chain, at)).unwrap_or(leaf_end)
    }

    /// Returns the seconds at which the result of [`Self::trusts`] may change for this chain.
    pub(crate) fn changes(&self, chain: &PresentedChain<'_>) -> Vec<i64> {
        let roots = self.roots.iter().filter(|root| root.may_anchor(chain));
        let validities = roots.map(Root::validity).chain(chain.validities());
        validities.flat_map(|validity| [validity.start, validity.end]).collect()
    }
}
