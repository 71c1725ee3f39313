//! The headers by which front proxies name a user, according to the current settings. Clients must
//! not send them; the API server reads them.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::setting::Setting;
use crate::auth::request_header::RequestHeaderNames;

/// A handle to the current names of the headers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProxyHeaders {
    current: Arc<ArcSwap<Setting<RequestHeaderNames>>>,
}

impl ProxyHeaders {
    /// Returns the current names. A caller that uses them in several steps of one request must load
    /// them once: they may change between two loads.
    pub(crate) fn load(&self) -> Guard<Arc<Setting<RequestHeaderNames>>> {
        self.current.load()
    }

    /// Replaces the names.
    pub(crate) fn store(&self, names: Setting<RequestHeaderNames>) {
        self.current.store(Arc::new(names));
    }
}

/// Creates a handle whose names are not known yet.
impl Default for ProxyHeaders {
    fn default() -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(Setting::Unknown)) }
    }
}
