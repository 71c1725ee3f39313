//! The certificate chain that a client presented in the TLS handshake.

use std::ops::Range;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use super::certificate::{parse, validity};

/// The parsed chain of a client.
pub(crate) struct PresentedChain<'a> {
    certificates: &'a [CertificateDer<'static>],
    leaf: X509Certificate<'a>,
    /// The issuers of all certificates, in DER.
    issuers: Vec<Vec<u8>>,
    validities: Vec<Range<i64>>,
}

impl<'a> PresentedChain<'a> {
    /// Parses a chain. Returns `None` if it is empty or too long, or if a certificate cannot be
    /// parsed.
    pub(crate) fn parse(certificates: &'a [CertificateDer<'static>]) -> Option<Self> {
        if certificates.len() > CERTIFICATES_MAX {
            return None;
        }
        let parsed_chain: Vec<_> =
            certificates.iter().map(|der| parse(der)).collect::<Option<_>>()?;
        let issuers = parsed_chain.iter().map(|parsed| parsed.issuer().as_raw().to_vec()).collect();
        let validities = parsed_chain.iter().map(validity).collect();
        let leaf = parsed_chain.into_iter().next()?;
        Some(Self { certificates, leaf, issuers, validities })
    }

    /// Returns the client's own certificate.
    pub(crate) fn leaf(&self) -> &X509Certificate<'a> {
        &self.leaf
    }

    pub(super) fn certificates(&self) -> &'a [CertificateDer<'static>] {
        self.certificates
    }

    pub(super) fn leaf_der(&self) -> Option<&'a CertificateDer<'static>> {
        self.certificates.first()
    }

    /// Returns the first second in which the client's own certificate is no longer valid.
    pub(super) fn leaf_end(&self) -> Option<i64> {
        self.validities.first().map(|validity| validity.end)
    }

    /// Returns the seconds in which each certificate is valid.
    pub(super) fn validities(&self) -> &[Range<i64>] {
        &self.validities
    }

    /// Returns whether a certificate of the chain names this issuer (in DER).
    pub(super) fn has_issuer(&self, subject: &[u8]) -> bool {
        self.issuers.iter().any(|issuer| issuer == subject)
    }
}

/// More certificates than any valid chain has: webpki follows at most six intermediates. rustls
/// limits the bytes that it accepts in a handshake.
pub(super) const CERTIFICATES_MAX: usize = 16;
