//! What the upstream supports, as far as it is known.

use crate::cache::registry::Registry;
use crate::upstream::version::UpstreamVersion;

impl Registry {
    /// Whether the upstream reads pages from its watch cache ([`UpstreamVersion::has_snapshots`]).
    /// False while its version is unknown.
    pub fn upstream_has_snapshots(&self) -> bool {
        let version = self.inner.source.version();
        version.borrow().as_ref().is_some_and(UpstreamVersion::has_snapshots)
    }

    /// Whether the upstream marks the end of a watch's initial events, as far as is known.
    pub fn may_have_watch_lists(&self) -> bool {
        let support = &self.inner.context.watch_list;
        support.is_supported() || !support.is_known()
    }
}
