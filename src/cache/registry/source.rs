//! The source of the registry's resources and lists: the upstream and its discovery, or a test's
//! script.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope};
use crate::cache::budget::Budget;
use crate::upstream::Upstream;
use crate::upstream::availability::Availability;
use crate::upstream::discovery::Discovery;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{HttpListWatch, ListWatch};
use crate::upstream::shard_support::{self, ShardSupport};
use crate::upstream::version::UpstreamVersion;

/// The upstream as the registry uses it. A trait object, so that the registry and its users need no
/// type parameter.
pub(crate) trait Source: Send + Sync + 'static {
    /// Returns [`Upstream::availability`].
    fn availability(&self) -> Availability;

    /// Calls [`Discovery::find`].
    fn find<'a>(
        &'a self,
        gvr: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Option<Arc<ApiResource>>, UpstreamError>>;

    /// Calls [`Discovery::peek`].
    fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>>;

    /// Calls [`Discovery::changes`].
    fn changes(&self) -> watch::Receiver<u64>;

    /// Calls [`Discovery::is_redefined`].
    fn is_redefined(&self, gvr: &GroupVersionResource) -> bool;

    /// Calls [`Discovery::is_aggregated`].
    fn is_aggregated(&self, gvr: &GroupVersionResource) -> bool;

    /// Calls [`Discovery::recheck`].
    fn recheck_discovery(&self);

    /// Calls [`Discovery::version`].
    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>>;

    /// Calls [`Discovery::version_changes`].
    fn version_changes(&self) -> watch::Receiver<u64>;

    /// Calls [`shard_support::ask`]. A script has no shard selectors.
    fn ask_shard_support(&self) -> BoxFuture<'_, Result<Option<ShardSupport>, UpstreamError>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Creates the lister-watcher of one cache, whose limit is that of one cache in `budget`.
    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        representation: Representation,
        scope: &Scope,
        budget: &Budget,
    ) -> Arc<dyn ListWatch>;
}

/// The upstream and its discovery.
pub(crate) struct UpstreamSource {
    upstream: Upstream,
    discovery: Discovery,
}

impl UpstreamSource {
    /// Creates a source that uses Weir's own identity.
    pub(crate) fn new(upstream: Upstream, discovery: Discovery) -> Self {
        Self { upstream, discovery }
    }
}

impl Source for UpstreamSource {
    fn availability(&self) -> Availability {
        self.upstream.availability().clone()
    }

    fn find<'a>(
        &'a self,
        gvr: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Option<Arc<ApiResource>>, UpstreamError>> {
        self.discovery.find(gvr).boxed()
    }

    fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.discovery.peek(gvr)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.discovery.changes()
    }

    fn is_redefined(&self, gvr: &GroupVersionResource) -> bool {
        self.discovery.is_redefined(gvr)
    }

    fn is_aggregated(&self, gvr: &GroupVersionResource) -> bool {
        self.discovery.is_aggregated(gvr)
    }

    fn recheck_discovery(&self) {
        self.discovery.recheck();
    }

    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.discovery.version()
    }

    fn version_changes(&self) -> watch::Receiver<u64> {
        self.discovery.version_changes()
    }

    fn ask_shard_support(&self) -> BoxFuture<'_, Result<Option<ShardSupport>, UpstreamError>> {
        shard_support::ask(&self.upstream).boxed()
    }

    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        representation: Representation,
        scope: &Scope,
        budget: &Budget,
    ) -> Arc<dyn ListWatch> {
        // A list from the upstream's own cache has a single page. Its length is about the weight of
        // its objects, so a longer page holds more than the cache may.
        let budget = budget.clone();
        let list_bytes_max = move || {
            let bytes_max = budget.resource_bytes_max();
            bytes_max.saturating_add(bytes_max / 8).saturating_add(ENVELOPE_BYTES)
        };
        let list_watch = HttpListWatch::new(
            self.upstream.clone(),
            resource.clone(),
            scope,
            representation,
            list_bytes_max,
            self.discovery.version(),
        );
        Arc::new(list_watch.with_discovery(self.discovery.clone()))
    }
}

/// A generous bound for the part of a list beside its objects. The response to a probe and an empty
/// list fit under any budget.
const ENVELOPE_BYTES: usize = 1024 * 1024;
