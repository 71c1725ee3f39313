//! The current settings, shared by the authenticator, which reads them, and the
//! [`Reloader`](super::Reloader), which replaces them.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::proxy_headers::{ProxyHeaderNames, ProxyHeaders};
use super::setting::Setting;
use super::snapshot::TrustSnapshot;
use crate::auth::authenticator::metrics::{AuthenticationMetrics, CaKind};
use crate::auth::request_header::{RequestHeaderNames, RequestHeaderRules};
use crate::auth::x509::Bundle;
use crate::auth::x509::handshake::Hints;

/// The current settings, and the values that other components derive from them.
#[derive(Debug)]
pub(crate) struct TrustStore {
    current: ArcSwap<TrustSnapshot>,
    hints: Hints,
    proxy_headers: ProxyHeaders,
    metrics: AuthenticationMetrics,
    /// Held while a snapshot is made from the current one, so that no update is lost.
    update: Mutex<()>,
}

impl TrustStore {
    /// Creates a store in which nothing is known.
    pub(crate) fn new(metrics: AuthenticationMetrics) -> Self {
        let store = Self {
            current: ArcSwap::from_pointee(TrustSnapshot::new(Setting::Unknown, Setting::Unknown)),
            hints: Hints::default(),
            proxy_headers: ProxyHeaders::default(),
            metrics,
            update: Mutex::new(()),
        };
        store.publish(&store.current.load());
        store
    }

    /// Returns the current settings.
    pub(crate) fn load(&self) -> Guard<Arc<TrustSnapshot>> {
        self.current.load()
    }

    /// Returns the names of all CAs, which follow the settings.
    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Returns the headers of front proxies, which follow the settings.
    pub(crate) fn proxy_headers(&self) -> &ProxyHeaders {
        &self.proxy_headers
    }

    /// Returns the metrics that count failures to read a setting.
    pub(crate) fn metrics(&self) -> &AuthenticationMetrics {
        &self.metrics
    }

    /// Replaces the CA of clients.
    pub(crate) fn set_client_ca(&self, client_ca: Setting<Bundle>) {
        let _update = self.update.lock();
        let front_proxy = self.current.load().front_proxy.clone();
        self.replace(TrustSnapshot::new(client_ca, front_proxy));
    }

    /// Replaces the rules for front proxies.
    pub(crate) fn set_front_proxy(&self, front_proxy: Setting<RequestHeaderRules>) {
        let _update = self.update.lock();
        let client_ca = self.current.load().client_ca.clone();
        self.replace(TrustSnapshot::new(client_ca, front_proxy));
    }

    /// Replaces the names of the cluster's own front-proxy headers, where a file has the rules. The
    /// verdicts on certificates do not depend on them.
    pub(crate) fn set_cluster_headers(&self, cluster: Setting<RequestHeaderNames>) {
        let _update = self.update.lock();
        let trusted = self.proxy_headers.load().trusted.clone();
        self.proxy_headers.store(ProxyHeaderNames { trusted, cluster });
    }

    fn replace(&self, trust: TrustSnapshot) {
        self.publish(&trust);
        self.current.store(Arc::new(trust));
    }

    /// Updates the values derived from the settings. This comes before the settings take effect, so
    /// that no request is authenticated by new settings while its headers are still handled by the
    /// old ones.
    fn publish(&self, trust: &TrustSnapshot) {
        let client_ca = trust.client_ca.as_set().map(Bundle::subjects);
        let front_proxy = trust.front_proxy.as_set().map(|rules| rules.ca.subjects());
        let authorities = client_ca.into_iter().chain(front_proxy).flatten();
        self.hints.store(authorities.cloned().collect());
        let trusted = match &trust.front_proxy {
            Setting::Unknown => Setting::Unknown,
            Setting::Unset => Setting::Unset,
            Setting::Set(rules) => Setting::Set(Arc::new(rules.names.clone())),
        };
        let cluster = self.proxy_headers.load().cluster.clone();
        self.proxy_headers.store(ProxyHeaderNames { trusted, cluster });
        self.metrics.set_ca_state(CaKind::Client, trust.client_ca.state());
        self.metrics.set_ca_state(CaKind::RequestHeader, trust.front_proxy.state());
    }
}
