//! The headers by which front proxies tell who a user is, in the settings as of now: what no client may send, and what the API server listens to.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderName;

use super::Setting;
use crate::auth::request_header::Names;

/// See the module. They change with the settings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProxyHeaders {
    current: Arc<ArcSwap<Setting<Names>>>,
}

/// One for each part of what is told of a user: the first of those that are listened to. Others in the list are for other front proxies; since
/// none of them passes through Weir, the first is never outdone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TellingHeaders {
    /// The user's name.
    pub username: HeaderName,
    /// The uid; `None` if the API server takes none.
    pub uid: Option<HeaderName>,
    /// Each group.
    pub group: Option<HeaderName>,
    /// What the headers of extra fields begin with, in lower case.
    pub extra_prefix: Option<String>,
}

impl ProxyHeaders {
    /// As of now. Who uses it for several steps of one request loads it once: between two loads it may have changed.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Setting<Names>>> {
        self.current.load()
    }

    /// From now on.
    pub(crate) fn store(&self, names: Setting<Names>) {
        self.current.store(Arc::new(names));
    }
}

/// Nothing known.
impl Default for ProxyHeaders {
    fn default() -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(Setting::Unknown)) }
    }
}
