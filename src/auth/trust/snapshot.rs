//! The settings at one moment, and the verdict on a connection's certificates by them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls_pki_types::CertificateDer;

use super::setting::Setting;
use crate::auth::request_header::RequestHeaderRules;
use crate::auth::user::User;
use crate::auth::x509::{Bundle, PresentedChain, user};

/// All settings at one moment.
#[derive(Debug)]
pub(crate) struct TrustSnapshot {
    /// Unique in the process.
    pub(super) generation: u64,
    pub(super) client_ca: Setting<Bundle>,
    pub(super) front_proxy: Setting<RequestHeaderRules>,
}

/// The verdict on a connection's certificates. It holds while the settings are the same, until the
/// validity of a certificate begins or ends.
#[derive(Debug)]
pub(crate) struct CertificateVerdict {
    generation: u64,
    from: i64,
    until: i64,
    /// The user of the certificates.
    pub(crate) identity: CertificateIdentity,
    /// The rules for the peer's headers, if it is a front proxy.
    pub(crate) front_proxy: Option<FrontProxy>,
}

/// A peer whose `X-Remote-*` headers name the user.
#[derive(Debug)]
pub(crate) struct FrontProxy {
    /// The rules for its headers.
    pub(crate) rules: Arc<RequestHeaderRules>,
    /// The end of its certificates' validity (seconds since 1970).
    pub(crate) trusted_until: i64,
}

/// The user of a connection's certificates.
#[derive(Debug)]
pub(crate) enum CertificateIdentity {
    /// This user.
    User {
        /// The user.
        user: Arc<User>,
        /// The end of the certificates' validity (seconds since 1970).
        trusted_until: i64,
    },
    /// The certificates are valid or not checked, and name no user.
    None,
    /// The certificates are invalid for at least one of upstream's authenticators, and for no other
    /// do they name a user. Without another credential the request ends in status 401.
    Invalid,
    /// The settings are not known yet.
    Unknown,
}

impl TrustSnapshot {
    /// Creates a snapshot with a new generation.
    pub(super) fn new(
        client_ca: Setting<Bundle>,
        front_proxy: Setting<RequestHeaderRules>,
    ) -> Self {
        Self { generation: next_generation(), client_ca, front_proxy }
    }

    /// Verifies certificates at `now` (seconds since 1970).
    pub(crate) fn verify(
        &self,
        certificates: &[CertificateDer<'static>],
        now: i64,
    ) -> CertificateVerdict {
        let verdict = |identity, (from, until), front_proxy| CertificateVerdict {
            generation: self.generation,
            from,
            until,
            identity,
            front_proxy,
        };
        let Some(chain) = PresentedChain::parse(certificates) else {
            return verdict(CertificateIdentity::Invalid, (i64::MIN, i64::MAX), None);
        };
        if matches!(self.client_ca, Setting::Unknown)
            || matches!(self.front_proxy, Setting::Unknown)
        {
            return verdict(CertificateIdentity::Unknown, (i64::MIN, i64::MAX), None);
        }
        let unchanged = self.unchanged_around(&chain, now);
        let (mut front_proxy, mut is_refused) = (None, false);
        if let Setting::Set(rules) = &self.front_proxy {
            if rules.allows(&chain, now) {
                let trusted_until = rules.ca.trusted_until(&chain, now);
                front_proxy = Some(FrontProxy { rules: Arc::clone(rules), trusted_until });
            } else {
                is_refused = true;
            }
        }
        // Upstream runs its authenticators in order and takes the first user. If none finds one, an
        // error of any of them ends in status 401.
        let identity = match &self.client_ca {
            Setting::Set(bundle) if bundle.trusts(&chain, now) => match user(chain.leaf()) {
                Ok(Some(user)) => CertificateIdentity::User {
                    user: Arc::new(user),
                    trusted_until: bundle.trusted_until(&chain, now),
                },
                Ok(None) if !is_refused => CertificateIdentity::None,
                _ => CertificateIdentity::Invalid,
            },
            Setting::Set(_) => CertificateIdentity::Invalid,
            Setting::Unset | Setting::Unknown if is_refused => CertificateIdentity::Invalid,
            Setting::Unset | Setting::Unknown => CertificateIdentity::None,
        };
        verdict(identity, unchanged, front_proxy)
    }

    /// Returns the range of seconds around `now` in which no certificate's validity begins or ends.
    fn unchanged_around(&self, chain: &PresentedChain<'_>, now: i64) -> (i64, i64) {
        let client_ca = self.client_ca.as_set().map(|bundle| bundle.changes(chain));
        let front_proxy = self.front_proxy.as_set().map(|rules| rules.ca.changes(chain));
        let changes = client_ca.into_iter().chain(front_proxy).flatten();
        changes.fold((i64::MIN, i64::MAX), |(from, until), at| {
            if at <= now { (from.max(at), until) } else { (from, until.min(at)) }
        })
    }
}

impl CertificateVerdict {
    /// Returns whether [`TrustSnapshot::verify`] would return the same verdict at `now`.
    pub(crate) fn holds(&self, trust: &TrustSnapshot, now: i64) -> bool {
        self.generation == trust.generation && self.from <= now && now < self.until
    }
}

fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
