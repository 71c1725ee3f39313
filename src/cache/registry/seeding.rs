//! Which caches another Weir may be filled from, and whether caches here are filled from others
//! (`docs/decisions/seeding-from-siblings.md`).
//!
//! Invariants: a request of a sibling starts no cache, and waits for none, so that Weirs which
//! start together do not wait for each other. A state that came from a sibling is not sent to
//! others, until the cache was listed again, or one round of the comparison has passed all objects.
//! So an object that is missing, one too many, or an old one does not go from one replica to the
//! next. Where no round has read every byte, a state goes through few Weirs, so that no error
//! lasts.
//!
//! No locks but those of the cluster's identity and of the registry's maps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::api::resource::{GroupVersionResource, Representation};
use crate::cache::cached_resource::CachedResource;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::registry::Registry;
use crate::cache::registry::inner::Inner;
use crate::cache::registry::seed_refusal::SeedRefusal;
use crate::config::VerifyMode;

/// A cache that may be sent to a sibling.
pub(crate) struct SeedSource {
    /// The cache.
    pub(crate) handle: CacheHandle,
    /// The uid of the cluster.
    pub(crate) cluster: String,
    /// The API server's release.
    pub(crate) release: String,
    /// Held until the list is encoded and its digest is taken. Not longer: a client may take as
    /// long as it wants to read the list.
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Registry {
    /// Returns the cache that may be sent to a sibling. Waits at most [`SEED_WAIT`] for others,
    /// as long for the proof that the cache continues the upstream's history, and as long for the
    /// cluster's uid.
    pub(crate) async fn seed_source(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Result<SeedSource, SeedRefusal> {
        let inner = &self.inner;
        if inner.seeding.is_stopping.load(Ordering::Relaxed) {
            return Err(SeedRefusal::Stopping);
        }
        if inner.quarantines.closed(gvr, namespace, representation).is_some() {
            return Err(SeedRefusal::Quarantined);
        }
        let handle = self.running(gvr, namespace, representation).ok_or(SeedRefusal::Absent)?;
        check(handle.cached_resource())?;
        let slots = Arc::clone(&inner.seeding.slots);
        let permit = timeout(SEED_WAIT, slots.acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(SeedRefusal::Busy)?;
        // A rewound history, or another cluster, counts only once a request has shown it. A watch
        // that has just ended is opened again meanwhile.
        let is_joined = handle.is_joined(SEED_WAIT).await;
        if !is_joined || !handle.cached_resource().lifecycle.is_watching() {
            return Err(SeedRefusal::Unready);
        }
        check(handle.cached_resource())?;
        // Its lock is held while the uid is asked for.
        let cluster = timeout(SEED_WAIT, inner.context.cluster.uid()).await.ok().flatten();
        let cluster = cluster.ok_or(SeedRefusal::Unidentified)?;
        let release = self.upstream_version().ok_or(SeedRefusal::Unidentified)?;
        Ok(SeedSource { handle, cluster, release, permit })
    }

    /// Counts the answer to a sibling: `sent`, or why nothing was.
    pub(crate) fn note_seed(&self, outcome: &'static str) {
        self.inner.context.metrics.seed_served(outcome);
    }

    /// Sends nothing to siblings from now on: Weir is about to drain.
    pub fn stop_seeding(&self) {
        self.inner.seeding.is_stopping.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// Whether a new cache may be filled from a sibling. Not after a difference: then only the
    /// upstream counts. Nor without the comparison that follows, which a reload may switch off,
    /// while the siblings stay those of the start.
    pub(super) fn may_seed(&self, key: &CacheKey, was_over_budget: bool) -> bool {
        let config = self.context.config();
        config.siblings.is_enabled()
            && config.verify != VerifyMode::Off
            && !was_over_budget
            && !self.seeding.is_distrusted.load(Ordering::Relaxed)
            && self.quarantines.doubtful_through(key).is_none()
    }

    /// Notes that a cache was proved wrong. If it was filled from a sibling, no other cache is any
    /// more while this Weir runs.
    pub(super) fn note_wrong_seed(&self, cached: &CachedResource) {
        if !cached.lifecycle.is_seeded() {
            return;
        }
        self.seeding.is_distrusted.store(true, Ordering::Relaxed);
        self.context.metrics.not_seeded("wrong");
        tracing::error!(
            resource = %cached.key.gvr,
            namespace = cached.key.namespace(),
            "a cache that a sibling filled is wrong; caches are filled by the API server alone from now on"
        );
    }
}

/// Checks that a cache may be sent.
fn check(cached: &CachedResource) -> Result<(), SeedRefusal> {
    let lifecycle = &cached.lifecycle;
    if !cached.is_ready() || lifecycle.is_retiring() {
        return Err(SeedRefusal::Unready);
    }
    if !lifecycle.may_be_sent() || cached.findings.is_suspected() {
        return Err(SeedRefusal::Unverified);
    }
    // Nothing is hashed that the asker gives up before it is there.
    let most = cached.context.config().siblings.list_bytes_max;
    if cached.watch_cache.state().is_some_and(|state| state.store().weight() > most) {
        return Err(SeedRefusal::Large);
    }
    Ok(())
}

/// How long a sibling waits for the lists of others.
const SEED_WAIT: Duration = Duration::from_millis(250);
