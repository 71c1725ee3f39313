//! Which cluster the upstream is: the uid of its namespace kube-system.
//!
//! Another cluster may answer at the address, with higher resourceVersions than the one before it.
//! No resourceVersion shows that. So the uid is compared before anything counts that came over a
//! connection opened since the last comparison (`docs/decisions/rewound-history.md`). The
//! comparison opens a connection of its own, which leads to where the newest ones lead. While no
//! connection is opened, nothing is asked.
//!
//! Another uid starts a new generation of the upstream's history, as a rewind does: all caches
//! start again. Callers look at their generation after the comparison.
//!
//! An identity with permissions in one namespace may not read kube-system. Then only a
//! resourceVersion that goes back shows another cluster. An API server that starts refuses requests
//! for a moment, so that a refusal counts only once it has lasted.
//!
//! Invariant: `confirmed` never counts a connection that was opened after the request for the uid
//! was sent. The connections of such requests are not counted at all.
//!
//! One caller at a time asks for the uid, and the others share the answer.
//!
//! Lock: that of `known`, held for a few instructions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::cache::metrics::CacheMetrics;
use crate::cache::progress::PROBE_TIMEOUT;
use crate::cache::upstream_history::UpstreamHistory;
use crate::tasks::single_permit::SinglePermit;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::ListWatch;

/// The identity of the upstream's cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterIdentity {
    /// The number of opened connections that lead to the known cluster, plus one; 0 before the
    /// first comparison.
    confirmed: AtomicU64,
    /// The uid is asked for once at a time.
    comparisons: SinglePermit,
    known_uid: Mutex<KnownUid>,
}

#[derive(Debug, Default)]
struct KnownUid {
    uid: Option<String>,
    /// The time in which the uid could not be read, for lack of permission.
    refused: Option<Refused>,
    is_refusal_logged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    since: Instant,
    last: Instant,
}

/// The reason why it is not known which cluster the upstream is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The uid could be read before, and is refused now.
    #[error("the namespace kube-system, which identifies the cluster, may not be read at present")]
    Refused,
    /// The request failed.
    #[error("cannot read the namespace kube-system, which identifies the cluster: {0}")]
    Failed(UpstreamError),
}

impl ClusterIdentity {
    /// Compares the uid, if a connection was opened since the last comparison. If another cluster
    /// answers, starts a new generation of `history`.
    pub(crate) async fn confirm(
        &self,
        upstream: &dyn ListWatch,
        history: &UpstreamHistory,
        metrics: &CacheMetrics,
    ) -> Result<(), IdentityError> {
        let opened = upstream.connections_opened();
        if self.is_confirmed(opened) {
            return Ok(());
        }
        let _permit = self.comparisons.acquire().await;
        if self.is_confirmed(opened) || self.known_uid.lock().is_refused_for_long() {
            return Ok(());
        }
        let before = upstream.connections_opened();
        let uid = ask(upstream).await?;
        self.known_uid.lock().compare(uid, history, metrics)?;
        self.confirmed.store(before.saturating_add(1), Ordering::Relaxed);
        Ok(())
    }

    fn is_confirmed(&self, opened: u64) -> bool {
        self.confirmed.load(Ordering::Relaxed) > opened
    }
}

impl KnownUid {
    /// Whether the uid may not be read, and was asked for a short time ago.
    fn is_refused_for_long(&self) -> bool {
        self.refused
            .is_some_and(|refused| self.lasts(refused) && refused.last.elapsed() < REFUSAL_INTERVAL)
    }

    /// Whether a refusal counts. The first uid is not waited for.
    fn lasts(&self, refused: Refused) -> bool {
        self.uid.is_none() || refused.last.duration_since(refused.since) >= REFUSAL_DURATION_MIN
    }

    fn compare(
        &mut self,
        uid: Option<String>,
        history: &UpstreamHistory,
        metrics: &CacheMetrics,
    ) -> Result<(), IdentityError> {
        let Some(uid) = uid else { return self.refuse(metrics) };
        self.refused = None;
        if std::mem::take(&mut self.is_refusal_logged) {
            tracing::info!("the namespace kube-system can be read now; the cluster is identified");
        }
        metrics.cluster_identified(true);
        let before = self.uid.replace(uid);
        if before.is_some() && before != self.uid {
            tracing::error!(
                "another cluster answers at the upstream's address; all caches start again"
            );
            metrics.rewound();
            history.rewind();
        }
        Ok(())
    }

    fn refuse(&mut self, metrics: &CacheMetrics) -> Result<(), IdentityError> {
        let now = Instant::now();
        let since = self.refused.map_or(now, |refused| refused.since);
        let refused = Refused { since, last: now };
        self.refused = Some(refused);
        if !self.lasts(refused) {
            return Err(IdentityError::Refused);
        }
        metrics.cluster_identified(false);
        if !std::mem::replace(&mut self.is_refusal_logged, true) {
            tracing::warn!(
                "the namespace kube-system may not be read; another cluster at the upstream's address is noticed only if its resourceVersions are lower; allow Weir to list namespaces, or to get the namespace kube-system"
            );
        }
        Ok(())
    }
}

/// Asks for the uid, again after a failure: what was received over the new connections waits for
/// the answer, and may be large.
async fn ask(upstream: &dyn ListWatch) -> Result<Option<String>, IdentityError> {
    let mut delay = FIRST_DELAY;
    loop {
        match with_timeout(PROBE_TIMEOUT, upstream.cluster_uid()).await {
            Ok(uid) => return Ok(uid),
            Err(error) if delay > LAST_DELAY => return Err(IdentityError::Failed(error)),
            Err(error) => {
                tracing::debug!(%error, "cannot read the namespace kube-system; trying again");
            }
        }
        sleep(delay).await;
        delay *= 2;
    }
}

/// The first and the last pause before the uid is asked for again.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_millis(400);
/// How long an uid that was known must be refused until the refusal counts. While kube-apiserver
/// starts, RBAC refuses everything for up to 0.35 s.
const REFUSAL_DURATION_MIN: Duration = Duration::from_secs(30);
/// The interval at which a refused uid is asked for again.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::upstream::lister_watcher::Answer;

    /// A cluster whose connections the test counts.
    struct Cluster {
        uid: Mutex<Result<Option<String>, UpstreamError>>,
        opened: AtomicU64,
        asked: AtomicU64,
    }

    impl Cluster {
        fn new(uid: &str) -> Self {
            let uid = Mutex::new(Ok(Some(uid.to_owned())));
            Self { uid, opened: AtomicU64::new(1), asked: AtomicU64::new(0) }
        }

        fn become_other(&self, uid: Option<&str>) {
            *self.uid.lock() = Ok(uid.map(str::to_owned));
            self.opened.fetch_add(1, Ordering::Relaxed);
        }

        fn asked(&self) -> u64 {
            self.asked.load(Ordering::Relaxed)
        }
    }

    impl ListWatch for Cluster {
        fn cluster_uid(&self) -> Answer<'_, Option<String>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            std::future::ready(self.uid.lock().clone()).boxed()
        }

        fn connections_opened(&self) -> u64 {
            self.opened.load(Ordering::Relaxed)
        }
    }

    struct Rig {
        identity: ClusterIdentity,
        history: UpstreamHistory,
        metrics: CacheMetrics,
    }

    impl Rig {
        fn new() -> Self {
            let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
            Self { identity: ClusterIdentity::default(), history: UpstreamHistory::new(), metrics }
        }

        async fn confirm(&self, cluster: &Cluster) -> Result<(), IdentityError> {
            self.identity.confirm(cluster, &self.history, &self.metrics).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_uid_is_asked_for_only_after_a_connection_was_opened() {
        let (rig, cluster) = (Rig::new(), Cluster::new("a"));
        for _ in 0..3 {
            rig.confirm(&cluster).await.unwrap();
        }
        assert_eq!(cluster.asked(), 1);
        cluster.opened.fetch_add(1, Ordering::Relaxed);
        rig.confirm(&cluster).await.unwrap();
        rig.confirm(&cluster).await.unwrap();
        assert_eq!((cluster.asked(), rig.history.generation()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn another_uid_starts_a_new_generation_once() {
        let (rig, cluster) = (Rig::new(), Cluster::new("a"));
        rig.confirm(&cluster).await.unwrap();
        cluster.become_other(Some("b"));
        rig.confirm(&cluster).await.unwrap();
        rig.confirm(&cluster).await.unwrap();
        assert_eq!(rig.history.generation(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_refusal_of_a_known_uid_is_an_error_and_a_lasting_one_is_not() {
        let (rig, cluster) = (Rig::new(), Cluster::new("a"));
        rig.confirm(&cluster).await.unwrap();
        cluster.become_other(None);
        rig.confirm(&cluster).await.unwrap_err();
        sleep(REFUSAL_DURATION_MIN).await;
        rig.confirm(&cluster).await.unwrap();
        let asked = cluster.asked();
        cluster.become_other(None);
        rig.confirm(&cluster).await.unwrap();
        assert_eq!(cluster.asked(), asked, "not asked again at once");
        sleep(REFUSAL_INTERVAL).await;
        cluster.become_other(Some("b"));
        rig.confirm(&cluster).await.unwrap();
        assert_eq!(rig.history.generation(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_uid_that_may_never_be_read_stops_nothing() {
        let (rig, cluster) = (Rig::new(), Cluster::new("a"));
        cluster.become_other(None);
        rig.confirm(&cluster).await.unwrap();
        assert_eq!(rig.history.generation(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_and_then_reported() {
        let (rig, cluster) = (Rig::new(), Cluster::new("a"));
        *cluster.uid.lock() = Err(UpstreamError::Lost("reset".to_owned()));
        rig.confirm(&cluster).await.unwrap_err();
        assert_eq!(cluster.asked(), 4);
    }
}
