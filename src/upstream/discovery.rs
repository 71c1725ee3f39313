//! The resources that the upstream serves: which of them can be listed and watched, which are
//! custom, and which an aggregated API server serves. Follows CRDs and APIServices that are
//! created, changed and deleted.
//!
//! Discovery documents list the resources. APIServices show which of them an aggregated server
//! serves; these are never cached, since that server may answer each user differently, and nothing
//! is known about its consistency. CRDs show which of the others are custom (kube-apiserver encodes
//! these differently, `docs/semantics.md` §3.6). A resource that is not known to be the API
//! server's own counts as aggregated (`docs/decisions/aggregated-apis.md`).
//!
//! A failed refresh keeps the previous resources. So does a refusal of CRDs and APIServices that
//! does not last, and a custom resource stays while its definition does: an API server that starts,
//! or lags, serves neither for a moment. A change of an APIService waits for no document.
//!
//! Lock order: `served`, then the informers' states, `aggregated` and `redefined`, each alone.
//! `last_failure` is locked with no other.

mod api_services;
mod documents;
mod informer;
mod recently;
mod refusals;
mod resolve;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::api_services::{API_SERVICES, AggregatedVersions, ApiService, ApiServices};
use crate::api::resource::{ApiResource, GroupVersionResource};
use crate::tasks::single_permit::SinglePermit;
use crate::upstream::Upstream;
use crate::upstream::discovery::documents::{Documents, ServedResources};
use crate::upstream::discovery::informer::{Collection, Informer, InformerState};
use crate::upstream::discovery::recently::Recently;
pub use crate::upstream::discovery::resolve::Readers;
use crate::upstream::discovery::resolve::{CustomResource, Resources, Sources};
use crate::upstream::error::UpstreamError;
use crate::upstream::version::{self, UpstreamVersion};

/// The upstream's resources, refreshed in the background. Cheap to clone; the background tasks end
/// with the last clone.
#[derive(Clone)]
pub struct Discovery {
    inner: Arc<Inner>,
    _tasks: Arc<DropGuard>,
}

struct Inner {
    upstream: Upstream,
    readers: Readers,
    resources: ArcSwapOption<Resources>,
    changes: watch::Sender<u64>,
    /// One refresh runs at a time. `refresher` is locked before and after its requests, and alone.
    refreshes: SinglePermit,
    refresher: Mutex<Refresher>,
    /// The resources that the documents list.
    served: Mutex<Option<ServedResources>>,
    custom: watch::Receiver<InformerState<CustomResource>>,
    services: watch::Receiver<InformerState<ApiService>>,
    /// Whether the watch of the APIServices is open.
    watches_services: Arc<AtomicBool>,
    aggregated: AggregatedVersions,
    /// The number of times that the informers were asked to list again.
    doubts: watch::Sender<u64>,
    version: watch::Receiver<Option<UpstreamVersion>>,
    version_changes: watch::Receiver<u64>,
    redefined: Recently<GroupVersionResource>,
    /// Whether an upstream that is usable has given no discovery for [`REFUSED_AFTER`].
    is_refused: AtomicBool,
    /// The error of the last refresh, while none has succeeded.
    last_failure: Mutex<Option<UpstreamError>>,
}

#[derive(Default)]
struct Refresher {
    documents: Documents,
    refreshed: Option<Instant>,
}

impl Discovery {
    /// Starts to follow the upstream.
    pub fn start(upstream: Upstream, readers: Readers) -> Self {
        let (custom_tx, custom) = watch::channel(InformerState::Pending);
        let (services_tx, services) = watch::channel(InformerState::Pending);
        let doubts = watch::Sender::new(0);
        let custom_informer = Informer::new(upstream.clone(), CRDS, custom_tx, doubts.subscribe());
        let services_informer =
            Informer::new(upstream.clone(), API_SERVICES, services_tx, doubts.subscribe());
        let watches_services = services_informer.is_watching();
        let (version_tx, version) = watch::channel(None);
        let (version_changes_tx, version_changes) = watch::channel(0);
        let follow_version = version::follow(upstream.clone(), version_tx, version_changes_tx);
        let inner = Arc::new(Inner {
            upstream,
            readers,
            resources: ArcSwapOption::empty(),
            changes: watch::Sender::new(0),
            refreshes: SinglePermit::default(),
            refresher: Mutex::default(),
            served: Mutex::default(),
            custom,
            services,
            watches_services,
            aggregated: AggregatedVersions::default(),
            doubts,
            version,
            version_changes,
            redefined: Recently::default(),
            is_refused: AtomicBool::new(false),
            last_failure: Mutex::default(),
        });
        let cancel = CancellationToken::new();
        let follow = follow(Arc::clone(&inner));
        let follow_services = follow_services(Arc::clone(&inner));
        let ended = cancel.clone();
        tokio::spawn(async move {
            let informers = async { tokio::join!(custom_informer.run(), services_informer.run()) };
            let followers = async { tokio::join!(follow, follow_services, follow_version) };
            tokio::select! {
                () = ended.cancelled() => {}
                _ = async { tokio::join!(informers, followers) } => {}
            }
        });
        Self { inner, _tasks: Arc::new(cancel.drop_guard()) }
    }

    /// Returns whether a refresh has succeeded, so that the upstream's resources are known.
    pub fn is_synced(&self) -> bool {
        self.inner.is_known()
    }

    /// Looks up a resource; `None` if the upstream does not serve it.
    ///
    /// A miss refreshes discovery, at most once in [`MISS_REFRESH_INTERVAL`], so that a new CRD is
    /// found soon and repeated requests for an unknown name are cheap. Before the first refresh, a
    /// lookup waits for it, at most [`FIRST_REFRESH_WAIT`] and not while the upstream is away: the
    /// clients that come back with an API server are answered by a cache then, and not forwarded.
    /// Fails only if no refresh has succeeded yet, with the error of the last one.
    pub async fn find(
        &self,
        gvr: &GroupVersionResource,
    ) -> Result<Option<Arc<ApiResource>>, UpstreamError> {
        if let Some(resource) = self.peek(gvr) {
            return Ok(Some(resource));
        }
        if !self.is_synced() {
            self.inner.wait_for_first_refresh().await;
            if !self.is_synced() {
                let failure = self.inner.last_failure.lock().clone();
                return Err(failure.unwrap_or(UpstreamError::Timeout(FIRST_REFRESH_WAIT)));
            }
        } else if let Err(error) = self.inner.refresh(MISS_REFRESH_INTERVAL).await {
            tracing::debug!(%gvr, %error, "cannot refresh discovery for an unknown resource");
        }
        Ok(self.peek(gvr))
    }

    /// Returns a counter that is incremented when a refresh changes the resources. Caches of
    /// changed or removed resources must be checked then.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Returns whether the definition of a custom resource changed a moment ago. Some instances of
    /// the upstream may not have seen the change yet.
    pub fn is_redefined(&self, gvr: &GroupVersionResource) -> bool {
        self.inner.redefined.contains(gvr)
    }

    /// Whether an aggregated API server serves the version of a resource, or served it a moment
    /// ago.
    pub fn is_aggregated(&self, gvr: &GroupVersionResource) -> bool {
        self.inner.aggregated.contains(&(gvr.group.clone(), gvr.version.clone()))
    }

    /// Whether the API server itself answers for a resource that counts as its own, as of this
    /// call. If so, objects that were received before are the API server's own, too. Asks the
    /// upstream; an APIService that gives the resource to an aggregated API server is noted.
    /// Without an answer, the open watch of the APIServices has to do.
    pub async fn is_local(&self, gvr: &GroupVersionResource) -> bool {
        let inner = &self.inner;
        if self.is_aggregated(gvr) {
            return false;
        }
        // Nobody replaces the core group, with all that depends on it. Where APIServices are not
        // listed, they are not what decides.
        if gvr.group.is_empty() || inner.services.borrow().synced().is_none() {
            return true;
        }
        match api_services::fetch(&inner.upstream, &gvr.group, &gvr.version).await {
            Ok(Some(service)) if service.is_aggregated() => {
                inner.aggregated.note([(gvr.group.clone(), gvr.version.clone())]);
                inner.resolve(None);
                false
            }
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%gvr, %error, "cannot read the APIService of a resource");
                inner.watches_services.load(Ordering::Relaxed)
            }
        }
    }

    /// Has CRDs and APIServices listed again: the upstream has lost history, or is another cluster.
    pub fn recheck(&self) {
        self.inner.doubts.send_modify(|count| *count += 1);
    }

    /// Returns a counter that is incremented when the version of the upstream changes. The upstream
    /// may then encode any object differently. While its instances have different versions, it
    /// counts the beginning and the end of that time.
    pub fn version_changes(&self) -> watch::Receiver<u64> {
        self.inner.version_changes.clone()
    }

    /// Returns the upstream's version; `None` until it is known. It is the oldest one if instances
    /// have different versions.
    pub fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.inner.version.clone()
    }

    /// Looks up a resource without a refresh.
    pub fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.inner.resources.load().as_deref()?.get(gvr).cloned()
    }
}

impl Inner {
    fn is_known(&self) -> bool {
        self.resources.load().is_some()
    }

    /// Waits until [`follow`] has read discovery for the first time, or is not expected to.
    async fn wait_for_first_refresh(&self) {
        if self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let mut changes = self.changes.subscribe();
        tokio::select! {
            biased;
            _ = changes.wait_for(|count| *count > 0) => {}
            () = self.upstream.availability().until_away() => {}
            () = tokio::time::sleep(FIRST_REFRESH_WAIT) => {}
        }
    }

    /// Reads discovery from the upstream, unless a refresh started less than `interval` ago, or
    /// since this call.
    async fn refresh(&self, interval: Duration) -> Result<(), UpstreamError> {
        let asked = Instant::now();
        let _permit = self.refreshes.acquire().await;
        let mut documents = {
            let mut refresher = self.refresher.lock();
            if refresher.refreshed.is_some_and(|at| at >= asked || at.elapsed() < interval) {
                return Ok(());
            }
            refresher.refreshed = Some(Instant::now());
            // A refresh that is cancelled forgets them, and the next one reads them whole.
            std::mem::take(&mut refresher.documents)
        };
        let served = documents.refresh(&self.upstream).await;
        self.refresher.lock().documents = documents;
        if served.is_ok() && !self.is_known() {
            self.wait_for_informers().await;
        }
        self.resolve(Some(served?));
        Ok(())
    }

    /// Describes the resources that the documents list, or listed last, by the present CRDs and
    /// APIServices.
    fn resolve(&self, documents: Option<ServedResources>) {
        let mut served = self.served.lock();
        if documents.is_some() {
            *served = documents;
        }
        let Some(served) = &*served else { return };
        let before = self.resources.load_full().unwrap_or_default();
        let resources = {
            let (custom, services) = (self.custom.borrow(), self.services.borrow());
            let has_aggregator = served.keys().any(|(group, _)| **group == *API_SERVICES.group);
            let services = ApiServices::new(&services, has_aggregator);
            self.aggregated.note(services.aggregated());
            let sources = Sources {
                definitions: custom.synced(),
                services,
                aggregated: &self.aggregated,
                readers: self.readers,
            };
            let mut resources = resolve::resolve(served, sources);
            resolve::keep_defined(&mut resources, &before, sources);
            resources
        };
        if self.is_known() && *before == resources {
            return;
        }
        tracing::info!(resources = resources.len(), "the upstream's resources changed");
        self.redefined.note(resolve::redefined(&before, &resources));
        self.resources.store(Some(Arc::new(resources)));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Waits for the informers' first lists, at most [`SYNC_TIMEOUT`]. Before these, every custom
    /// resource would look like an aggregated one.
    async fn wait_for_informers(&self) {
        let (mut custom, mut services) = (self.custom.clone(), self.services.clone());
        let both = async {
            let is_synced = custom.wait_for(|state| *state != InformerState::Pending).await.is_ok();
            is_synced && services.wait_for(|state| *state != InformerState::Pending).await.is_ok()
        };
        if tokio::time::timeout(SYNC_TIMEOUT, both).await.is_err() {
            tracing::debug!(
                "CRDs and APIServices are not listed yet; requests for custom resources are forwarded"
            );
        }
    }
}

/// Refreshes discovery at intervals, and when CRDs or APIServices change.
async fn follow(inner: Arc<Inner>) {
    let (mut custom, mut services) = (inner.custom.clone(), inner.services.clone());
    // Logged once, instead of every second while the upstream is down.
    let mut logged = String::new();
    let mut refused_since = None;
    loop {
        match inner.refresh(Duration::ZERO).await {
            Ok(()) => logged.clear(),
            Err(error) => {
                let is_usable = inner.upstream.availability().is_usable();
                refused_since = is_usable.then(|| refused_since.unwrap_or_else(Instant::now));
                let is_refused = refused_since.is_some_and(|at| at.elapsed() >= REFUSED_AFTER);
                inner.is_refused.store(is_refused, Ordering::Relaxed);
                *inner.last_failure.lock() = Some(error.clone());
                let text = error.to_string();
                if text != logged {
                    tracing::warn!(%error, "cannot refresh discovery; keeping the previous resources");
                    logged = text;
                }
            }
        }
        let delay = if inner.is_known() { REFRESH_INTERVAL } else { RETRY_DELAY };
        let changed = tokio::select! {
            Ok(()) = custom.changed() => true,
            Ok(()) = services.changed() => true,
            () = inner.upstream.availability().until_returned(), if !inner.is_known() => false,
            () = tokio::time::sleep(delay) => false,
        };
        if !changed {
            continue;
        }
        // The upstream's documents lag behind its CRDs by up to a few seconds.
        for millis in CHANGE_REFRESH_MILLIS {
            custom.mark_unchanged();
            services.mark_unchanged();
            if let Err(error) = inner.refresh(Duration::ZERO).await {
                tracing::debug!(%error, "cannot refresh discovery after a change");
            }
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }
}

/// Notices at once that an aggregated API server takes a version over. The documents may not be
/// readable then.
async fn follow_services(inner: Arc<Inner>) {
    let mut services = inner.services.clone();
    while services.changed().await.is_ok() {
        inner.resolve(None);
    }
}

const CRDS: Collection = Collection {
    path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    group: "apiextensions.k8s.io",
    resource: "customresourcedefinitions",
};
/// The refresh interval. A refresh without changes costs two empty responses, because of the ETags.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// The delay after a failure before the first success; less when the upstream comes back.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The least time between two refreshes that are caused by unknown resources.
const MISS_REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// How long requests wait for the first refresh: for a few attempts more.
const FIRST_REFRESH_WAIT: Duration = Duration::from_secs(3);
/// Requests do not wait for the first refresh of an upstream that has refused it for this time.
const REFUSED_AFTER: Duration = Duration::from_secs(5);
/// How long the first refresh waits for the informers' first lists.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// The milliseconds after the refreshes that follow a change.
const CHANGE_REFRESH_MILLIS: [u64; 4] = [200, 500, 1000, 2000];
