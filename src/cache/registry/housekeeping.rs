//! The background tasks of the registry.
//!
//! They stop idle caches, keep the byte budget and what slow watchers have to read, follow changes
//! of discovery and of the upstream's version, keep the warm caches running, and set the metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, timeout};

use crate::api::resource::Representation;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::refusal::Refusal;
use crate::cache::registry::eviction::keep_total_budget;
use crate::cache::registry::inner::{Inner, check};
use crate::cache::watch_list_attempt;
use crate::telemetry::events::EventKind;

impl Inner {
    /// Runs the housekeeping until shutdown.
    pub(super) fn spawn_housekeeping(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let mut discovered = self.source.changes();
        let mut version_changes = self.source.version_changes();
        let mut generation = self.context.history.subscribe();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            let (mut is_discovery_open, mut is_version_open) = (true, true);
            loop {
                tokio::select! {
                    _ = ticks.tick() => registry.tidy_up(),
                    () = registry.context.budget.until_exceeded() => {
                        keep_total_budget(&registry.caches, &registry.context);
                    }
                    changed = discovered.changed(), if is_discovery_open => {
                        is_discovery_open = changed.is_ok();
                        registry.follow_discovery();
                    }
                    Ok(()) = generation.changed() => registry.source.recheck_discovery(),
                    changed = version_changes.changed(), if is_version_open => {
                        is_version_open = changed.is_ok();
                        if is_version_open {
                            registry.follow_version();
                        }
                    }
                }
            }
        }));
    }

    /// Keeps the warm caches running until shutdown.
    pub(super) fn spawn_warming(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            loop {
                let config = registry.context.config().clone();
                for gvr in &config.warm {
                    let got = registry.get(gvr, "", Representation::Json, None).await;
                    let Err(refusal) = got else { continue };
                    registry.warm_refusals.insert(gvr.clone(), refusal);
                    // A refused resource is forwarded and must not delay readiness. `NotReady` is
                    // not final: the resource may not be discovered yet.
                    if refusal != Refusal::NotReady {
                        registry.warming.remove(gvr);
                    }
                }
                tokio::time::sleep(TICK).await;
            }
        }));
    }

    fn tidy_up(&self) {
        let idle_timeout = self.context.seams.idle_timeout;
        let now = self.context.clock.now();
        for cached in self.caches.to_vec() {
            cached.keep_unread(now);
            cached.gate.drop_overtaken();
            cached.counts.settle(&cached.counted());
            if cached.watch_cache.state().is_some() {
                self.over_budget.clear(&cached.key, &self.context);
                if !cached.gate.is_behind() {
                    self.finish_warming(&cached, None);
                }
            }
            self.caches.stop_if(&cached, Refusal::NotReady, |cached| {
                !cached.is_warm() && cached.usage.is_idle(idle_timeout)
            });
        }
        self.learn_watch_list();
        keep_total_budget(&self.caches, &self.context);
        self.over_budget.retain(&self.context, |key| self.source.peek(&key.gvr).is_some());
        self.context.metrics.totals(self.caches.len(), self.context.budget.used());
    }

    /// Tries a watch-list, if the upstream had none or was slow some minutes ago. A cache that is
    /// filled may not list again for days.
    fn learn_watch_list(&self) {
        if !self.context.watch_list.has_expired() {
            return;
        }
        let caches = self.caches.to_vec();
        let mut ready = caches.iter().filter(|cached| cached.watch_cache.state().is_some());
        // Nobody waits for it.
        if ready.any(|cached| watch_list_attempt::start(cached).is_some()) {
            self.context.watch_list.note_attempt();
        }
    }

    /// Retires the caches of resources that are gone or whose definition changed. A changed one
    /// that is in use is replaced at once, so that clients whose watches end find its successor
    /// starting, or ready. Closes those of resources that an aggregated API server serves now.
    fn follow_discovery(self: &Arc<Self>) {
        for cached in self.caches.to_vec() {
            match self.source.peek(&cached.key.gvr) {
                _ if self.source.is_aggregated(&cached.key.gvr) => self.close(&cached),
                None => self.retire(&cached, Refusal::Unknown),
                Some(now) if *cached.resource != *now => {
                    let in_use = cached.is_warm() || !cached.usage.is_unused();
                    self.retire(&cached, Refusal::NotReady);
                    if in_use && check(&now).is_ok() {
                        let started = self.start(cached.key.clone(), now, None);
                        let text = "The definition changed.";
                        let events = self.context.metrics.events();
                        events.notable(EventKind::Definition, &cached.key, text, |left_out| {
                            tracing::info!(resource = %cached.key.gvr, started = started.is_ok(), left_out, "the definition changed");
                        });
                    }
                }
                Some(_) => {}
            }
        }
        for budget in [&self.forward_budget, &self.over_budget_forwards] {
            budget.retain(|gvr| self.source.peek(gvr).is_some());
        }
    }

    /// Ends a cache whose resource an aggregated API server serves now, with all that reads it.
    /// Nothing that was received may be shown any more: that server may answer each user
    /// differently. Nothing may be resumed there either, since its resourceVersions are its own. So
    /// the floor is not raised.
    fn close(&self, cached: &Arc<CachedResource>) {
        if !self.caches.remove_if(cached, |_| true) {
            return;
        }
        cached.writer.close(EndCause::Aggregated);
        cached.series.retire();
        cached.account.close();
        cached.lifecycle.stop(Refusal::Aggregated);
    }

    /// Removes a cache whose resource is gone, or is written in other bytes now. Its watches
    /// continue until the upstream ends its own watch, as watches at the upstream do: the upstream
    /// still sends the deletions of the objects of a definition that is removed.
    fn retire(self: &Arc<Self>, cached: &Arc<CachedResource>, reason: Refusal) {
        if !self.caches.close_if(cached, |_| true) {
            return;
        }
        self.caches.add_retired(&cached.key.gvr);
        cached.lifecycle.retire(reason);
        let (registry, cached) = (Arc::clone(self), Arc::clone(cached));
        let over = self.context.cancel.clone();
        self.context.tasks.spawn(over.run_until_cancelled_owned(async move {
            // It ends by itself, or is asked to.
            let ended = timeout(RETIREMENT_MAX, cached.lifecycle.ended()).await;
            if ended.is_err() {
                cached.lifecycle.stop(reason);
                cached.lifecycle.ended().await;
            }
            registry.caches.remove_retired(&cached.key.gvr);
        }));
    }

    /// Requests a new list of every cache when the version of the upstream changed, because another
    /// version may write the same objects in other bytes (`docs/decisions/upstream-bytes.md`). The
    /// features of the upstream are learned again, too.
    fn follow_version(&self) {
        let text = "The version of the upstream changed; all caches list again.";
        self.context.metrics.events().notable(EventKind::Version, "", text, |left_out| {
            tracing::info!(left_out, "the version of the upstream changed; all caches list again");
        });
        self.context.watch_list.expire();
        self.context.shard_support.expire();
        for cached in self.caches.to_vec() {
            cached.learned.doubt_bookmark();
            cached.requests.relist.notify_one();
        }
    }
}

/// The interval of the housekeeping. Idle times are counted in tens of seconds, and metrics are
/// scraped about as often.
const TICK: Duration = Duration::from_secs(2);
/// How long a retired cache may wait for the upstream to end its watch. The upstream ends it a
/// second after the change, or when its requests in flight are done.
const RETIREMENT_MAX: Duration = Duration::from_secs(5);
