//! What the upstream serves: which resources can be listed and watched, which are custom, which an aggregated API
//! server answers for. Follows CRDs and APIServices that come, change and go.
//!
//! Discovery's documents say what there is; the CRDs say which of it is custom (it is written in another shape,
//! semantics.md §3.6), and the APIServices which of it an aggregated server answers (never cached, design, section 4). Where
//! Weir's identity may read neither, only the groups that every kube-apiserver has itself are trusted to be built in; all else counts as
//! aggregated, that is, as nothing that anybody can vouch for.
//!
//! A failed refresh keeps what was known. Lock order: `refresher` (held over the upstream's answers), then nothing.

mod documents;
mod informer;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::resource::{ApiResource, GroupVersionResource};
use crate::upstream::Upstream;
use crate::upstream::discovery::documents::Documents;
use crate::upstream::discovery::informer::Facts;
use crate::upstream::discovery::resolve::{ApiService, CustomResource};
use crate::upstream::error::UpstreamError;
use crate::upstream::version::{self, UpstreamVersion};

/// The upstream's resources, refreshed on its own. Cheap to clone; the tasks behind it end with the last clone.
#[derive(Clone)]
pub struct Discovery {
    inner: Arc<Inner>,
    _tasks: Arc<DropGuard>,
}

type Resources = HashMap<GroupVersionResource, Arc<ApiResource>>;

struct Inner {
    upstream: Upstream,
    resources: ArcSwapOption<Resources>,
    changes: watch::Sender<u64>,
    refresher: Mutex<Refresher>,
    custom: watch::Receiver<Facts<CustomResource>>,
    services: watch::Receiver<Facts<ApiService>>,
    version: watch::Receiver<Option<UpstreamVersion>>,
}

#[derive(Default)]
struct Refresher {
    documents: Documents,
    refreshed: Option<Instant>,
}

impl Discovery {
    /// Begins to follow the upstream.
    pub fn start(upstream: Upstream) -> Self {
        let (custom_tx, custom) = watch::channel(Facts::Pending);
        let (services_tx, services) = watch::channel(Facts::Pending);
        let follow_custom = informer::follow(upstream.clone(), CRDS, custom_tx);
        let follow_services = informer::follow(upstream.clone(), API_SERVICES, services_tx);
        let (version_tx, version) = watch::channel(None);
        let follow_version = version::follow(upstream.clone(), version_tx);
        let inner = Arc::new(Inner {
            upstream,
            resources: ArcSwapOption::empty(),
            changes: watch::Sender::new(0),
            refresher: Mutex::default(),
            custom,
            services,
            version,
        });
        let cancel = CancellationToken::new();
        let follow = follow(Arc::clone(&inner));
        let ended = cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                _ = async { tokio::join!(follow, follow_custom, follow_services, follow_version) } => {}
            }
        });
        Self { inner, _tasks: Arc::new(cancel.drop_guard()) }
    }

    /// Returns whether a refresh has succeeded, so that the upstream's resources are known.
    pub fn is_synced(&self) -> bool {
        self.inner.resources.load().is_some()
    }

    /// Looks up a resource; `None` if the upstream does not serve it.
    ///
    /// A miss refreshes discovery, at most once in [`MISS_REFRESH_INTERVAL`], so that a new CRD is
    /// found soon and repeated requests for an unknown name are cheap. Fails only if no refresh has
    /// succeeded yet.
    pub async fn find(
        &self,
        gvr: &GroupVersionResource,
    ) -> Result<Option<Arc<ApiResource>>, UpstreamError> {
        if let Some(resource) = self.peek(gvr) {
            return Ok(Some(resource));
        }
        let refreshed = self.inner.refresh(MISS_REFRESH_INTERVAL).await;
        match self.peek(gvr) {
            None if !self.is_synced() => {
                Err(refreshed.err().unwrap_or(UpstreamError::Timeout(MISS_REFRESH_INTERVAL)))
            }
            resource => Ok(resource),
        }
    }

    /// Counts up whenever a refresh changed what is known; caches of changed or vanished resources must be re-checked then.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// The upstream's version as it changes; `None` until it is known. A change of it can change the bytes of every object
    /// (design, section 4).
    pub fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.inner.version.clone()
    }

    /// What is known of one, without asking.
    pub fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.inner.resources.load().as_deref()?.get(gvr).cloned()
    }
}

impl Inner {
    /// Asks the upstream what it serves, unless somebody did so less than `age_min` ago.
    async fn refresh(&self, age_min: Duration) -> Result<(), UpstreamError> {
        let mut refresher = self.refresher.lock().await;
        if refresher.refreshed.is_some_and(|at| at.elapsed() < age_min) {
            return Ok(());
        }
        refresher.refreshed = Some(Instant::now());
        let served = refresher.documents.refresh(&self.upstream).await?;
        if self.resources.load().is_none() {
            self.wait_for_facts().await;
        }
        let resources = {
            let (custom, services) = (self.custom.borrow(), self.services.borrow());
            resolve::resolve(&served, custom.known(), services.known())
        };
        let changed = self.resources.load().as_deref() != Some(&resources);
        if changed {
            tracing::info!(resources = resources.len(), "the upstream's resources are known anew");
            self.resources.store(Some(Arc::new(resources)));
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// Before the first answers of the informers every custom resource would look like nothing anybody can vouch for.
    async fn wait_for_facts(&self) {
        let (mut custom, mut services) = (self.custom.clone(), self.services.clone());
        let both = async {
            let known = custom.wait_for(|facts| *facts != Facts::Pending).await.is_ok();
            known && services.wait_for(|facts| *facts != Facts::Pending).await.is_ok()
        };
        if tokio::time::timeout(FACTS_TIMEOUT, both).await.is_err() {
            tracing::debug!(
                "CRDs and APIServices are not known yet; custom resources are forwarded"
            );
        }
    }
}

/// Refreshes at intervals, and when CRDs or APIServices change.
async fn follow(inner: Arc<Inner>) {
    let (mut custom, mut services) = (inner.custom.clone(), inner.services.clone());
    // Told once, not every second of an upstream's absence.
    let mut told = String::new();
    loop {
        match inner.refresh(Duration::ZERO).await {
            Ok(()) => told.clear(),
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    tracing::warn!(%error, "cannot refresh discovery; what was known of the upstream stays");
                    told = text;
                }
            }
        }
        let pause = if inner.resources.load().is_some() { INTERVAL } else { RETRY };
        let changed = tokio::select! {
            Ok(()) = custom.changed() => true,
            Ok(()) = services.changed() => true,
            () = tokio::time::sleep(pause) => false,
        };
        if !changed {
            continue;
        }
        // The upstream's documents lag behind its CRDs by up to some seconds.
        for lag in LAGS {
            custom.mark_unchanged();
            services.mark_unchanged();
            if let Err(error) = inner.refresh(Duration::ZERO).await {
                tracing::debug!(%error, "cannot refresh discovery after a change");
            }
            tokio::time::sleep(lag).await;
        }
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// With an ETag a refresh that finds nothing new costs two empty answers.
const INTERVAL: Duration = Duration::from_secs(30);
/// While nothing is known every request is forwarded.
const RETRY: Duration = Duration::from_secs(1);
/// The least time between two refreshes for want of a name.
const MISS_REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// How long a refresh waits for the informers' first answers.
const FACTS_TIMEOUT: Duration = Duration::from_secs(5);
/// After a change, the pauses before each further look at the documents.
const LAGS: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
