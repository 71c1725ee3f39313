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

/// All that are listed for each part of what is told of a user. Not the first alone: kube-apiserver adds its own to those that are in the config map
/// already, and takes none out, so that the first may be one to which nobody listens any more. One that listens to several reads groups and extra
/// fields more than once, which grants nothing more.
#[derive(Clone, Copy, Debug)]
pub struct RemoteUserHeaders<'a> {
    /// The user's name.
    pub username: &'a [HeaderName],
    /// The uid.
    pub uid: &'a [HeaderName],
    /// Each group.
    pub group: &'a [HeaderName],
    /// What the headers of extra fields begin with, in lower case.
    pub extra_prefixes: &'a [String],
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
