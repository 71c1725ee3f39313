//! The headers by which front proxies tell who a user is. No client's own ever reaches the upstream: it has its own idea of whom it believes,
//! and it may believe Weir's connection.
//!
//! `X-Remote-*` always are such; others are the cluster's setting (`--requestheader-*-headers`), and may change while Weir runs.

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct IdentityNames {
    configured: ArcSwap<Configured>,
}

/// In lower case.
#[derive(Debug, Default)]
struct Configured {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl IdentityNames {
    /// Replaces what is configured besides `X-Remote-*`: whole names, and what names with extra fields begin with.
    #[cfg_attr(not(test), expect(dead_code, reason = "the gateway sets what its cluster says"))]
    pub(crate) fn set<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        prefixes: impl IntoIterator<Item = &'a str>,
    ) {
        // An empty prefix would be every header's.
        let lower = |text: &str| Some(text.trim().to_ascii_lowercase()).filter(|t| !t.is_empty());
        self.configured.store(
            Configured {
                names: names.into_iter().filter_map(lower).collect(),
                prefixes: prefixes.into_iter().filter_map(lower).collect(),
            }
            .into(),
        );
    }

    /// Whether a header is one of them.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        let (name, configured) = (name.as_str(), self.configured.load());
        name.starts_with(REMOTE_PREFIX)
            || configured.names.iter().any(|other| other == name)
            || configured.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Removes all of them.
    pub(crate) fn remove_front_proxies(&self, headers: &mut HeaderMap) {
        let found: Vec<HeaderName> =
            headers.keys().filter(|name| self.contains(name)).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }
}

/// What the usual ones begin with.
const REMOTE_PREFIX: &str = "x-remote-";
