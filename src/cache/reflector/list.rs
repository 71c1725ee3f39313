//! How a reflector fetches the whole state: by a streamed list, by a watch-list, page by page, or
//! at an exact resourceVersion.
//!
//! In JSON an upstream takes a third longer for a watch-list than for a list
//! (`docs/decisions/filling-caches.md`). So a list is requested where it costs the upstream no more
//! memory (`ListWatch::streams_lists`). No event can be lost between a list and its watch,
//! because the watch begins at the resourceVersion of the list.
//!
//! Objects are collected within the byte budgets ([`ListAccumulator`]).

mod paged;
mod streamed;

use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::cache::backfill::GATHER_DURATION;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::list_span::ListSpan;
use crate::cache::reflector::state::{ListCause, State, Verify};
use crate::cache::refusal::Refusal;
use crate::codec::ingest::Ingested;
use crate::upstream::lister_watcher::ListRequest;

impl Driver {
    /// Fetches the whole state and commits it.
    pub(super) async fn list(&mut self, cause: ListCause) -> Result<State, Failure> {
        let cached = self.cached.clone();
        if self.options.list_at.is_some() {
            // The others of a crowd of watchers arrive within a moment.
            tokio::time::sleep(GATHER_DURATION).await;
        }
        let slots = cached.context.list_slots_of(&cached.key);
        let Ok(_slot) = slots.acquire().await else { return Err(Failure::Stop(Refusal::Stopping)) };
        cached.series.relist(cause.label());
        self.note_relist(cause);
        let began = Instant::now();
        let mut span = ListSpan::begin(&cached, cause.label());
        let _listing = cached.writer.begin_list();
        self.floor_at_list_start = cached.gate.floor();
        if let Some(next) = self.list_at_requested().await {
            cached.note_filled(cause.label(), began.elapsed());
            span.succeed();
            return Ok(next);
        }
        // Without a held state the list is consistent, which is never below the floor.
        let needs_consistent = self.held().is_none() || cached.gate.needs_consistent_list();
        let is_consistent = self.lists.consistent || needs_consistent;
        let not_older = if is_consistent { None } else { self.floor_at_list_start };
        let listed = self.list_not_older(not_older).await;
        if listed.is_ok() {
            cached.note_filled(cause.label(), began.elapsed());
            span.succeed();
        }
        if listed.is_ok() && not_older.is_none() {
            cached.gate.settle(true);
        }
        listed
    }

    async fn list_not_older(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State, Failure> {
        let cached = self.cached.clone();
        if self.cached.upstream.streams_lists() && !self.lists.stream_failed {
            let listed = self.streamed_list(not_older).await;
            self.lists.stream_failed = listed
                .as_ref()
                .is_err_and(|error| !matches!(error, Failure::TooLarge | Failure::Refused(..)));
            return listed;
        }
        if cached.context.watch_list.is_worth_trying() && self.lists.may_watch_list() {
            match self.watch_list(not_older).await {
                // Not a failure: the upstream has no watch-lists and rejects one at once
                // (`docs/semantics.md` §1.5).
                Err(Failure::Invalid(answer)) => {
                    tracing::info!(answer, "the upstream has no watch-list; listing page by page");
                    cached.context.watch_list.set_unsupported();
                }
                listed => return listed,
            }
        }
        self.paged_list(not_older).await
    }

    /// Lists at exactly the lowest resourceVersion from which one of the first watchers wants to
    /// begin, so that all of them are in the history. Returns `None` if the upstream cannot; the
    /// cache then starts as usual.
    async fn list_at_requested(&mut self) -> Option<State> {
        let first = self.options.list_at.take()?;
        let at = self.cached.lifecycle.lowest_start().min(first);
        match self.list_and_watch_at(at).await {
            Ok(next) => Some(next),
            Err(failure) => {
                tracing::debug!(%at, error = failure.cause(), "no list at a watcher's resourceVersion");
                None
            }
        }
    }

    /// Lists at exactly `at`, after a watch from there has begun: an API server may show a state
    /// and no longer have the events after it. A list that follows such a state would refuse the
    /// watchers between the two with 410.
    async fn list_and_watch_at(&mut self, at: ResourceVersion) -> Result<State, Failure> {
        let mut running = self.open_watch(at).await?;
        let cached = self.cached.clone();
        let mut accumulator = ListAccumulator::new(&cached);
        if self.exact_objects(at, &mut accumulator).await? != at {
            return Err(Failure::Expired);
        }
        running.read_ahead()?;
        self.commit(accumulator.take(), at).await?;
        let verify = if self.byte_checks.are_due() { Verify::Bytes } else { Verify::History };
        Ok(State::Verifying(running, verify))
    }

    /// Collects the objects at exactly `at`: in one stream where the upstream can, since a large
    /// collection has hundreds of pages. Returns the resourceVersion of the list.
    async fn exact_objects(
        &self,
        at: ResourceVersion,
        accumulator: &mut ListAccumulator<'_>,
    ) -> Result<ResourceVersion, Failure> {
        if self.cached.upstream.streams_lists() && !self.lists.stream_failed {
            let whole = ListRequest { limit: None, ..self.exact_list(at) };
            match self.stream(whole, accumulator).await {
                Err(Failure::Retry(..) | Failure::Malformed(_)) => accumulator.clear(),
                listed => return listed,
            }
        }
        self.pages(self.exact_list(at), &mut 0, |object| accumulator.push(object)).await
    }

    /// Whether the upstream writes the held state in the held bytes. Returns false also if the
    /// upstream no longer has that state. Reads page by page, so that it takes little memory.
    pub(super) async fn has_same_bytes_upstream(&self) -> Result<bool, Failure> {
        let Some(held) = self.cached.watch_cache.state() else { return Ok(false) };
        let first = self.exact_list(held.resource_version());
        let (mut pages, mut same, mut different, mut unreadable) = (0, 0, 0, 0);
        let compare = |object| {
            match object {
                Ingested::Object(object) if held.store().equal(&object).is_some() => same += 1,
                Ingested::Object(_) => different += 1,
                Ingested::Unreadable(_) => unreadable += 1,
            }
            Ok(())
        };
        match self.pages(first, &mut pages, compare).await {
            Ok(listed_at) => {
                let is_all = same == held.len() && unreadable == held.unreadable().len();
                Ok(listed_at == held.resource_version() && different == 0 && is_all)
            }
            Err(Failure::Expired | Failure::Invalid(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns a request for the state at exactly `at`.
    fn exact_list(&self, at: ResourceVersion) -> ListRequest {
        ListRequest {
            limit: Some(self.cached.context.seams.page_size),
            resource_version: Some(at),
            resource_version_match: "Exact",
            ..ListRequest::default()
        }
    }
}
