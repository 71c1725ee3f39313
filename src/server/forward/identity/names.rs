//! The headers in which front proxies name a user. Weir never forwards a client's own: which
//! senders the upstream trusts with them is the upstream's configuration, and it may trust Weir's
//! connection.
//!
//! `X-Remote-*` are always such headers. Others are the cluster's setting
//! (`--requestheader-*-headers`), followed while Weir runs, and those of Weir's own configuration
//! ([`ProxyHeaders`]).
//!
//! Until the settings are known, only `X-Remote-*` can be distinguished from other headers.
//! Meanwhile requests are refused with 503 on every connection on which the upstream could trust
//! another header ([`Names::are_known`]). Requests without a credential of Weir's
//! ([`crate::server::forward::identity::ForwardedIdentity::AsIs`]) pass, since an API server trusts
//! such headers only with a front proxy's certificate, and their connections have none.

use std::sync::Arc;

use arc_swap::Guard;
use http::{HeaderMap, HeaderName};

use crate::auth::request_header::RemoteUserHeaders;
#[cfg(test)]
use crate::auth::request_header::RequestHeaderNames;
#[cfg(test)]
use crate::auth::trust::Setting;
use crate::auth::trust::{ProxyHeaderNames, ProxyHeaders};

/// The names of the identity headers. Cheap to clone: clones share the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityNames {
    /// `None` in sidecar mode, which does not use the cluster's settings.
    configured: Option<ProxyHeaders>,
}

/// The names at one moment. The headers that are removed from a request and those that are added
/// must come from the same settings.
pub(crate) struct Names(Option<Guard<Arc<ProxyHeaderNames>>>);

impl IdentityNames {
    /// Creates the names from the cluster's settings, besides `X-Remote-*`.
    pub(crate) fn new(configured: ProxyHeaders) -> Self {
        Self { configured: Some(configured) }
    }

    /// Creates the names from the usual settings.
    #[cfg(test)]
    pub(crate) fn usual() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self::set(RequestHeaderNames::new(
            Vec::new(),
            &one("X-Remote-User"),
            &one("X-Remote-Uid"),
            &one("X-Remote-Group"),
            &one("X-Remote-Extra-"),
        ))
    }

    /// Creates the names from settings that list `names`.
    #[cfg(test)]
    pub(crate) fn set(names: RequestHeaderNames) -> Self {
        let configured = ProxyHeaders::default();
        configured.store(ProxyHeaderNames::only(Setting::Set(Arc::new(names))));
        Self::new(configured)
    }

    /// Returns the names at this moment.
    pub(crate) fn load(&self) -> Names {
        Names(self.configured.as_ref().map(ProxyHeaders::load))
    }
}

impl Names {
    /// Whether the settings are known.
    pub(super) fn are_known(&self) -> bool {
        self.configured().is_none_or(ProxyHeaderNames::are_known)
    }

    /// Returns the headers in which a front proxy names a user, or `None` if the upstream reads
    /// none.
    pub(super) fn remote_user_headers(&self) -> Option<RemoteUserHeaders<'_>> {
        self.configured().and_then(ProxyHeaderNames::remote_user_headers)
    }

    fn configured(&self) -> Option<&ProxyHeaderNames> {
        self.0.as_deref().map(|names| &**names)
    }

    /// Whether `name` is an identity header.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        name.as_str().starts_with(REMOTE_PREFIX)
            || self.configured().is_some_and(|names| names.contain(name))
    }

    /// Removes all identity headers.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| self.contain(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// The prefix of the headers that are always identity headers.
const REMOTE_PREFIX: &str = "x-remote-";
