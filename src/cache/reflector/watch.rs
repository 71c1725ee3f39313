//! How a reflector watches: opening, verifying after a break, applying, and what follows each way in which a watch may end.

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::api::resource::Shape;
use crate::cache::cached_resource::reflector_requests::ReflectorRequests;
use crate::cache::core::watch_cache::Change;
use crate::cache::probe::RESPONSE_TIMEOUT;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::{ListCause, Reflector, State, Verify};
use crate::cache::refusal::Refusal;
use crate::streams::poll_on_wake::PollOnWake;
use crate::upstream::bounded::with_timeout;
use crate::upstream::lister_watcher::{ListWatch, UpstreamEvent, WatchRequest, WatchStream};

/// An open watch.
pub(crate) struct RunningWatch<W> {
    watch: W,
    opened: Instant,
    /// When it must have ended by itself.
    deadline: Instant,
    /// Whether it brought anything yet.
    received_any: bool,
    /// Events taken from it that are not applied yet.
    pub(super) pending: Vec<UpstreamEvent>,
}

impl<W> RunningWatch<W> {
    /// One that was opened with this `timeoutSeconds`.
    pub(super) fn new(watch: W, opened: Instant, timeout_seconds: u32) -> Self {
        let deadline = opened + Duration::from_secs(timeout_seconds.into()) + WATCH_DEADLINE_GRACE;
        Self { watch, opened, deadline, received_any: false, pending: Vec::new() }
    }
}

/// What a running watch came to.
enum ReadStep {
    /// Something was applied.
    Applied,
    /// It ended cleanly.
    Eof,
}

/// What interrupts a watch.
enum Interrupt {
    /// The upstream's history was found rewound.
    Rewound,
    /// The same objects may be written in other bytes now.
    Relist,
    /// Someone doubts the history.
    Verify,
    /// It is open past its own time-out: the connection is dead without knowing.
    Overdue,
}

/// The first alarm that rings.
async fn next_interrupt(
    requests: &ReflectorRequests,
    mut rewinds: Receiver<u64>,
    deadline: Instant,
) -> Interrupt {
    tokio::select! {
        biased;
        _ = rewinds.changed() => Interrupt::Rewound,
        () = requests.relist_requested() => Interrupt::Relist,
        () = requests.verify_requested() => Interrupt::Verify,
        () = sleep_until(deadline) => Interrupt::Overdue,
    }
}

impl<L: ListWatch> Reflector<L> {
    /// Opens a watch from what is held.
    pub(super) async fn resume(&mut self, verify: Verify) -> Result<State<L::Watch>, Refusal> {
        let Some(held) = self.held() else { return Ok(State::Listing(ListCause::Retry)) };
        let timeout_seconds = self.next_watch_seconds();
        let request = WatchRequest {
            resource_version: Some(held),
            timeout_seconds,
            ..WatchRequest::default()
        };
        let opened = Instant::now();
        match with_timeout(RESPONSE_TIMEOUT, self.upstream.watch(request)).await {
            Ok(watch) => {
                self.learn_warnings();
                let running = RunningWatch::new(watch, opened, timeout_seconds);
                Ok(match verify {
                    Verify::None => State::Watching(running),
                    Verify::History | Verify::Bytes => State::Verifying(running, verify),
                })
            }
            Err(error) => self.watch_failed(error.into()),
        }
    }

    /// A short watch brings a bookmark soon (semantics.md §5.6), from which its form is learnt; an upstream that sends none, since
    /// nothing moves, is not bothered for long.
    fn next_watch_seconds(&mut self) -> u32 {
        if self.cached.learned.has_bookmark() || self.template_watches >= TEMPLATE_WATCHES_MAX {
            return watch_seconds();
        }
        self.template_watches += 1;
        TEMPLATE_WATCH_SECONDS
    }

    /// Makes sure that what is held is still the upstream's, before an event of the new watch is applied. The watch was opened first, so nothing can
    /// change unseen between the two: a definition that changes ends the watch.
    pub(super) async fn verify(
        &mut self,
        running: RunningWatch<L::Watch>,
        verify: Verify,
    ) -> Result<State<L::Watch>, Refusal> {
        let held = self.held();
        match self.probe().await {
            Ok(upstream) if held > Some(upstream) => {
                self.cached.series.watch_ended("rewound");
                self.report_rewind(upstream);
                return Ok(State::Listing(ListCause::Rewound));
            }
            Ok(_) => {}
            Err(failure) => return self.verification_failed(failure, verify),
        }
        if verify == Verify::Bytes {
            match self.has_same_bytes_upstream().await {
                Ok(true) => {}
                Ok(false) => {
                    self.cached.series.watch_ended("changed");
                    return Ok(State::Listing(ListCause::Changed));
                }
                Err(failure) => return self.verification_failed(failure, verify),
            }
        }
        Ok(State::Watching(running))
    }

    fn verification_failed(
        &mut self,
        failure: Failure,
        verify: Verify,
    ) -> Result<State<L::Watch>, Refusal> {
        self.cached.series.watch_ended("error");
        self.back_off(failure, State::Resuming(verify))
    }

    /// Applies what a watch brings until it ends, or until an alarm rings.
    pub(super) async fn watch(
        &mut self,
        mut running: RunningWatch<L::Watch>,
    ) -> Result<State<L::Watch>, Refusal> {
        let cached = self.cached.clone();
        // Not looked at with every event.
        let mut interrupt = PollOnWake::new(next_interrupt(
            &cached.requests,
            self.rewinds.clone(),
            running.deadline,
        ));
        loop {
            let step = tokio::select! {
                biased;
                interrupt = &mut interrupt => return self.interrupted(interrupt, running),
                step = self.read_events(&mut running) => step,
            };
            match step {
                Ok(ReadStep::Applied) => {}
                Ok(ReadStep::Eof) => return self.ended_cleanly(&running),
                Err(failure) => return self.watch_failed(failure),
            }
        }
    }

    /// What follows an alarm.
    fn interrupted(
        &mut self,
        interrupt: Interrupt,
        running: RunningWatch<L::Watch>,
    ) -> Result<State<L::Watch>, Refusal> {
        match interrupt {
            Interrupt::Rewound => {
                self.cached.series.watch_ended("rewound");
                Ok(State::Listing(ListCause::Rewound))
            }
            Interrupt::Relist => {
                self.cached.series.watch_ended("changed");
                Ok(State::Listing(ListCause::Changed))
            }
            Interrupt::Verify => Ok(State::Verifying(running, Verify::History)),
            Interrupt::Overdue => {
                self.cached.series.watch_ended("overdue");
                let text = "the watch outlived its own time-out; its connection is dead".to_owned();
                self.back_off(Failure::Retry(text, None), self.resume_after_break())
            }
        }
    }

    /// Takes and applies the next events. Cancel safe: there is no await between taking and applying.
    async fn read_events(
        &mut self,
        running: &mut RunningWatch<L::Watch>,
    ) -> Result<ReadStep, Failure> {
        let events = if running.pending.is_empty() {
            match running.watch.next().await? {
                Some(events) => events,
                None => return Ok(ReadStep::Eof),
            }
        } else {
            std::mem::take(&mut running.pending)
        };
        running.received_any = true;
        self.apply(events)?;
        Ok(ReadStep::Applied)
    }

    /// Applies all events of one read as one step; an error among them ends the watch after what came before it.
    fn apply(&mut self, events: Vec<UpstreamEvent>) -> Result<(), Failure> {
        let mut changes = Vec::with_capacity(events.len());
        let mut failure = None;
        for event in events {
            changes.push(match event {
                UpstreamEvent::Upsert(object) => Change::Upsert(object),
                UpstreamEvent::Delete(object) => Change::Delete(object),
                UpstreamEvent::Bookmark { resource_version, object, .. } => {
                    self.cached.learned.learn_bookmark(&object);
                    Change::Progress(resource_version)
                }
                UpstreamEvent::Error(error) => {
                    failure = Some(Failure::from(error));
                    break;
                }
            });
        }
        if !changes.is_empty() {
            self.cached.watch_cache.apply(changes, self.cached.context.clock.now());
            self.malformed_responses = 0;
            self.account_state()?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// The ordinary end of a watch at its time-out: the next one follows at once. One that ended at birth is a failure (client-go's "very short
    /// watch"), or an upstream that closes every watch would be asked in a tight loop.
    fn ended_cleanly(
        &mut self,
        running: &RunningWatch<L::Watch>,
    ) -> Result<State<L::Watch>, Refusal> {
        let early = Instant::now() + WATCH_DEADLINE_GRACE + EARLY_END_MARGIN < running.deadline;
        let next = if early { self.resume_after_break() } else { State::Resuming(Verify::History) };
        if !running.received_any && running.opened.elapsed() < SHORT_WATCH {
            self.cached.series.watch_ended("short");
            let text = "the watch ended within a second and without an event".to_owned();
            return self.back_off(Failure::Retry(text, None), next);
        }
        self.cached.series.watch_ended("clean");
        self.malformed_responses = 0;
        tracing::debug!("the watch ended");
        Ok(next)
    }

    /// What follows a watch that failed.
    fn watch_failed(&mut self, failure: Failure) -> Result<State<L::Watch>, Refusal> {
        self.cached.series.watch_ended(failure.label());
        if matches!(failure, Failure::Expired) {
            tracing::info!(held = ?self.held(), "the upstream no longer has the events after what is held");
            return Ok(State::Listing(ListCause::Expired));
        }
        self.back_off(failure, self.resume_after_break())
    }

    /// What follows a watch that ended before its time or broke. That of a custom resource may have ended with its definition: the next one would
    /// tell events in other bytes than what is held. It is not listed anew for that alone, since a list would take the states in between from the
    /// watchers.
    fn resume_after_break(&self) -> State<L::Watch> {
        State::Resuming(match self.cached.resource.shape {
            Shape::Custom => Verify::Bytes,
            Shape::BuiltIn => Verify::History,
        })
    }
}

/// A `timeoutSeconds` for a watch; random, so that the watches of many reflectors do not end together.
pub(super) fn watch_seconds() -> u32 {
    fastrand::u32(WATCH_SECONDS_MIN..=WATCH_SECONDS_MAX)
}

/// client-go's bounds.
const WATCH_SECONDS_MIN: u32 = 300;
const WATCH_SECONDS_MAX: u32 = 600;
/// Long enough for the bookmark that the upstream sends two seconds before a watch's deadline (semantics.md §5.6).
const TEMPLATE_WATCH_SECONDS: u32 = 3;
/// How many watches may be short for want of a bookmark's form.
const TEMPLATE_WATCHES_MAX: u32 = 3;
/// client-go's "very short watch".
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// How long before its time-out the end of a watch is not that of its time-out.
const EARLY_END_MARGIN: Duration = Duration::from_secs(2);
/// How long after its time-out a watch may still be open before its connection counts as dead.
const WATCH_DEADLINE_GRACE: Duration = Duration::from_secs(15);
