//! Where the registry's resources and lists come from: the upstream and its discovery, or a test's script.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope};
use crate::cache::cached_resource::CachedResource;
use crate::cache::proof::list_watch::DynListWatch;
use crate::cache::reflector::{Reflector, StartOptions};
use crate::cache::refusal::Refusal;
use crate::upstream::Upstream;
use crate::upstream::discovery::Discovery;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{HttpListWatch, ListWatch};
use crate::upstream::version::UpstreamVersion;

/// What the registry needs of an upstream, behind an object, so that neither it nor its users carry a type parameter.
pub(crate) trait Source: Send + Sync + 'static {
    /// [`Discovery::find`].
    fn find<'a>(
        &'a self,
        gvr: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Option<Arc<ApiResource>>, UpstreamError>>;

    /// [`Discovery::peek`].
    fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>>;

    /// [`Discovery::changes`].
    fn changes(&self) -> watch::Receiver<u64>;

    /// [`Discovery::version`].
    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>>;

    /// The lister-watcher of one cache.
    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        representation: Representation,
        scope: &Scope,
    ) -> Arc<dyn Reflectable>;
}

/// A lister-watcher behind an object: all that the registry does with one.
pub(crate) trait Reflectable: Send + Sync {
    /// What proofs of freshness ask.
    fn dyn_list_watch(self: Arc<Self>) -> Arc<dyn DynListWatch>;

    /// The work of the reflector of a new cache.
    fn reflect(
        self: Arc<Self>,
        cached: Arc<CachedResource>,
        options: StartOptions,
    ) -> BoxFuture<'static, Refusal>;
}

impl<L: ListWatch> Reflectable for L {
    fn dyn_list_watch(self: Arc<Self>) -> Arc<dyn DynListWatch> {
        self
    }

    fn reflect(
        self: Arc<Self>,
        cached: Arc<CachedResource>,
        options: StartOptions,
    ) -> BoxFuture<'static, Refusal> {
        Reflector::new(self, cached, options).run().boxed()
    }
}

/// The real one.
pub(crate) struct UpstreamSource {
    upstream: Upstream,
    discovery: Discovery,
    list_bytes_max: usize,
}

impl UpstreamSource {
    /// Over Weir's own identity at the upstream; a cache may hold so many bytes.
    pub(crate) fn new(upstream: Upstream, discovery: Discovery, resource_bytes_max: usize) -> Self {
        // A list from the upstream's own cache has but one page, which weighs about what its objects do: one that is longer than this holds
        // more than the cache may.
        let room = resource_bytes_max / 8;
        let list_bytes_max = resource_bytes_max.saturating_add(room).saturating_add(ENVELOPE_BYTES);
        Self { upstream, discovery, list_bytes_max }
    }
}

impl Source for UpstreamSource {
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

    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.discovery.version()
    }

    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        representation: Representation,
        scope: &Scope,
    ) -> Arc<dyn Reflectable> {
        Arc::new(HttpListWatch::new(
            self.upstream.clone(),
            resource.clone(),
            scope,
            representation,
            self.list_bytes_max,
            self.discovery.version(),
        ))
    }
}

/// What a list holds besides its objects, with much to spare; a probe's answer and an empty list fit under any budget.
const ENVELOPE_BYTES: usize = 1024 * 1024;
