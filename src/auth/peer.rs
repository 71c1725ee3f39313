//! The client of a connection: its address, its certificates and its last token. Certificates are
//! verified with each request, not in the handshake (`docs/decisions/authentication.md`).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls_pki_types::CertificateDer;

use crate::auth::token_review::TokenMemo;
use crate::auth::trust::{CertificateVerdict, TrustSnapshot};

/// The client of a connection. Cheap to clone; clones share the cached verdict on the certificates,
/// and the last token.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificates that the client presented, its own first; `None` if there are none. The
    /// handshake proved only that the client has the private key.
    pub certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// The client's address; `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// The last verdict on the certificates, cached so that requests on a kept-alive connection
    /// verify no signatures. It belongs to these certificates: a caller that changes them must
    /// create a new `Peer`.
    pub(crate) verdict: Arc<ArcSwapOption<CertificateVerdict>>,
    /// The last accepted token on the connection.
    pub(crate) token: Arc<TokenMemo>,
}

/// Returns the key by which limits count a client. An IPv6 host can choose among the addresses of
/// its /64 (RFC 4291 §2.5.4), so all of them have the same key.
pub(crate) fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

impl Peer {
    /// Creates a peer with the certificates of a TLS connection, as rustls returns them.
    pub fn new(certificates: Option<&[CertificateDer<'_>]>, address: Option<IpAddr>) -> Self {
        let owned = |certificates: &[CertificateDer<'_>]| {
            certificates.iter().map(|certificate| certificate.clone().into_owned()).collect()
        };
        let certificates = certificates.filter(|chain| !chain.is_empty()).map(owned);
        Self { certificates, address, ..Self::default() }
    }

    /// Returns the verdict on the certificates at `now` (seconds since 1970); `None` if there are
    /// none.
    pub(crate) fn verdict(
        &self,
        trust: &TrustSnapshot,
        now: i64,
    ) -> Option<Arc<CertificateVerdict>> {
        let certificates = self.certificates.as_deref()?;
        if let Some(verdict) = self.verdict.load_full().filter(|last| last.holds(trust, now)) {
            return Some(verdict);
        }
        // Two concurrent requests may both verify the certificates; the verdicts are equal.
        let verdict = Arc::new(trust.verify(certificates, now));
        self.verdict.store(Some(Arc::clone(&verdict)));
        Some(verdict)
    }
}
