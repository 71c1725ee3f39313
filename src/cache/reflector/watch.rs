//! How a reflector watches: it opens a watch, verifies it after a break, applies its events, and
//! decides what follows its end.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::resource::Shape;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watch_cache::Change;
use crate::cache::metrics::EventLabel;
use crate::cache::probe::{RESPONSE_TIMEOUT, probe};
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::event_order::{EventOrder, Place};
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::interrupt::{Interrupt, next_interrupt};
use crate::cache::reflector::running_watch::{RunningWatch, random_timeout_seconds};
use crate::cache::reflector::state::{ListCause, State, Verify};
use crate::cache::refusal::Refusal;
use crate::codec::object::Object;
use crate::upstream::bounded::with_timeout;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// The result of one read of a watch.
enum ReadStep {
    /// Events were applied.
    Applied,
    /// The watch ended without an error.
    Eof,
}

impl Driver {
    /// Opens a watch from the held resourceVersion.
    pub(super) async fn resume(&mut self, verify: Verify) -> Result<State, Refusal> {
        let Some(held) = self.held() else { return Ok(State::Listing(ListCause::Retry)) };
        match self.open_watch(held).await {
            Ok(running) => {
                // Only a probe shows how far a cache that began in the past has to go.
                let is_behind = self.cached.gate.is_behind();
                let verify = match verify {
                    Verify::Cluster if is_behind => Verify::History,
                    verify => verify,
                };
                Ok(State::Verifying(running, verify))
            }
            Err(failure) => self.watch_failed(failure),
        }
    }

    /// Opens a watch of the events after `from`.
    pub(super) async fn open_watch(&self, from: ResourceVersion) -> Result<RunningWatch, Failure> {
        let timeout_seconds = random_timeout_seconds();
        let request = WatchRequest {
            resource_version: Some(from),
            timeout_seconds,
            ..WatchRequest::default()
        };
        let opened = Instant::now();
        let watch = with_timeout(RESPONSE_TIMEOUT, self.cached.upstream.watch(request)).await?;
        self.learn_warnings();
        Ok(RunningWatch::new(watch, opened, timeout_seconds, from))
    }

    /// Verifies that the held state is still the upstream's, before an event of the new watch is
    /// applied. The watch is opened first, so that no change goes unnoticed in between: a
    /// definition that changes ends the watch.
    pub(super) async fn verify(
        &mut self,
        running: RunningWatch,
        verify: Verify,
    ) -> Result<State, Refusal> {
        if let Err(failure) = self.verify_history(verify).await {
            return self.verification_failed(failure, verify);
        }
        if self.is_rewound() {
            self.cached.series.watch_ended("rewound");
            return Ok(State::Listing(ListCause::Rewound));
        }
        match self.has_caught_up(verify).await {
            Ok(true) => {}
            Ok(false) => return self.behind_held(verify),
            Err(failure) => return self.verification_failed(failure, verify),
        }
        if verify == Verify::Bytes {
            match self.has_same_bytes_upstream().await {
                Ok(true) => self.byte_checks.note_same(),
                Ok(false) => return Ok(self.list_other_bytes()),
                Err(failure) => return self.verification_failed(failure, verify),
            }
        }
        Ok(State::Watching(running))
    }

    /// Verifies that the watch continues the held history. Reports a rewind.
    pub(super) async fn verify_history(&self, verify: Verify) -> Result<(), Failure> {
        self.confirm_origin().await?;
        if verify == Verify::Cluster || self.is_rewound() {
            return Ok(());
        }
        let (floor, generation) = (self.cached.gate.floor(), self.cached.writer.generation());
        let probed = probe(&*self.cached.upstream).await?;
        if self.cached.gate.is_behind() {
            self.cached.gate.hold(probed.resource_version, true);
        }
        self.cached.counts.observe(&self.cached.counted(), generation, &probed);
        if floor > Some(probed.resource_version) {
            self.confirm_rewind(floor, probed.resource_version).await?;
        }
        Ok(())
    }

    /// Whether the API server that sends the new watch has reached what was shown. One that lags
    /// sends nothing until then (`docs/decisions/reflector-failures.md`).
    async fn has_caught_up(&self, verify: Verify) -> Result<bool, Failure> {
        match self.cached.gate.floor() {
            Some(floor) if verify != Verify::Cluster => {
                Ok(self.cached.upstream.has_reached(floor).await?)
            }
            _ => Ok(true),
        }
    }

    /// Returns the state after a watch from an API server that lags behind the held state: the next
    /// watch is opened elsewhere, at once for the first few times. Nothing was applied.
    fn behind_held(&mut self, verify: Verify) -> Result<State, Refusal> {
        self.cached.series.watch_ended("lagging");
        let next = State::Resuming(verify);
        self.moves += 1;
        if self.cached.upstream.leave_server_of_watch() && self.moves < MOVES_MAX {
            tracing::info!("the API server lags behind the held state; resuming at another one");
            return Ok(next);
        }
        self.moves = 0;
        let text = "the API servers lag behind the held state".to_owned();
        self.back_off(Failure::Retry(text, None), next)
    }

    /// Returns the state after the upstream was found to write the held objects in other bytes.
    /// The list follows at once, unless the bytes of the last one were found to differ, too.
    fn list_other_bytes(&mut self) -> State {
        self.cached.series.watch_ended("changed");
        let next = State::Listing(ListCause::Changed);
        if !self.byte_checks.note_different() {
            return next;
        }
        let error = "the upstream writes the same objects in different bytes";
        let (wait, is_repeated) = self.backoff.next(Instant::now(), None);
        self.wait_before(next, wait, is_repeated, error)
    }

    fn verification_failed(&mut self, failure: Failure, verify: Verify) -> Result<State, Refusal> {
        self.cached.series.watch_ended("error");
        self.back_off(failure, State::Resuming(verify))
    }

    /// Applies the events of a watch until it ends or is interrupted.
    pub(super) async fn watch(&mut self, mut running: RunningWatch) -> Result<State, Refusal> {
        running.begun.get_or_insert_with(Instant::now);
        let cached = self.cached.clone();
        let mut interrupt = pin!(next_interrupt(
            &cached.requests,
            self.generation.clone(),
            running.deadline,
            self.byte_checks.next_check(),
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

    /// Returns the state after an interrupt.
    fn interrupted(
        &mut self,
        interrupt: Interrupt,
        running: RunningWatch,
    ) -> Result<State, Refusal> {
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
            Interrupt::VerifyBytes => {
                self.byte_checks.begin_late_check();
                Ok(State::Verifying(running, Verify::Bytes))
            }
            Interrupt::Overdue => {
                self.cached.series.watch_ended("overdue");
                let text = "the watch outlived its own time-out; its connection is dead".to_owned();
                self.back_off(Failure::Retry(text, None), self.resume_after_break())
            }
        }
    }

    /// Reads the next events, and applies up to [`APPLY_MAX`] of them. Cancel safe: the others
    /// stay pending, and there is no await between reading and applying.
    async fn read_events(&mut self, running: &mut RunningWatch) -> Result<ReadStep, Failure> {
        let continues = !running.pending.as_slice().is_empty();
        if continues {
            // The watchers of the events before these take them first.
            tokio::task::yield_now().await;
        } else {
            match running.watch.next().await? {
                Some(events) => running.pending = events.into_iter(),
                None => return Ok(ReadStep::Eof),
            }
        }
        running.received_any = true;
        let received = running.watch.received().unwrap_or_else(Instant::now);
        let events = running.pending.by_ref().take(APPLY_MAX);
        self.apply(events, &mut running.order, (received, continues))?;
        Ok(ReadStep::Applied)
    }

    /// Applies events as one step. `continues` is whether they came with the events before them,
    /// in one read. An error among them ends the watch after the events before it
    /// were applied.
    fn apply(
        &mut self,
        events: impl ExactSizeIterator<Item = UpstreamEvent>,
        order: &mut EventOrder,
        (received, continues): (Instant, bool),
    ) -> Result<(), Failure> {
        let mut changes = Vec::with_capacity(events.len());
        let (mut failure, mut has_late_event) = (None, false);
        for event in events {
            self.count_event(&event);
            let reached = order.resource_version();
            let place = order.note(&event);
            changes.push(match event {
                UpstreamEvent::Upsert(object) => Change::Upsert(object),
                UpstreamEvent::Delete(object)
                    if place != Place::Repeated && self.was_relisted(&object, reached) =>
                {
                    failure = Some(Failure::Expired);
                    break;
                }
                UpstreamEvent::Delete(object) => Change::Delete(object),
                UpstreamEvent::Unreadable { object, is_deletion } => {
                    Change::Unreadable { object, is_deletion }
                }
                UpstreamEvent::Bookmark { resource_version, object, .. } => {
                    self.cached.learned.learn_bookmark(&object);
                    Change::Progress(resource_version)
                }
                UpstreamEvent::Error(error) => {
                    failure = Some(Failure::from(error));
                    break;
                }
            });
            has_late_event |= place == Place::Late;
        }
        if !changes.is_empty() {
            let context = &self.cached.context;
            if self.cached.lifecycle.is_retiring() {
                // The successor must show nothing older than the watchers are about to see.
                let newest = changes.iter().map(Change::resource_version).max();
                self.cached.gate.raise_floor(newest);
            }
            self.cached.writer.apply(changes, (context.clock.at(received), continues));
            let delay = received.elapsed();
            context.metrics.applied(delay);
            self.cached.series.delayed(delay);
            self.note_readable();
            self.account_state()?;
        }
        if has_late_event {
            self.note_late_event(order);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Asks for a comparison after an event that came too late, which the cache ignores.
    fn note_late_event(&self, order: &mut EventOrder) {
        self.cached.series.checked("order", "different");
        self.cached.findings.suspect();
        if !std::mem::replace(&mut order.is_reported, true) {
            let held = self.held();
            tracing::error!(?held, "an event came after a newer one; the cache is compared");
        }
    }

    fn count_event(&self, event: &UpstreamEvent) {
        let (label, bytes) = match event {
            UpstreamEvent::Upsert(object) => (EventLabel::Upsert, object.body().len()),
            UpstreamEvent::Delete(object) => (EventLabel::Delete, object.body().len()),
            UpstreamEvent::Unreadable { is_deletion: true, .. } => (EventLabel::Delete, 0),
            UpstreamEvent::Unreadable { .. } => (EventLabel::Upsert, 0),
            UpstreamEvent::Bookmark { object, .. } => (EventLabel::Bookmark, object.len()),
            UpstreamEvent::Error(_) => (EventLabel::Error, 0),
        };
        self.cached.series.event(label, bytes);
    }

    /// Whether an event deletes a held object at a resourceVersion that is not newer than the held
    /// one, or than what the watch has `reached`. Another Weir that keeps its streams through a
    /// relist sends so what is gone (`docs/decisions/reflector-failures.md`). The events after it
    /// show no states in between.
    fn was_relisted(&self, deleted: &Object, reached: ResourceVersion) -> bool {
        let Some(held) = self.cached.watch_cache.state() else { return false };
        deleted.resource_version <= held.resource_version().max(reached)
            && held
                .get(&deleted.key)
                .is_some_and(|held| held.resource_version <= deleted.resource_version)
    }

    /// Returns the state after a watch that ended without an error, usually at its time-out: the
    /// next watch follows at once. A watch that ended right after its start counts as a failure
    /// (client-go's "very short watch"). Otherwise an upstream that closes every watch would be
    /// called in a tight loop. After a few in a row the cache lists at once, as client-go does: a
    /// watch of metadata ends so at each start if the API server cannot convert the next object.
    fn ended_cleanly(&mut self, running: &RunningWatch) -> Result<State, Refusal> {
        let next = if running.ends_early() {
            self.resume_after_break()
        } else {
            State::Resuming(Verify::History)
        };
        let begun = running.begun.unwrap_or(running.opened);
        if !running.received_any && begun.elapsed() < SHORT_WATCH {
            self.cached.series.watch_ended("short");
            let text = "the watch ended within a second and without an event".to_owned();
            self.short_watches += 1;
            if self.short_watches > SHORT_WATCHES_MAX {
                self.short_watches = 0;
                return Ok(State::Listing(ListCause::ShortWatches));
            }
            return self.back_off(Failure::Retry(text, None), next);
        }
        self.cached.series.watch_ended("clean");
        self.note_readable();
        tracing::debug!("the watch ended");
        Ok(next)
    }

    /// Returns the state after a watch that failed.
    fn watch_failed(&mut self, failure: Failure) -> Result<State, Refusal> {
        self.cached.series.watch_ended(failure.label());
        if matches!(failure, Failure::Expired) {
            tracing::info!(held = ?self.held(), "the upstream no longer has the events after the held resourceVersion");
            return Ok(self.list_after_expiry(&failure));
        }
        self.back_off(failure, self.resume_after_break())
    }

    /// Returns the state after a 410. The first list follows at once; each further one backs off,
    /// because an upstream may send a 410 to every watch.
    fn list_after_expiry(&mut self, failure: &Failure) -> State {
        let next = State::Listing(ListCause::Expired);
        let (wait, is_repeated) = self.expiries.next(Instant::now(), None);
        if is_repeated { self.wait_before(next, wait, true, failure.cause()) } else { next }
    }

    /// Returns the state after a watch that broke or ended before its time-out. The watch of a
    /// custom resource may have ended because its definition changed; the next watch would then
    /// send events in other bytes than the held ones. The bytes are compared first and not listed
    /// again at once, because after a list the watchers would miss the states in between.
    fn resume_after_break(&self) -> State {
        State::Resuming(match self.cached.resource.shape {
            Shape::Custom => Verify::Bytes,
            Shape::BuiltIn => Verify::History,
        })
    }
}

/// The most events of one step. The writer's lock is held for a few milliseconds, and a watcher
/// reads no long range of events for the few that are its own.
pub(super) const APPLY_MAX: usize = 1_000;
/// The moves to other API servers in a row, before one more waits.
const MOVES_MAX: u32 = 3;
/// A watch that ends earlier than this without an event is client-go's "very short watch".
const SHORT_WATCH: Duration = Duration::from_secs(1);
const SHORT_WATCHES_MAX: u32 = 3;
