//! What a connection tells of its client, before any request.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls_pki_types::CertificateDer;

use crate::auth::cluster::{Trust, Verdict};

/// The other end of a connection. Cheap to clone; clones share what was found out about the certificates.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificates that it showed, its own first; the handshake proved that it has the key, and nothing else. `None` for none.
    pub certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// Its address; `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// What was last found out about the certificates, so that a request on a kept connection costs no signature checks. It belongs to these
    /// certificates: who changes them makes a new `Peer`.
    pub(crate) verdict: Arc<ArcSwapOption<Verdict>>,
}

/// Who counts as one client by its address: an IPv6 host has a /64 of its own to choose addresses from (RFC 4291 §2.5.4).
pub(crate) fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

impl Peer {
    /// With the certificates of a TLS connection, as rustls has them.
    pub fn new(certificates: Option<&[CertificateDer<'_>]>, address: Option<IpAddr>) -> Self {
        let owned = |all: &[CertificateDer<'_>]| {
            all.iter().map(|certificate| certificate.clone().into_owned()).collect()
        };
        let certificates = certificates.filter(|all| !all.is_empty()).map(owned);
        Self { certificates, address, verdict: Arc::default() }
    }

    /// What is thought of the certificates at a time (seconds since 1970); `None` if there are none.
    pub(crate) fn verdict(&self, trust: &Trust, now: i64) -> Option<Arc<Verdict>> {
        let certificates = self.certificates.as_deref()?;
        if let Some(verdict) = self.verdict.load_full().filter(|last| last.holds(trust, now)) {
            return Some(verdict);
        }
        // Two requests at once may both look; they find the same.
        let verdict = Arc::new(trust.judge(certificates, now));
        self.verdict.store(Some(Arc::clone(&verdict)));
        Some(verdict)
    }
}
