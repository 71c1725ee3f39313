//! The headers by which front proxies name a user, according to the current settings. Clients must
//! not send them; the API server reads them.
//!
//! Where a file replaces the cluster's setting, the API server still reads the headers of the
//! cluster. Weir names users by those of the file, and removes both from clients' requests.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use http::HeaderName;

use super::setting::Setting;
use crate::auth::request_header::{RemoteUserHeaders, RequestHeaderNames};

/// A handle to the current names of the headers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProxyHeaders {
    current: Arc<ArcSwap<ProxyHeaderNames>>,
}

/// The names at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ProxyHeaderNames {
    /// The names by which front proxies name a user to Weir, and Weir to the API server.
    pub(crate) trusted: Setting<RequestHeaderNames>,
    /// The cluster's names; `Unset` where `trusted` has them.
    pub(crate) cluster: Setting<RequestHeaderNames>,
}

impl ProxyHeaders {
    /// Returns the current names. A caller that uses them in several steps of one request must load
    /// them once: they may change between two loads.
    pub(crate) fn load(&self) -> Guard<Arc<ProxyHeaderNames>> {
        self.current.load()
    }

    /// Replaces the names.
    pub(crate) fn store(&self, names: ProxyHeaderNames) {
        self.current.store(Arc::new(names));
    }
}

/// Creates a handle whose names are not known yet.
impl Default for ProxyHeaders {
    fn default() -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(ProxyHeaderNames::default())) }
    }
}

/// Names that are not known yet.
impl Default for ProxyHeaderNames {
    fn default() -> Self {
        Self { trusted: Setting::Unknown, cluster: Setting::Unset }
    }
}

impl ProxyHeaderNames {
    /// Returns names of one source.
    #[cfg(test)]
    pub(crate) fn only(trusted: Setting<RequestHeaderNames>) -> Self {
        Self { trusted, cluster: Setting::Unset }
    }

    /// Whether all names are known.
    pub(crate) fn are_known(&self) -> bool {
        !matches!((&self.trusted, &self.cluster), (Setting::Unknown, _) | (_, Setting::Unknown))
    }

    /// Whether `name` is one of the headers.
    pub(crate) fn contain(&self, name: &HeaderName) -> bool {
        [&self.trusted, &self.cluster]
            .into_iter()
            .any(|names| names.as_set().is_some_and(|names| names.contains(name)))
    }

    /// Returns the headers in which a front proxy names a user, or `None` if the API server reads
    /// none.
    pub(crate) fn remote_user_headers(&self) -> Option<RemoteUserHeaders<'_>> {
        self.trusted.as_set().and_then(RequestHeaderNames::remote_user_headers)
    }
}
