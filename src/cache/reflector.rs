//! The loop that keeps one watch cache equal to the upstream (client-go's reflector).
//!
//! It lists once and then watches, resuming at the last applied resourceVersion after every break. It lists again only when the upstream has
//! lost the history in between (410) or has gone back in it. Three things must never happen:
//!
//! * A list that breaks wipes nothing: the old state serves until the new one is complete.
//! * The state never goes back: a relist asks for not older than what was served, and what is older nevertheless tells of a rewound
//!   history (etcd restored, another cluster behind the address; design, section 6), upon which everything starts anew.
//! * No event of another history is applied: a watch from a resourceVersion that lies in the upstream's future would be silent until
//!   the upstream has passed it, and then tell events that do not follow. So a resumed watch is verified by one consistent `LIST limit=1`
//!   before its first event counts. That of a custom resource is compared byte by byte as well, for it may have ended with its definition.
//!
//! One task, no locks. Cancel safe at every await: what is not committed is dropped.

mod accumulator;
mod backoff;
mod failure;
mod list;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::Discontinuity;
use crate::cache::probe::probe;
use crate::cache::reflector::backoff::Backoff;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::watch::RunningWatch;
use crate::cache::refusal::Refusal;
use crate::codec::object::Object;
use crate::config::OnRelist;
use crate::streams::poll_on_wake::PollOnWake;
use crate::upstream::lister_watcher::ListWatch;

/// See the module.
pub(crate) struct Reflector<L: ListWatch> {
    upstream: Arc<L>,
    cached: Arc<CachedResource>,
    options: StartOptions,
    backoff: Backoff,
    rewinds: Receiver<u64>,
    /// Whether the next list must be consistent, since asking for not older than what is held did not work.
    consistent: bool,
    /// What was held when the present list was asked for. A proof of freshness may bring the cache further meanwhile.
    held_at_list_start: Option<ResourceVersion>,
    /// One failed: watch-lists then, which no time-out of a request ends.
    stream_lists_failed: bool,
    /// How many watch-lists in a row never came to the end of their initial events.
    silent_watch_lists: u32,
    malformed_responses: u32,
    too_large: Option<TooLargeStreak>,
    template_watches: u32,
}

/// How a new cache begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartOptions {
    /// Where a first watcher wants to begin: the first list is tried at exactly this resourceVersion (design, section 7).
    pub(crate) list_at: Option<ResourceVersion>,
    /// How far an earlier cache of the same key had come: a consistent list below it tells of a rewound history.
    pub(crate) high_water_mark: Option<ResourceVersion>,
}

/// Where the reflector stands.
pub(crate) enum State<W> {
    /// Nothing is held that a watch could resume from: the state is fetched anew, and the old one serves until the new one is complete.
    Listing(ListCause),
    /// The upstream failed; the next step waits.
    BackingOff(Duration, Box<Self>),
    /// A complete state is held, and a watch from its resourceVersion is opened; after a break it will be verified.
    Resuming(Verify),
    /// A watch is open again after a break, and its events wait until the doubt is gone.
    Verifying(RunningWatch<W>, Verify),
    /// Events are applied as they come.
    Watching(RunningWatch<W>),
}

/// What must be made sure of before the events of a new watch count, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// It goes on from a list just taken.
    None,
    /// The history may have been rewound behind a break: a probe tells.
    History,
    /// The definition of a custom resource may have changed as well, so that objects are written in other bytes now: a list of the very
    /// state that is held tells.
    Bytes,
}

/// Why a list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListCause {
    /// The cache is new.
    Start,
    /// The upstream no longer has the events after the held resourceVersion.
    Expired,
    /// The upstream's history was found rewound.
    Rewound,
    /// The same objects may be written in other bytes now: the upstream became another release, or the definition of a custom resource was seen
    /// to have changed.
    Changed,
    /// The list before failed.
    Retry,
}

/// Since when, and how often, the upstream says that it has not reached what is held here.
struct TooLargeStreak {
    since: Instant,
    times: u32,
}

impl<L: ListWatch> Reflector<L> {
    /// The reflector of a new cache.
    pub(crate) fn new(
        upstream: Arc<L>,
        cached: Arc<CachedResource>,
        options: StartOptions,
    ) -> Self {
        let mut rewinds = cached.context.history.subscribe();
        let generation = *rewinds.borrow_and_update();
        cached.generation.enter(generation);
        Self {
            upstream,
            cached,
            options,
            backoff: Backoff::default(),
            rewinds,
            consistent: false,
            held_at_list_start: None,
            stream_lists_failed: false,
            silent_watch_lists: 0,
            malformed_responses: 0,
            too_large: None,
            template_watches: 0,
        }
    }

    /// Runs until the cache is stopped, or until the upstream's answers leave no hope of keeping it.
    pub(crate) async fn run(mut self) -> Refusal {
        let cached = Arc::clone(&self.cached);
        let key = &cached.key;
        let span =
            tracing::info_span!("reflector", resource = %key.gvr, namespace = key.namespace());
        let cancelled = PollOnWake::new(cached.lifecycle.cancel().cancelled());
        let work = async {
            tokio::select! {
                biased;
                () = cancelled => cached.lifecycle.stop_reason(),
                refusal = self.work() => refusal,
            }
        };
        work.instrument(span).await
    }

    async fn work(&mut self) -> Refusal {
        let mut state = State::Listing(ListCause::Start);
        loop {
            self.cached.series.state(state.name());
            self.cached.lifecycle.set_watching(matches!(state, State::Watching(_)));
            match self.step(state).await {
                Ok(next) => state = next,
                Err(refusal) => return refusal,
            }
        }
    }

    async fn step(&mut self, state: State<L::Watch>) -> Result<State<L::Watch>, Refusal> {
        if self.rewinds.has_changed().unwrap_or(false) {
            return Ok(self.restart());
        }
        if self.cached.lifecycle.is_retiring() && !matches!(state, State::Watching(_)) {
            return Err(self.cached.lifecycle.stop_reason());
        }
        match state {
            State::Listing(cause) => match self.list(cause).await {
                Ok(next) => Ok(next),
                Err(failure) => self.list_failed(failure, cause),
            },
            State::BackingOff(wait, next) => {
                let mut rewinds = self.rewinds.clone();
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = rewinds.changed() => {}
                }
                Ok(*next)
            }
            State::Resuming(verify) => self.resume(verify).await,
            State::Verifying(running, verify) => self.verify(running, verify).await,
            State::Watching(running) => self.watch(running).await,
        }
    }

    /// What follows a failed list.
    fn list_failed(
        &mut self,
        failure: Failure,
        cause: ListCause,
    ) -> Result<State<L::Watch>, Refusal> {
        match &failure {
            Failure::Silent => self.silent_watch_lists += 1,
            Failure::Expired => self.consistent = true,
            // A consistent list is at least as new as what is held, or the history was rewound: that shows when it is committed.
            Failure::TooLarge if self.is_too_large_for_long() => self.consistent = true,
            _ => {}
        }
        let next = State::Listing(if cause == ListCause::Start { cause } else { ListCause::Retry });
        self.back_off(failure, next)
    }

    /// Backs off before the next state, or ends if the failure leaves no hope.
    fn back_off(
        &mut self,
        failure: Failure,
        next: State<L::Watch>,
    ) -> Result<State<L::Watch>, Refusal> {
        let retry_after = match &failure {
            Failure::Stop(refusal) => {
                tracing::warn!(reason = refusal.as_str(), "the cache cannot be kept");
                return Err(*refusal);
            }
            Failure::Malformed(error) => {
                self.malformed_responses += 1;
                if self.malformed_responses >= MALFORMED_RESPONSES_MAX {
                    tracing::warn!(error, "the resource cannot be read, and is not cached");
                    return Err(Refusal::Unreadable);
                }
                None
            }
            Failure::Retry(_, retry_after) => *retry_after,
            _ => None,
        };
        let (wait, is_repeated) = self.backoff.next(Instant::now(), retry_after);
        let (error, then, wait_ms) = (failure.cause(), next.name(), wait.as_millis());
        // An upstream that is away for long must not fill the log once a reflector and attempt.
        if is_repeated {
            tracing::debug!(error, then, wait_ms, "backing off again");
        } else {
            tracing::warn!(error, then, wait_ms, "backing off");
        }
        Ok(State::BackingOff(wait, Box::new(next)))
    }

    fn is_too_large_for_long(&mut self) -> bool {
        let now = Instant::now();
        let too_large = self.too_large.get_or_insert(TooLargeStreak { since: now, times: 0 });
        too_large.times += 1;
        too_large.times >= TOO_LARGE_TIMES_MIN
            && now.duration_since(too_large.since) >= TOO_LARGE_DURATION_MIN
    }

    /// Takes a complete list as the state, unless it belongs to another history than what is held: the alarm then decides what comes next
    /// ([`Self::step`]).
    fn commit(
        &mut self,
        objects: Vec<Object>,
        resource_version: ResourceVersion,
    ) -> Result<(), Failure> {
        if self.rewinds.has_changed().unwrap_or(false) {
            return Ok(());
        }
        if self.held_at_list_start.max(self.options.high_water_mark) > Some(resource_version) {
            self.report_rewind(resource_version);
            return Ok(());
        }
        let count = objects.len();
        if !self.apply_list(objects, resource_version) {
            let overtaken = "the cache was shown to be further while it was listed";
            return Err(Failure::Retry(overtaken.to_owned(), None));
        }
        self.cached.account.set_listing(0);
        (self.consistent, self.malformed_responses, self.silent_watch_lists, self.too_large) =
            (false, 0, 0, None);
        self.account_state()?;
        let first = self.cached.lifecycle.mark_ready();
        tracing::info!(objects = count, %resource_version, first, "listed");
        Ok(())
    }

    /// Returns false if a proof of freshness has brought the cache further than the list.
    fn apply_list(&self, objects: Vec<Object>, resource_version: ResourceVersion) -> bool {
        let (cache, now) = (&self.cached.watch_cache, self.cached.context.clock.now());
        match self.cached.context.config.on_relist {
            OnRelist::EndStreams => return cache.replace(objects, resource_version, now),
            OnRelist::KeepStreams => match cache.relist(objects, resource_version, now) {
                Ok(events) => tracing::debug!(events, "watches live on"),
                Err(Discontinuity::Overtaken) => return false,
                Err(reason) => tracing::info!(%reason, "watches end"),
            },
        }
        true
    }

    /// Accounts for what was just published.
    fn account_state(&self) -> Result<(), Failure> {
        let Some(state) = self.cached.watch_cache.state() else { return Ok(()) };
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

    /// The resourceVersion up to which the cache is complete.
    fn held(&self) -> Option<ResourceVersion> {
        self.cached.watch_cache.state().map(|state| state.resource_version())
    }

    /// Raises the alarm: every cache of this upstream drops what it holds, this one too.
    fn report_rewind(&self, upstream: ResourceVersion) {
        let held = self.held().max(self.options.high_water_mark).unwrap_or_default();
        // Another cache may have raised it for the same event already.
        if self.rewinds.has_changed().unwrap_or(false) {
            return;
        }
        tracing::error!(
            %held,
            %upstream,
            "the upstream's history went back: etcd was restored, or another cluster answers at its address; all caches start anew"
        );
        self.cached.context.metrics.rewound();
        self.cached.context.history.observe(held);
        self.cached.context.history.rewind();
    }

    /// Forgets everything after an alarm. The first list of the new history is consistent, as at a start.
    fn restart(&mut self) -> State<L::Watch> {
        let generation = *self.rewinds.borrow_and_update();
        self.cached.generation.enter(generation);
        self.cached.account.set_state(0);
        self.cached.series.contents(0, 0, 0);
        (self.consistent, self.too_large, self.options) = (false, None, StartOptions::default());
        State::Listing(ListCause::Rewound)
    }

    /// Asks for the upstream's present resourceVersion by a consistent `LIST limit=1`.
    async fn probe(&self) -> Result<ResourceVersion, Failure> {
        probe(&*self.upstream).await.map_err(Failure::from)
    }

    /// Takes over the warnings of the upstream's last answer (semantics.md §8.8).
    fn learn_warnings(&self) {
        self.cached.learned.set_warnings(&self.upstream.warnings());
    }
}

impl<W> State<W> {
    /// The `state` label of the metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::Listing(_) => "listing",
            Self::BackingOff(..) => "backing-off",
            Self::Resuming(_) => "resuming",
            Self::Verifying(..) => "verifying",
            Self::Watching(_) => "watching",
        }
    }
}

impl ListCause {
    /// The `cause` label of the metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Expired => "expired",
            Self::Rewound => "rewound",
            Self::Changed => "changed",
            Self::Retry => "retry",
        }
    }
}

/// So many unreadable answers in a row are the resource's own, not an oddly cut stream's.
const MALFORMED_RESPONSES_MAX: u32 = 2;
/// How often, at least, the upstream must say that it has not reached what is held here before that is doubted.
const TOO_LARGE_TIMES_MIN: u32 = 3;
/// How long a lagging instance of the upstream may stay behind what is held here before a rewound history is suspected (design, section 6).
const TOO_LARGE_DURATION_MIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
