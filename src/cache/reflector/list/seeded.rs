//! Fills a new cache from another Weir instead of by a list of the upstream
//! (`docs/decisions/seeding-from-siblings.md`).
//!
//! The order is that of the doubts: what arrived is what the sibling stores; it is of this cluster
//! and not older than what was shown; the upstream sends the events after it, from a watch that is
//! opened first; and the upstream has the same objects at the same resourceVersion, as far as two
//! small pages show. Only then is it published, as a state from before the cache was created: reads
//! that need more wait until the cache has reached the resourceVersion of a probe, as after
//! [`Driver::list_at_requested`]. The comparison with the upstream goes through all of it next.
//!
//! Invariants: nothing of a sibling is visible before all checks have passed. Each failure ends in
//! the ordinary list, which is requested at most [`SEED_TIMEOUT`] later than without siblings. No
//! slot of a list is held meanwhile. A sibling whose list is late is not asked again for a while,
//! so that many caches which start together do not each wait.
//!
//! [`SEED_TIMEOUT`]: crate::config::siblings::SEED_TIMEOUT

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use tokio::time::{Instant, timeout};

use crate::api::resource::Shape;
use crate::api::resource_version::ResourceVersion;
use crate::cache::probe::{Probed, RESPONSE_TIMEOUT, probe};
use crate::cache::proof;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::running_watch::RunningWatch;
use crate::cache::reflector::state::{ListCause, State};
use crate::cache::seed::digest::digest;
use crate::cache::seed::{NotSeeded, agrees, check_list, parts};
use crate::codec::ingest::Ingested;
use crate::codec::object::Object;
use crate::tasks::blocking::spawn_blocking;
use crate::upstream::bounded::with_timeout;
use crate::upstream::lister_watcher::{ListWatch, Seed, UpstreamEvent, WatchRequest, WatchStream};

/// A sibling's state that has passed all checks, and the watch that continues it.
struct ProvedSeed<W> {
    sibling: String,
    /// How often the state went from one Weir to another, this time included.
    seed_generation: u32,
    objects: Vec<Object>,
    at: ResourceVersion,
    running: RunningWatch<W>,
    probed: Probed,
}

impl<L: ListWatch> Driver<L> {
    /// Fills a new cache from a sibling. Returns `None` if none has what is needed.
    pub(super) async fn list_from_sibling(
        &mut self,
        cause: ListCause,
    ) -> Result<Option<State<L::Watch>>, Failure> {
        let is_new = cause == ListCause::Start && self.held().is_none();
        // After a changed definition a sibling may store the bytes of the old one.
        if !is_new || !self.options.may_seed || self.byte_checks.are_due() {
            return Ok(None);
        }
        // A retry is a list of the upstream.
        self.options.may_seed = false;
        let began = Instant::now();
        let limit = self.cached.context.config().siblings.timeout;
        let mut receiving = None;
        let proving = timeout(limit, Box::pin(self.seed_and_prove(&mut receiving)));
        let proved = proving.await.unwrap_or(Err(NotSeeded::Late));
        if let Some(sibling) = receiving {
            self.upstream.leave_sibling(&sibling);
        }
        if !matches!(proved, Ok(Some(_))) {
            self.cached.account.set_listing(0);
        }
        let metrics = self.cached.context.metrics.clone();
        match proved {
            Ok(None) => Ok(None),
            Ok(Some(seed)) => {
                let bytes: usize = seed.objects.iter().map(|object| object.body.len()).sum();
                let (sibling, objects, at) = (seed.sibling.clone(), seed.objects.len(), seed.at);
                let next = self.adopt(seed).await;
                if !matches!(next, Ok(State::Watching(_))) {
                    self.cached.account.set_listing(0);
                    metrics.not_seeded(not_adopted(&next));
                    return next.map(Some);
                }
                metrics.seeded(bytes);
                self.cached.note_filled("seed", began.elapsed());
                tracing::info!(sibling, objects, resource_version = %at, "filled from a sibling");
                next.map(Some)
            }
            Err(reason) => {
                metrics.not_seeded(reason.as_str());
                tracing::info!(%reason, "not filled from a sibling; listing the upstream");
                Ok(None)
            }
        }
    }

    /// Publishes a state as one from before the cache was created.
    async fn adopt(&mut self, seed: ProvedSeed<L::Watch>) -> Result<State<L::Watch>, Failure> {
        let cached = self.cached.clone();
        let ProvedSeed { seed_generation, objects, at, running, probed, .. } = seed;
        let generation = cached.generation.current();
        cached.lifecycle.set_seed_generation(seed_generation);
        cached.lifecycle.begin_in_the_past();
        self.options.list_at = None;
        if let Err(failure) = self.commit(objects, at).await {
            cached.lifecycle.set_seed_generation(0);
            cached.lifecycle.begin_in_the_present();
            return Err(failure);
        }
        if self.is_rewound() {
            return Ok(State::Listing(ListCause::Rewound));
        }
        if probed.resource_version > at {
            proof::catch_up(&cached, probed.resource_version);
        } else {
            proof::open(&cached, true);
        }
        if cached.resource.shape == Shape::Custom {
            self.byte_checks.note_seeded();
        }
        cached.observe_count(generation, probed);
        Ok(State::Watching(running))
    }

    /// Asks siblings one after the other, until one sends a list, and proves that. `receiving` is
    /// the sibling whose list does not end, while it is read.
    async fn seed_and_prove(
        &mut self,
        receiving: &mut Option<String>,
    ) -> Result<Option<ProvedSeed<L::Watch>>, NotSeeded> {
        let cached = self.cached.clone();
        let _slot = cached.context.seed_slots.acquire().await.map_err(|_| NotSeeded::Late)?;
        let first_at = self.options.list_at;
        let at = first_at.map(|first| self.cached.lifecycle.lowest_start().min(first));
        let mut failure = None;
        for attempt in 0..SIBLINGS_ASKED_MAX {
            match self.upstream.seed(attempt, at).await {
                None => break,
                Some(Ok(seed)) => return self.prove(seed, receiving).await.map(Some),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a sibling has no list");
                    failure = Some(NotSeeded::from_sibling(&error));
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    async fn prove(
        &mut self,
        seed: Seed<L::Watch>,
        receiving: &mut Option<String>,
    ) -> Result<ProvedSeed<L::Watch>, NotSeeded> {
        let Seed { sibling, manifest, objects } = seed;
        *receiving = Some(sibling.clone());
        let received = self.receive(objects).await;
        *receiving = None;
        let (objects, at) = received?;
        // Until they are committed, or the attempt ends.
        self.cached.account.set_listing(objects.iter().map(Object::weight).sum());
        let hash = move || {
            let digest = digest(&objects);
            (objects, digest)
        };
        let (objects, digest) = spawn_blocking(hash).await.map_err(|_| NotSeeded::Late)?;
        check_list(&objects, at, &digest, &manifest)?;
        let failed = |failure: Failure| NotSeeded::Unproved(failure.cause().to_owned());
        self.confirm_origin().await.map_err(failed)?;
        if self.cached.context.cluster.uid().await.as_ref() != Some(&manifest.cluster) {
            return Err(NotSeeded::OtherCluster);
        }
        if self.floor() > Some(at) || self.cached.context.history.highest_lost() >= Some(at) {
            return Err(NotSeeded::OutOfStep("it is older than what was shown"));
        }
        let mut running = self.watch_from(at).await?;
        let upstream = self.upstream.clone();
        let probing = async {
            let probed = probe(&*upstream).await;
            probed.map_err(|error| NotSeeded::from_upstream(&error))
        };
        let comparing = self.compare_parts(&objects, at);
        let (probed, ()) = tokio::try_join!(probing, comparing)?;
        if probed.resource_version < at {
            return Err(NotSeeded::OutOfStep("the upstream has not come that far"));
        }
        running.pending = first_events(&mut running.watch)?;
        if self.is_rewound() {
            return Err(NotSeeded::OutOfStep("the upstream's history was rewound"));
        }
        let seed_generation = manifest.generation.saturating_add(1);
        Ok(ProvedSeed { sibling, seed_generation, objects, at, running, probed })
    }

    /// Reads a sibling's list within the byte budgets.
    async fn receive(
        &self,
        mut objects: L::Watch,
    ) -> Result<(Vec<Object>, ResourceVersion), NotSeeded> {
        let mut accumulator = ListAccumulator::new(&self.cached.account, &self.cached.context);
        loop {
            let events = objects.next().await;
            let events = events.map_err(|error| NotSeeded::from_sibling(&error))?;
            let events = events.ok_or(NotSeeded::Damaged("it ended before its end"))?;
            for event in events {
                match event {
                    UpstreamEvent::Upsert(object) => accumulator
                        .push(Ingested::Object(object))
                        .map_err(|_| NotSeeded::Damaged("it exceeds a byte budget"))?,
                    UpstreamEvent::Bookmark { resource_version, .. } => {
                        return Ok((accumulator.take().objects, resource_version));
                    }
                    _ => return Err(NotSeeded::Damaged("it is no list")),
                }
            }
        }
    }

    /// Opens the watch that continues the state at `at`.
    async fn watch_from(
        &mut self,
        at: ResourceVersion,
    ) -> Result<RunningWatch<L::Watch>, NotSeeded> {
        let timeout_seconds = self.next_timeout_seconds();
        let request =
            WatchRequest { resource_version: Some(at), timeout_seconds, ..WatchRequest::default() };
        let opened = Instant::now();
        let watch = with_timeout(RESPONSE_TIMEOUT, self.upstream.watch(request)).await;
        let watch = watch.map_err(|error| NotSeeded::from_upstream(&error))?;
        self.learn_warnings();
        Ok(RunningWatch::new(watch, opened, timeout_seconds, at))
    }

    /// Compares parts of a list with the upstream at its resourceVersion.
    async fn compare_parts(
        &self,
        objects: &[Object],
        at: ResourceVersion,
    ) -> Result<(), NotSeeded> {
        let compared = self.cached.context.config().siblings.compared;
        let parts = parts(objects, at, compared, |places| fastrand::usize(..places));
        let comparisons = parts.into_iter().map(async |part| {
            let page = self.upstream.exact(part.clone()).await;
            let page = page.map_err(|error| NotSeeded::from_upstream(&error))?;
            if page.resource_version != at {
                return Err(NotSeeded::Unproved("a page of another resourceVersion".to_owned()));
            }
            if agrees(objects, &part, &page) { Ok(()) } else { Err(NotSeeded::Different) }
        });
        try_join_all(comparisons).await.map(drop)
    }
}

/// Returns the outcome of a proved list that was not adopted. The history or the cluster changed
/// meanwhile, or the failure says why.
fn not_adopted<W>(next: &Result<State<W>, Failure>) -> &'static str {
    match next {
        Ok(_) | Err(Failure::Overtaken) => "out-of-step",
        Err(failure) => {
            tracing::info!(reason = failure.cause(), "a sibling's list cannot be adopted");
            "unproved"
        }
    }
}

/// Returns the events that a watch has sent at once. Its first one may say that the upstream no
/// longer has those after the requested resourceVersion.
fn first_events<W: WatchStream>(watch: &mut W) -> Result<Vec<UpstreamEvent>, NotSeeded> {
    let Some(read) = watch.next().now_or_never() else { return Ok(Vec::new()) };
    let read = read.map_err(|error| NotSeeded::from_upstream(&error))?;
    let events = read.ok_or_else(|| NotSeeded::Unproved("the watch ended at once".to_owned()))?;
    match events.iter().find_map(|event| match event {
        UpstreamEvent::Error(error) => Some(error),
        _ => None,
    }) {
        Some(error) => Err(NotSeeded::from_upstream(error)),
        None => Ok(events),
    }
}

/// How many siblings are asked, one after the other.
const SIBLINGS_ASKED_MAX: usize = 3;
