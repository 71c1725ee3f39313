//! The headers by which front proxies tell who a user is. No client's own ever reaches the upstream: it has its own idea of whom it believes,
//! and it may believe Weir's connection.
//!
//! `X-Remote-*` always are such; others are the cluster's setting (`--requestheader-*-headers`), followed while Weir runs ([`ProxyHeaders`]).
//!
//! Until the settings are known only `X-Remote-*` can be told from other headers. Then nothing goes on by a way on which more could be believed:
//! the request gets 503 ([`Names::are_known`]). What is carried without a credential of Weir's ([`crate::server::forward::identity::ForwardedIdentity::AsIs`]) goes on, since an API
//! server believes such headers only beside a front proxy's certificate, and its connections have none.

use std::sync::Arc;

use arc_swap::Guard;
use http::{HeaderMap, HeaderName};

use crate::auth::request_header::{RemoteUserHeaders, RequestHeaderNames};
use crate::auth::trust::{ProxyHeaders, Setting};

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityNames {
    /// `None` in sidecar mode, where the cluster's settings are nobody's business.
    configured: Option<ProxyHeaders>,
}

/// Those of one moment: what is removed from a request and what is put on it must be of the same.
pub(crate) struct Names(Option<Guard<Arc<Setting<RequestHeaderNames>>>>);

impl IdentityNames {
    /// Those of the settings besides `X-Remote-*`.
    pub(crate) fn new(configured: ProxyHeaders) -> Self {
        Self { configured: Some(configured) }
    }

    /// With the usual settings.
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

    /// With settings that list these.
    #[cfg(test)]
    pub(crate) fn set(names: RequestHeaderNames) -> Self {
        let configured = ProxyHeaders::default();
        configured.store(Setting::Set(Arc::new(names)));
        Self::new(configured)
    }

    /// As of now.
    pub(crate) fn load(&self) -> Names {
        Names(self.configured.as_ref().map(ProxyHeaders::load))
    }
}

impl Names {
    /// Whether all of them are known.
    pub(super) fn are_known(&self) -> bool {
        !matches!(self.setting(), Setting::Unknown)
    }

    /// By which a front proxy tells the upstream; `None` if it listens to none.
    pub(super) fn remote_user_headers(&self) -> Option<RemoteUserHeaders<'_>> {
        match self.setting() {
            Setting::Set(names) => names.remote_user_headers(),
            Setting::Unknown | Setting::Unset => None,
        }
    }

    fn setting(&self) -> &Setting<RequestHeaderNames> {
        self.0.as_deref().map_or(&Setting::Unset, |setting| &**setting)
    }

    /// Whether a header is one of them.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        name.as_str().starts_with(REMOTE_PREFIX)
            || matches!(self.setting(), Setting::Set(names) if names.contains(name))
    }

    /// Removes all of them.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let found: Vec<HeaderName> =
            headers.keys().filter(|name| self.contain(name)).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }
}

/// What the usual ones begin with.
const REMOTE_PREFIX: &str = "x-remote-";
