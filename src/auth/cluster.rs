//! Whom certificates must be from: the cluster's own settings for authentication, or files in their stead.
//!
//! Every API server publishes its own in the config map `kube-system/extension-apiserver-authentication`, for servers that are asked in its name;
//! Weir is one ([`config_map`]). A part of it that the configuration names by file is read from there instead ([`files`]). Both are looked at again
//! and again ([`follow`]). New content that cannot be used keeps what was, and is told of once.
//!
//! A part of which nothing is known yet makes every certificate [`Certified::Unknown`]: whether it is good, and whether its peer may speak for
//! others, is one question, upstream, in this order. It must not end in 401, nor in nobody.

pub(crate) mod config_map;
mod files;
mod follow;
mod proxy_headers;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

pub(crate) use follow::Follower;
pub use proxy_headers::{ProxyHeaders, RemoteUserHeaders};

use crate::auth::authenticator::metrics::{AuthenticationMetrics, CaKind, CaState};
use crate::auth::request_header::RequestHeader;
use crate::auth::user::User;
use crate::auth::x509::handshake::Hints;
use crate::auth::x509::{Bundle, PresentedChain, user};

/// A part of the settings.
#[derive(Debug)]
pub(crate) enum Setting<T> {
    /// Not known yet.
    Unknown,
    /// The cluster has none: such certificates say nothing.
    Unset,
    /// This.
    Set(Arc<T>),
}

/// All of it, at one time.
#[derive(Debug)]
pub(crate) struct Trust {
    /// Another for every content, in the whole process.
    generation: u64,
    /// The CA of clients.
    client: Setting<Bundle>,
    /// That of front proxies, and their rights.
    front_proxy: Setting<RequestHeader>,
}

/// What is thought of the certificates of a connection. It holds while the settings are the same, and between two changes of what is valid.
#[derive(Debug)]
pub(crate) struct Verdict {
    generation: u64,
    from: i64,
    until: i64,
    /// Whose they are.
    pub(crate) certified: Certified,
    /// Whether the peer may say who its user is; if so with its rights.
    pub(crate) front_proxy: Option<FrontProxy>,
}

/// A front proxy that may speak.
#[derive(Debug)]
pub(crate) struct FrontProxy {
    /// What it may.
    pub(crate) rights: Arc<RequestHeader>,
    /// From when on not any more (seconds since 1970).
    pub(crate) ends: i64,
}

/// Whose certificates are.
#[derive(Debug)]
pub(crate) enum Certified {
    /// This user's, until then (seconds since 1970).
    User(Arc<User>, i64),
    /// Nobody's, and nothing is wrong with that.
    Nobody,
    /// Some part of upstream finds fault with them. Only another credential can help.
    Wrong,
    /// It cannot be told yet.
    Unknown,
}

impl Trust {
    /// What is to be thought of certificates at a time (seconds since 1970).
    pub(crate) fn judge(&self, certificates: &[CertificateDer<'static>], now: i64) -> Verdict {
        let verdict = |certified, (from, until), front_proxy| Verdict {
            generation: self.generation,
            from,
            until,
            certified,
            front_proxy,
        };
        let Some(chain) = PresentedChain::parse(certificates) else {
            return verdict(Certified::Wrong, (i64::MIN, i64::MAX), None);
        };
        if matches!(self.client, Setting::Unknown) || matches!(self.front_proxy, Setting::Unknown) {
            return verdict(Certified::Unknown, (i64::MIN, i64::MAX), None);
        }
        let stable = self.stable(&chain, now);
        let (mut front_proxy, mut wrong) = (None, false);
        if let Setting::Set(rights) = &self.front_proxy {
            if rights.allows(&chain, now) {
                let ends = rights.bundle.trusted_until(&chain, now);
                front_proxy = Some(FrontProxy { rights: Arc::clone(rights), ends });
            } else {
                wrong = true;
            }
        }
        // Upstream asks one authenticator after the other; the first who knows a user is right, else one complaint is enough for a 401.
        let certified = match &self.client {
            Setting::Set(bundle) if bundle.trusts(&chain, now) => match user(chain.leaf()) {
                Ok(Some(user)) => {
                    Certified::User(Arc::new(user), bundle.trusted_until(&chain, now))
                }
                Ok(None) if !wrong => Certified::Nobody,
                _ => Certified::Wrong,
            },
            Setting::Set(_) => Certified::Wrong,
            Setting::Unset | Setting::Unknown if wrong => Certified::Wrong,
            Setting::Unset | Setting::Unknown => Certified::Nobody,
        };
        verdict(certified, stable, front_proxy)
    }

    /// The seconds around `now` between which nothing changes in what is valid.
    fn stable(&self, chain: &PresentedChain<'_>, now: i64) -> (i64, i64) {
        let client = match &self.client {
            Setting::Set(bundle) => Some(bundle.changes(chain)),
            _ => None,
        };
        let front_proxy = match &self.front_proxy {
            Setting::Set(rights) => Some(rights.bundle.changes(chain)),
            _ => None,
        };
        let changes = client.into_iter().flatten().chain(front_proxy.into_iter().flatten());
        changes.fold((i64::MIN, i64::MAX), |(from, until), at| {
            if at <= now { (from.max(at), until) } else { (from, until.min(at)) }
        })
    }
}

impl Verdict {
    /// Whether it still says what [`Trust::judge`] would.
    pub(crate) fn holds(&self, trust: &Trust, now: i64) -> bool {
        self.generation == trust.generation && self.from <= now && now < self.until
    }
}

/// The settings as of now, shared by who asks and who follows them.
#[derive(Debug)]
pub(crate) struct Settings {
    current: ArcSwap<Trust>,
    hints: Hints,
    proxy_headers: ProxyHeaders,
    metrics: AuthenticationMetrics,
    /// Held while one is made from the one before.
    writing: Mutex<()>,
}

impl Settings {
    /// Nothing known.
    pub(crate) fn new(metrics: AuthenticationMetrics) -> Self {
        let trust = Trust {
            generation: next_generation(),
            client: Setting::Unknown,
            front_proxy: Setting::Unknown,
        };
        let settings = Self {
            current: ArcSwap::from_pointee(trust),
            hints: Hints::default(),
            proxy_headers: ProxyHeaders::default(),
            metrics,
            writing: Mutex::new(()),
        };
        settings.publish(&settings.current.load());
        settings
    }

    /// As of now.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Trust>> {
        self.current.load()
    }

    /// The names of all CAs.
    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The headers of front proxies.
    pub(crate) fn proxy_headers(&self) -> &ProxyHeaders {
        &self.proxy_headers
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &AuthenticationMetrics {
        &self.metrics
    }

    /// Takes a new CA of clients.
    pub(crate) fn set_client(&self, client: Setting<Bundle>) {
        let _writing = self.writing.lock();
        let front_proxy = self.current.load().front_proxy.clone();
        self.replace(client, front_proxy);
    }

    /// Takes new rights of front proxies.
    pub(crate) fn set_front_proxy(&self, front_proxy: Setting<RequestHeader>) {
        let _writing = self.writing.lock();
        let client = self.current.load().client.clone();
        self.replace(client, front_proxy);
    }

    fn replace(&self, client: Setting<Bundle>, front_proxy: Setting<RequestHeader>) {
        let trust = Trust { generation: next_generation(), client, front_proxy };
        self.publish(&trust);
        self.current.store(Arc::new(trust));
    }

    /// Tells what others show of it.
    fn publish(&self, trust: &Trust) {
        let client = trust.client.as_set().map(|bundle| bundle.subjects());
        let front_proxy = trust.front_proxy.as_set().map(|rights| rights.bundle.subjects());
        let all = client.into_iter().chain(front_proxy).flatten();
        self.hints.store(all.cloned().collect());
        // Before the new settings count: no request is judged by them whose headers are still taken for something else.
        self.proxy_headers.store(match &trust.front_proxy {
            Setting::Unknown => Setting::Unknown,
            Setting::Unset => Setting::Unset,
            Setting::Set(rights) => Setting::Set(Arc::new(rights.names.clone())),
        });
        self.metrics.set_ca_state(CaKind::Client, trust.client.state());
        self.metrics.set_ca_state(CaKind::RequestHeader, trust.front_proxy.state());
    }
}

impl<T> Setting<T> {
    fn as_set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unknown | Self::Unset => None,
        }
    }

    fn state(&self) -> CaState {
        match self {
            Self::Unknown => CaState::Unknown,
            Self::Unset => CaState::Unset,
            Self::Set(_) => CaState::Set,
        }
    }
}

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Unset => Self::Unset,
            Self::Set(value) => Self::Set(Arc::clone(value)),
        }
    }
}

fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
