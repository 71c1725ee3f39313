//! The reflector's data, and the steps that listing and watching share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::CompleteList;
use crate::cache::probe::request;
use crate::cache::progress::PROBE_TIMEOUT;
use crate::cache::reflector::backoff::Backoff;
use crate::cache::reflector::byte_checks::ByteChecks;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::list_attempts::ListAttempts;
use crate::cache::reflector::refusals::{MalformedStreak, RefusalStreak, Verdict};
use crate::cache::reflector::start_options::StartOptions;
use crate::cache::reflector::state::{ListCause, State};
use crate::cache::reflector::waiting::Waiting;
use crate::cache::refusal::Refusal;
use crate::tasks::run_in_place;
use crate::telemetry::events::EventKind;
use crate::upstream::bounded::with_timeout;

/// The data of a reflector.
pub(super) struct Driver {
    pub(super) cached: Arc<CachedResource>,
    pub(super) options: StartOptions,
    /// The present generation of the upstream's history.
    pub(super) generation: Receiver<u64>,
    /// The floor when the present list was requested. Proofs and other caches of the resource may
    /// raise it meanwhile.
    pub(super) floor_at_list_start: Option<ResourceVersion>,
    pub(super) lists: ListAttempts,
    /// The refusals since a watch was last open.
    pub(super) refusals: RefusalStreak,
    /// Whether the bytes of the next list must be verified, and when they are verified again.
    pub(super) byte_checks: ByteChecks,
    pub(super) backoff: Backoff,
    /// The back-off of lists that follow a 410.
    pub(super) expiries: Backoff,
    pub(super) waiting: Waiting,
    /// The moves away from API servers that lag, since events were last applied.
    pub(super) moves: u32,
    /// The watches in a row that ended at their start.
    pub(super) short_watches: u32,
    malformed: MalformedStreak,
    /// Whether the cache has objects that it cannot read.
    has_unreadable: bool,
}

impl Driver {
    /// Starts in the present generation.
    pub(super) fn new(cached: Arc<CachedResource>, options: StartOptions) -> Self {
        let mut generation = cached.context.history.subscribe();
        let present = *generation.borrow_and_update();
        cached.writer.enter(present);
        Self {
            cached,
            options,
            generation,
            floor_at_list_start: None,
            lists: ListAttempts::default(),
            refusals: RefusalStreak::default(),
            byte_checks: ByteChecks::new(options.is_redefined),
            backoff: Backoff::default(),
            expiries: Backoff::default(),
            waiting: Waiting::default(),
            moves: 0,
            short_watches: 0,
            malformed: MalformedStreak::default(),
            has_unreadable: false,
        }
    }

    /// Returns the resourceVersion up to which the cache is complete.
    pub(super) fn held(&self) -> Option<ResourceVersion> {
        self.cached.watch_cache.state().map(|state| state.resource_version())
    }

    /// Whether a rewind was detected that this reflector has not followed yet.
    pub(super) fn is_rewound(&self) -> bool {
        self.generation.has_changed().unwrap_or(false)
    }

    /// Enters the present generation and drops the held state. The next list is consistent, as at
    /// the start.
    pub(super) fn restart(&mut self) -> State {
        let generation = *self.generation.borrow_and_update();
        self.cached.writer.enter(generation);
        self.cached.account.set_state(0);
        self.cached.series.contents(0, 0, 0);
        self.lists.forget_held();
        // Requests wait for the new state.
        self.backoff = Backoff::default();
        self.options = StartOptions::default();
        State::Listing(ListCause::Rewound)
    }

    /// Reports a rewound history: every cache of this upstream drops its state, this one included.
    fn report_rewind(&self, upstream: ResourceVersion) {
        let held = self.cached.gate.floor().unwrap_or_default();
        // Another cache may have reported the same rewind already.
        if self.is_rewound() {
            return;
        }
        let text = "The upstream's history was rewound (etcd restored, or another cluster at its address); all caches start again.";
        self.cached.context.metrics.events().notable(EventKind::Rewind, "", text, |left_out| {
            tracing::error!(
                %held,
                %upstream,
                left_out,
                "the upstream's history was rewound (etcd restored, or another cluster at its address); all caches start again"
            );
        });
        self.cached.context.metrics.rewound();
        self.cached.context.history.observe(held);
        self.cached.context.history.rewind();
    }

    /// Reports a rewound history if the other API servers confirm it: their newest consistent list
    /// must be below `floor` too. Otherwise the response at `upstream` came from an API server that
    /// lags, or that has another etcd, and must not be used; the next request goes elsewhere.
    pub(super) async fn confirm_rewind(
        &self,
        floor: Option<ResourceVersion>,
        upstream: ResourceVersion,
    ) -> Result<(), Failure> {
        let second =
            with_timeout(PROBE_TIMEOUT, self.cached.upstream.list_elsewhere(request())).await?;
        // The resourceVersions of an aggregated API server are its own.
        self.confirm_local().await?;
        if floor > Some(second.resource_version) {
            self.report_rewind(upstream);
            return Ok(());
        }
        self.cached.upstream.leave_server();
        let lagging = "an API server is behind what it was asked for; another one is not";
        Err(Failure::Retry(lagging.to_owned(), None))
    }

    /// Fails if an aggregated API server may have sent what was received. Then the registry is
    /// about to end the cache.
    async fn confirm_local(&self) -> Result<(), Failure> {
        if self.cached.upstream.is_local().await {
            return Ok(());
        }
        let text = "an aggregated API server may serve the resource now";
        Err(Failure::Retry(text.to_owned(), None))
    }

    /// Compares the cluster with the known one before anything that was received counts, and
    /// ensures that the API server itself has sent that. Another cluster is a rewind, which
    /// [`Self::is_rewound`] shows.
    pub(super) async fn confirm_origin(&self) -> Result<(), Failure> {
        self.confirm_local().await?;
        let CacheContext { cluster, history, metrics, .. } = &*self.cached.context;
        let confirmed = cluster.confirm(&*self.cached.upstream, history, metrics).await;
        confirmed.map_err(|error| Failure::Retry(error.to_string(), None))
    }

    /// Sets the state to a complete list. If the list belongs to another history than the held
    /// state, the rewind is reported instead, and decides about the next state.
    pub(super) async fn commit(
        &mut self,
        listed: CompleteList,
        resource_version: ResourceVersion,
    ) -> Result<(), Failure> {
        self.confirm_origin().await?;
        if self.is_rewound() {
            return Ok(());
        }
        if self.floor_at_list_start > Some(resource_version) {
            return self.confirm_rewind(self.floor_at_list_start, resource_version).await;
        }
        let count = listed.objects.len();
        if !self.publish(listed, resource_version) {
            let text = "the list is older than the cache";
            return Err(Failure::Retry(text.to_owned(), None));
        }
        self.cached.account.set_listing(0);
        self.lists.note_success();
        self.note_readable();
        self.account_state()?;
        let first = self.cached.lifecycle.mark_ready();
        tracing::info!(objects = count, %resource_version, first, "listed");
        Ok(())
    }

    /// Applies a complete list. Only watches from a resourceVersion may use it while it is below
    /// the floor, which other caches of the resource may have raised since the list was requested.
    /// Returns false if it is older than the cache.
    fn publish(&self, listed: CompleteList, resource_version: ResourceVersion) -> bool {
        let CachedResource { gate, writer, context, .. } = &*self.cached;
        let (on_relist, now) = (context.config().on_relist, context.clock.now());
        // Not held without a cause: requests that wait for the first list take it as their proof.
        gate.hold_below_floor(Some(resource_version), false);
        // Millions of objects take seconds: other tasks of this thread must not wait for them.
        let replace = || writer.replace(listed, resource_version, on_relist, now);
        let is_applied = run_in_place(replace);
        // The floor may have risen meanwhile.
        gate.settle(false);
        is_applied
    }

    /// Updates the budgets and metrics after the state has changed.
    pub(super) fn account_state(&mut self) -> Result<(), Failure> {
        let Some(state) = self.cached.watch_cache.state() else { return Ok(()) };
        self.note_unreadable(state.unreadable().len());
        let weight = state.weight();
        self.cached.account.set_state(weight);
        self.cached.context.history.observe(state.resource_version());
        self.cached.series.contents(state.len(), weight, state.resource_version().0);
        self.cached.series.progress();
        if self.cached.account.is_too_heavy(weight) {
            self.cached.context.metrics.budget_refusal("resource");
            return Err(Failure::Stop(Refusal::OverBudget));
        }
        Ok(())
    }

    /// Notes that the cache has objects that it cannot read, or has none any more.
    fn note_unreadable(&mut self, objects: usize) {
        if std::mem::replace(&mut self.has_unreadable, objects > 0) == (objects > 0) {
            return;
        }
        let (events, key) = (self.cached.context.metrics.events(), &self.cached.key);
        if objects > 0 {
            let text = "An object cannot be read; reads that may show it are forwarded.";
            let line = |left_out| tracing::warn!(objects, left_out, "{text}");
            events.notable_begin(EventKind::Unreadable, key, text, line);
        } else {
            let text = "All objects can be read again.";
            let line = |left_out| tracing::info!(left_out, "{text}");
            events.notable_end(EventKind::Unreadable, key, text, line);
        }
    }

    /// Notes that a response could be parsed.
    pub(super) fn note_readable(&mut self) {
        self.malformed.end();
        self.moves = 0;
        self.short_watches = 0;
    }

    /// Sets the warnings to those of the upstream's last response.
    pub(super) fn learn_warnings(&self) {
        self.cached.learned.set_warnings(self.cached.upstream.warnings());
    }

    /// Backs off before `next`, or ends the reflector if a retry cannot help.
    pub(super) fn back_off(&mut self, failure: Failure, next: State) -> Result<State, Refusal> {
        self.waiting.note_failure(&failure);
        let retry_after = match &failure {
            Failure::Stop(refusal) => {
                tracing::warn!(reason = refusal.as_str(), "the resource cannot be cached");
                return Err(*refusal);
            }
            Failure::Malformed(error) => {
                if self.malformed.note(self.cached.lifecycle.is_ready()) {
                    tracing::warn!(error, "the resource cannot be parsed, and is not cached");
                    return Err(Refusal::Unreadable);
                }
                None
            }
            Failure::Retry(_, retry_after) => *retry_after,
            Failure::Refused(refusal, error) => return self.refused(*refusal, error, next),
            _ => None,
        };
        let (wait, is_repeated) = self.backoff.next(Instant::now(), retry_after);
        Ok(self.wait_before(next, wait, is_repeated, failure.cause()))
    }

    /// Returns the state after a refusal that may pass.
    fn refused(&mut self, refusal: Refusal, error: &str, next: State) -> Result<State, Refusal> {
        let had_state = self.cached.lifecycle.is_ready();
        match self.refusals.note(refusal, had_state, self.options.is_patient) {
            Verdict::Retry { min, max } => {
                let (wait, is_repeated) = self.backoff.next(Instant::now(), None);
                Ok(self.wait_before(next, wait.clamp(min, max), is_repeated, error))
            }
            Verdict::Review => Ok(State::Reviewing(refusal, Box::new(next))),
            Verdict::Believe => {
                tracing::warn!(error, "the resource cannot be cached");
                Err(refusal)
            }
        }
    }

    /// Ends the reflector if access reviews deny what the upstream has refused for long. Otherwise
    /// backs off before `next`.
    pub(super) async fn review(&mut self, refusal: Refusal, next: State) -> Result<State, Refusal> {
        let error = match self.cached.upstream.is_allowed().await {
            Ok(false) => {
                tracing::warn!(
                    reason = refusal.as_str(),
                    "the upstream refuses the resource, and an access review denies it; the resource cannot be cached"
                );
                return Err(refusal);
            }
            Ok(true) => "the upstream refuses what its access review allows".to_owned(),
            Err(error) => format!("the upstream refuses, and an access review failed: {error}"),
        };
        let (wait, is_repeated) = self.backoff.next(Instant::now(), None);
        Ok(self.wait_before(next, wait, is_repeated, &error))
    }

    /// Returns the state that waits before `next`, because of a failure.
    pub(super) fn wait_before(
        &self,
        next: State,
        wait: Duration,
        is_repeated: bool,
        error: &str,
    ) -> State {
        self.cached.status.failed(error);
        let (then, wait_ms) = (next.name(), wait.as_millis());
        // During a long outage a warning for each attempt of each reflector would fill the log.
        if is_repeated {
            tracing::debug!(error, then, wait_ms, "backing off again");
        } else {
            self.notable(EventKind::BackOff, error, |left_out| {
                tracing::warn!(error, then, wait_ms, left_out, "backing off");
            });
        }
        State::BackingOff(wait, Box::new(next))
    }

    /// Notes a list that is not the first one.
    pub(super) fn note_relist(&self, cause: ListCause) {
        let text = match cause {
            ListCause::Start => return,
            ListCause::Expired => {
                "Lists again: the upstream no longer has the events after the held state."
            }
            ListCause::Rewound => "Lists again: the upstream's history was rewound.",
            ListCause::Changed => "Lists again: the upstream may write other bytes now.",
            ListCause::ShortWatches => "Lists again: watch after watch ended at its start.",
            ListCause::Retry => "Lists again after a failed list.",
        };
        self.notable(EventKind::Relist, text, |left_out| {
            tracing::info!(cause = cause.label(), left_out, "listing again");
        });
    }

    /// Notes a notable event of this cache. The span of the reflector names it in the log.
    fn notable(&self, kind: EventKind, text: &str, line: impl FnOnce(Option<u64>)) {
        self.cached.context.metrics.events().notable(kind, &self.cached.key, text, line);
    }
}
