//! How a reflector fetches the whole state: by a streamed list, by a watch-list, page by page, or
//! at an exact resourceVersion.
//!
//! In JSON an upstream takes a third longer for a watch-list than for a list
//! (`docs/decisions/json-lists.md`). So a list is requested where it costs the upstream no more
//! memory ([`ListWatch::streams_lists`]). No event can be lost between a list and its watch,
//! because the watch begins at the resourceVersion of the list.
//!
//! Objects are collected within the byte budgets ([`ListAccumulator`]).

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::probe::RESPONSE_TIMEOUT;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::running_watch::{RunningWatch, random_timeout_seconds};
use crate::cache::reflector::state::{ListCause, State, Verify};
use crate::cache::refusal::Refusal;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};

impl<L: ListWatch> Driver<L> {
    /// Fetches the whole state and commits it.
    pub(super) async fn list(&mut self, cause: ListCause) -> Result<State<L::Watch>, Failure> {
        let cached = self.cached.clone();
        let slots = &cached.context.list_slots;
        let Ok(_slot) = slots.acquire().await else { return Err(Failure::Stop(Refusal::Stopping)) };
        cached.series.relist(cause.label());
        self.held_at_list_start = self.held();
        if let Some(next) = self.list_at_requested().await {
            return Ok(next);
        }
        let not_older = if self.lists.consistent { None } else { self.held_at_list_start };
        if self.upstream.streams_lists() && !self.lists.stream_failed {
            let listed = self.streamed_list(not_older).await;
            self.lists.stream_failed =
                listed.as_ref().is_err_and(|error| !matches!(error, Failure::TooLarge));
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

    /// Lists at exactly the resourceVersion from which the first watcher wants to begin, so that it
    /// is in the history. Returns `None` if the upstream cannot; the cache then starts as usual.
    async fn list_at_requested(&mut self) -> Option<State<L::Watch>> {
        let at = self.options.list_at.take()?;
        let cached = self.cached.clone();
        let mut accumulator = ListAccumulator::new(&cached.account, &cached.context);
        let mut pages = 0;
        match self.pages(self.exact_list(at), &mut pages, |object| accumulator.push(object)).await {
            Ok(listed_at) if listed_at == at => {
                self.commit(accumulator.take(), at).ok()?;
                // Otherwise the first watch, which is then a short one, brings a bookmark to learn
                // from.
                if !cached.context.watch_list.is_known() {
                    self.learn_bookmark(at).await;
                }
                Some(State::Resuming(Verify::History))
            }
            Ok(_) => None,
            Err(failure) => {
                tracing::debug!(%at, error = failure.cause(), "no list at a watcher's resourceVersion");
                None
            }
        }
    }

    /// Whether the upstream writes the held state in the held bytes. Returns false also if the
    /// upstream no longer has that state. Reads page by page, so that it takes little memory.
    pub(super) async fn has_same_bytes_upstream(&self) -> Result<bool, Failure> {
        let Some(held) = self.cached.watch_cache.state() else { return Ok(false) };
        let first = self.exact_list(held.resource_version());
        let (mut pages, mut same, mut others) = (0, 0, 0);
        let compare = |object: Object| {
            let is_held = held.get(&object.key).is_some_and(|held| {
                held.resource_version == object.resource_version && held.body == object.body
            });
            if is_held {
                same += 1
            } else {
                others += 1
            }
            Ok(())
        };
        match self.pages(first, &mut pages, compare).await {
            Ok(listed_at) => {
                Ok(listed_at == held.resource_version() && others == 0 && same == held.len())
            }
            Err(Failure::Expired | Failure::Invalid(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns a request for the state at exactly `at`.
    fn exact_list(&self, at: ResourceVersion) -> ListRequest {
        ListRequest {
            limit: Some(self.cached.context.config.page_size),
            resource_version: Some(at),
            resource_version_match: "Exact",
            ..ListRequest::default()
        }
    }

    /// Learns whether the upstream has watch-lists, and the form of a bookmark, by a watch-list of
    /// no objects from `at` or later.
    ///
    /// A list shows neither, and a cache that serves watches needs both (`docs/semantics.md` §1.4).
    /// If the response takes too long, a later list or watch shows them.
    async fn learn_bookmark(&self, at: ResourceVersion) {
        let support = &self.cached.context.watch_list;
        let is_all_known = support.is_known() && self.cached.learned.has_bookmark();
        if is_all_known || !support.is_worth_trying() {
            return;
        }
        let request = WatchRequest {
            resource_version: Some(at),
            send_initial_events: true,
            match_nothing: true,
            timeout_seconds: LEARNING_WATCH_SECONDS,
        };
        let initial = async {
            let mut watch = self.upstream.watch(request).await?;
            while let Some(events) = watch.next().await? {
                let mut nothing = ListAccumulator::new(&self.cached.account, &self.cached.context);
                if self.read_initial_events(&mut events.into_iter(), &mut nothing)?.is_some() {
                    support.set_supported();
                    break;
                }
            }
            Ok::<_, Failure>(())
        };
        match timeout(Duration::from_secs(LEARNING_WATCH_SECONDS.into()), initial).await {
            Ok(Err(Failure::Invalid(answer))) => {
                tracing::info!(answer, "the upstream has no watch-list");
                support.set_unsupported();
            }
            Ok(Err(failure)) => {
                tracing::debug!(
                    error = failure.cause(),
                    "whether the upstream has watch-list is not known yet"
                );
            }
            Ok(Ok(())) | Err(_) => {}
        }
    }

    async fn paged_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State<L::Watch>, Failure> {
        let cached = self.cached.clone();
        let mut first = ListRequest::not_older(not_older);
        first.limit = Some(cached.context.config.page_size);
        let mut accumulator = ListAccumulator::new(&cached.account, &cached.context);
        let mut pages = 0;
        let walk = self.pages(first.clone(), &mut pages, |object| accumulator.push(object));
        let listed = match walk.await {
            // The resourceVersion of the first page was compacted before the last page was fetched.
            // A list without pages cannot expire.
            Err(Failure::Expired) if pages > 0 => {
                tracing::info!("the list expired between its pages; listing all at once");
                accumulator.clear();
                first.limit = None;
                self.pages(first, &mut pages, |object| accumulator.push(object)).await
            }
            other => other,
        };
        let resource_version = listed?;
        self.commit(accumulator.take(), resource_version)?;
        Ok(self.resume_after_list())
    }

    /// Returns the state after a list without a watch. A list contains no bookmark. While the form
    /// of a bookmark is unknown the first watch is a short one, and the probe that verifies it
    /// makes the upstream send a bookmark.
    fn resume_after_list(&self) -> State<L::Watch> {
        let is_known = self.cached.learned.has_bookmark();
        State::Resuming(if is_known { Verify::None } else { Verify::History })
    }

    /// Fetches all pages that begin with `first`, and counts them in `pages`. Returns the
    /// resourceVersion that they share.
    async fn pages(
        &self,
        first: ListRequest,
        pages: &mut usize,
        mut take: impl FnMut(Object) -> Result<(), Failure>,
    ) -> Result<ResourceVersion, Failure> {
        *pages = 0;
        let limit = first.limit;
        let mut page = self.page(first).await?;
        let resource_version = page.resource_version;
        loop {
            *pages += 1;
            for object in page.objects {
                take(object)?;
            }
            if page.continue_token.is_empty() {
                return Ok(resource_version);
            }
            if *pages >= PAGES_MAX {
                return Err(Failure::Malformed("a list of endless pages".to_owned()));
            }
            let continue_token = page.continue_token;
            page =
                self.page(ListRequest { limit, continue_token, ..ListRequest::default() }).await?;
            // Pages of different resourceVersions are not one state (`docs/semantics.md` §3.10).
            if page.resource_version != resource_version {
                return Err(Failure::Expired);
            }
        }
    }

    async fn page(&self, request: ListRequest) -> Result<ListPage, Failure> {
        let listed = with_timeout(RESPONSE_TIMEOUT, self.upstream.list(request)).await;
        if let Err(UpstreamError::TooLong(_)) = &listed {
            self.cached.context.metrics.budget_refusal("resource");
        }
        let page = listed?;
        self.learn_warnings();
        Ok(page)
    }

    /// Lists without pages and reads the objects as they arrive. At the same time a watch-list of
    /// no objects shows what the list does not, because a request that waits for the cache may be a
    /// watch.
    async fn streamed_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State<L::Watch>, Failure> {
        let cached = self.cached.clone();
        let mut accumulator = ListAccumulator::new(&cached.account, &cached.context);
        let learned = async {
            self.learn_bookmark(ResourceVersion::default()).await;
            Ok(())
        };
        let (at, ()) = tokio::try_join!(self.stream(not_older, &mut accumulator), learned)?;
        self.commit(accumulator.take(), at)?;
        Ok(self.resume_after_list())
    }

    /// Collects the objects of a streamed list, and returns its resourceVersion.
    async fn stream(
        &self,
        not_older: Option<ResourceVersion>,
        accumulator: &mut ListAccumulator<'_>,
    ) -> Result<ResourceVersion, Failure> {
        let request = ListRequest::not_older(not_older);
        let mut objects =
            with_timeout(RESPONSE_TIMEOUT, self.upstream.stream_list(request)).await?;
        self.learn_warnings();
        loop {
            let Some(events) = with_timeout(SILENCE_TIMEOUT, objects.next()).await? else {
                return Err(UpstreamError::Lost("a list without an end".to_owned()).into());
            };
            if let Some(at) = self.read_initial_events(&mut events.into_iter(), accumulator)? {
                return Ok(at);
            }
        }
    }

    /// Lists by a watch that begins with the state (KEP-3157). After its initial events it
    /// continues as the reflector's watch, so that no event can be lost between list and watch.
    async fn watch_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State<L::Watch>, Failure> {
        let cached = self.cached.clone();
        let timeout_seconds = random_timeout_seconds();
        let request = WatchRequest {
            resource_version: not_older,
            send_initial_events: true,
            timeout_seconds,
            ..WatchRequest::default()
        };
        let mut watch = with_timeout(RESPONSE_TIMEOUT, self.upstream.watch(request)).await?;
        self.learn_warnings();
        let opened = Instant::now();
        let mut accumulator = ListAccumulator::new(&cached.account, &cached.context);
        loop {
            let next = timeout(SILENCE_TIMEOUT, watch.next()).await;
            let Some(events) = next.unwrap_or(Ok(None))? else {
                return Err(self.silent_watch_list());
            };
            let mut events = events.into_iter();
            if let Some(resource_version) =
                self.read_initial_events(&mut events, &mut accumulator)?
            {
                cached.context.watch_list.set_supported();
                self.commit(accumulator.take(), resource_version)?;
                let mut running = RunningWatch::new(watch, opened, timeout_seconds);
                running.pending = events.collect();
                return Ok(State::Watching(running));
            }
        }
    }

    /// Collects initial events. Returns their resourceVersion once they have ended.
    fn read_initial_events(
        &self,
        events: &mut impl Iterator<Item = UpstreamEvent>,
        accumulator: &mut ListAccumulator<'_>,
    ) -> Result<Option<ResourceVersion>, Failure> {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) => accumulator.push(object)?,
                UpstreamEvent::Delete(object) => accumulator.remove(&object),
                UpstreamEvent::Bookmark { resource_version, initial_events_end, object } => {
                    self.cached.learned.learn_bookmark(&object);
                    if initial_events_end {
                        return Ok(Some(resource_version));
                    }
                }
                UpstreamEvent::Error(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn silent_watch_list(&self) -> Failure {
        if self.lists.is_last_watch_list() {
            self.cached.context.watch_list.presume_unsupported();
        }
        Failure::Silent
    }
}

/// The longest silence of a list that is read as it arrives, or of a watch-list before the end of
/// its initial events. The upstream waits at most three seconds for its own cache
/// (`docs/semantics.md` §2.1).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time-out in seconds of a watch-list of no objects. The upstream waits at most three seconds
/// for its own cache.
const LEARNING_WATCH_SECONDS: u32 = 5;
/// The largest number of pages of a list: five million objects at the default page size.
const PAGES_MAX: usize = 10_000;
