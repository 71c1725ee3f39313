//! What the registry does by itself: stops idle caches, makes room in the budgets, ends stalled watchers, follows discovery, keeps the warm
//! caches warm, and shows it all in the metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::api::resource::Representation;
use crate::cache::cached_resource::CachedResource;
use crate::cache::refusal::Refusal;
use crate::cache::registry::{Inner, check};
use crate::upstream::version::UpstreamVersion;

impl Inner {
    /// Runs until shutdown.
    pub(super) fn spawn_housekeeping(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let mut discovered = self.source.changes();
        let mut version = self.source.version();
        let mut release = version.borrow_and_update().clone();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            let (mut is_discovery_open, mut is_version_open) = (true, true);
            loop {
                tokio::select! {
                    _ = ticks.tick() => registry.tidy_up(),
                    () = registry.context.budget.exceeded() => registry.keep_total_budget(),
                    changed = discovered.changed(), if is_discovery_open => {
                        is_discovery_open = changed.is_ok();
                        registry.follow_discovery();
                    }
                    changed = version.changed(), if is_version_open => {
                        is_version_open = changed.is_ok();
                        let now = version.borrow_and_update().clone();
                        registry.follow_version(release.as_ref(), now.as_ref());
                        release = now;
                    }
                }
            }
        }));
    }

    /// Keeps the warm caches alive until shutdown.
    pub(super) fn spawn_warming(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            loop {
                for gvr in &registry.context.config.warm {
                    let got = registry.get(gvr, "", Representation::Json, None).await;
                    // What is refused is forwarded, and must not hold up readiness; what is not discovered yet may still come.
                    if got.is_err_and(|refusal| refusal != Refusal::NotReady) {
                        registry.warming.remove(gvr);
                    }
                }
                tokio::time::sleep(TICK).await;
            }
        }));
    }

    /// Makes room for one more cache, or refuses it.
    pub(super) fn make_space(&self) -> Result<(), Refusal> {
        if self.caches.len() >= CACHES_MAX && !self.stop_unused(1, |_| 1) {
            self.context.metrics.budget_refusal("caches");
            return Err(Refusal::OverBudget);
        }
        if self.context.budget.is_exhausted() {
            let missing = self.context.budget.excess() + 1;
            if !self.stop_unused(missing, |cached| cached.account.state()) {
                self.context.metrics.budget_refusal("total");
                return Err(Refusal::OverBudget);
            }
        }
        Ok(())
    }

    fn tidy_up(&self) {
        let idle_timeout = self.context.config.idle_timeout;
        let now = self.context.clock.now();
        for cached in self.all() {
            cached.watch_cache.end_stalled(STALLED_AFTER, now);
            cached.series.watchers(cached.watch_cache.watchers());
            if cached.watch_cache.state().is_some() {
                self.finish_warming(&cached);
            }
            self.stop_if(&cached, Refusal::NotReady, |cached| {
                !cached.is_warm() && cached.usage.is_idle(idle_timeout)
            });
        }
        self.keep_total_budget();
        self.context.metrics.totals(self.caches.len(), self.context.budget.used());
    }

    /// Brings the total below its limit: unused caches go first, least recently used first; then, lest the limit be none, used
    /// ones in the same order, whose requests are forwarded for a while.
    fn keep_total_budget(&self) {
        let excess = self.context.budget.excess();
        if excess == 0 || self.stop_unused(excess, |cached| cached.account.state()) {
            return;
        }
        let mut used = self.all();
        used.retain(|cached| !cached.lifecycle.cancel().is_cancelled());
        used.sort_by_key(|cached| (cached.is_warm(), cached.usage.last_used_ms()));
        let mut freed = 0;
        for cached in used {
            if freed >= excess {
                break;
            }
            freed += cached.account.state();
            self.context.metrics.budget_refusal("total");
            cached.account.close();
            cached.lifecycle.stop(Refusal::OverBudget);
        }
    }

    /// Stops unused caches, least recently used first, until what they give back is enough; false if it is not.
    fn stop_unused(&self, enough: usize, freed_by: impl Fn(&CachedResource) -> usize) -> bool {
        let mut unused = self.all();
        unused.retain(|cached| cached.usage.is_unused() && !cached.is_warm());
        unused.sort_by_key(|cached| cached.usage.last_used_ms());
        let mut freed = 0;
        for cached in unused {
            if freed >= enough {
                break;
            }
            let amount = freed_by(&cached);
            if self.stop_if(&cached, Refusal::NotReady, |cached| cached.usage.is_unused()) {
                freed += amount;
            }
        }
        freed >= enough
    }

    /// Stops a cache and takes it from the map in one step, if the condition still holds: nobody can take it up in between.
    fn stop_if(
        &self,
        cached: &Arc<CachedResource>,
        reason: Refusal,
        condition: impl Fn(&CachedResource) -> bool,
    ) -> bool {
        let removed = self.remove_if(cached, |present| {
            let goes = condition(present);
            if goes {
                // Before a successor can begin, and open series of the same labels.
                self.raise_high_water_mark(present);
                present.series.retire();
            }
            goes
        });
        if removed {
            cached.account.close();
            cached.lifecycle.stop(reason);
        }
        removed
    }

    /// Lets the caches of resources go that are gone or changed. Where one that changed is in use, another takes its place at once, so that
    /// clients whose watches end find it warming, or warm.
    fn follow_discovery(self: &Arc<Self>) {
        for cached in self.all() {
            match self.source.peek(&cached.key.gvr) {
                None => self.retire(&cached, Refusal::Unknown),
                Some(now) if *cached.resource != *now => {
                    let in_use = cached.is_warm() || !cached.usage.is_unused();
                    self.retire(&cached, Refusal::NotReady);
                    if in_use && check(&now).is_ok() {
                        let begun = self.start(cached.key.clone(), now, None);
                        tracing::info!(resource = %cached.key.gvr, begun = begun.is_ok(), "the definition changed");
                    }
                }
                Some(_) => {}
            }
        }
        self.forward_budget.retain(|gvr| self.source.peek(gvr).is_some());
    }

    /// Takes a cache out of the map whose resource is gone or is written in other bytes now. Its watches go on until the upstream ends its own, as
    /// those do that are not watched through here: what the upstream still tells on it are the deletions of the objects of a definition that goes.
    fn retire(&self, cached: &Arc<CachedResource>, reason: Refusal) {
        let removed = self.remove_if(cached, |present| {
            // As in `stop_if`.
            self.raise_high_water_mark(present);
            present.series.retire();
            true
        });
        if !removed {
            return;
        }
        cached.lifecycle.retire(reason);
        let cached = Arc::clone(cached);
        let over = self.context.cancel.clone();
        self.context.tasks.spawn(over.run_until_cancelled_owned(async move {
            tokio::time::sleep(RETIREMENT_MAX).await;
            cached.lifecycle.stop(reason);
        }));
    }

    /// Has every cache listed anew when the upstream became another release, which may write the same objects in other bytes (design, section 4).
    fn follow_version(&self, before: Option<&UpstreamVersion>, now: Option<&UpstreamVersion>) {
        if before.is_none() || before == now {
            return;
        }
        tracing::info!("the upstream became another release; all caches are listed anew");
        for cached in self.all() {
            cached.requests.request_relist();
        }
    }

    /// The living caches, taken out of the map so that no shard stays locked.
    fn all(&self) -> Vec<Arc<CachedResource>> {
        self.caches.iter().map(|cached| Arc::clone(&cached)).collect()
    }
}

/// Idle times and stalled watchers are counted in tens of seconds; metrics are scraped in about as many.
const TICK: Duration = Duration::from_secs(2);
/// A watcher that has not taken its initial state for so long holds a whole snapshot for nothing: its client, or the way to it, is stuck.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How long a cache whose resource is gone or changed may wait for the upstream to end its watch. The upstream does so a second after, or when
/// the requests under way there are done.
const RETIREMENT_MAX: Duration = Duration::from_secs(5);
/// Caches alive at once. The cluster's resources are some hundreds; the rest is room for namespaces where Weir's rights end there.
const CACHES_MAX: usize = 2_048;
