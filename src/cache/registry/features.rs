//! The features of the upstream, as far as they are known.

use std::sync::Arc;

use crate::cache::registry::Registry;
use crate::tasks::single_flight::InFlightGuard;
use crate::upstream::shard_support::ShardSupport;
use crate::upstream::version::UpstreamVersion;

impl Registry {
    /// Whether the upstream reads pages from its watch cache ([`UpstreamVersion::has_snapshots`]).
    /// False while its version is unknown.
    pub fn upstream_has_snapshots(&self) -> bool {
        let version = self.inner.source.version();
        version.borrow().as_ref().is_some_and(UpstreamVersion::has_snapshots)
    }

    /// Whether the upstream omits a zero `creationTimestamp`
    /// ([`UpstreamVersion::omits_zero_times`]). `None` while its version is unknown, or while
    /// instances of several versions answer.
    pub fn upstream_omits_zero_times(&self) -> Option<bool> {
        let version = self.inner.source.version();
        let version = version.borrow();
        let version = version.as_ref().filter(|version| !version.is_mixed)?;
        Some(version.omits_zero_times())
    }

    /// Whether the upstream marks the end of a watch's initial events, as far as is known.
    pub fn may_have_watch_lists(&self) -> bool {
        let support = &self.inner.context.watch_list;
        support.is_supported() || !support.is_known()
    }

    /// Returns how the upstream answers reads by shard selectors; `None` if it ignores them, or if
    /// that is not known soon. While instances of several versions answer, one of them may ignore
    /// the selector, and nobody knows which one is asked next.
    pub(crate) async fn shard_support(&self) -> Option<ShardSupport> {
        let version = self.inner.source.version();
        if version.borrow().as_ref().is_none_or(|version| version.is_mixed) {
            return None;
        }
        let context = &self.inner.context;
        let known = &context.shard_support;
        if self.availability().is_usable() {
            let learn = |guard: InFlightGuard<(), ()>| {
                let (inner, cancel) = (Arc::clone(&self.inner), context.cancel.clone());
                let attempt = async move {
                    inner.context.shard_support.learn(inner.source.ask_shard_support()).await;
                    guard.complete(());
                };
                context.tasks.spawn(cancel.run_until_cancelled_owned(attempt));
            };
            known.wait(learn).await;
        }
        known.last_answer()
    }
}
