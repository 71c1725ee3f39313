//! How a reflector fetches the whole state: by watch-list, page by page, or at an exact resourceVersion.
//!
//! What is gathered is claimed from the byte budget as it grows, and given back when the list is over, however it ends.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::handle::Refusal;
use crate::cache::live::LiveCache;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::watch::{Running, watch_seconds};
use crate::cache::reflector::{Doubt, ListCause, Reflector, State};
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};

impl<L: ListWatch> Reflector<L> {
    /// Fetches the whole state and takes it.
    pub(super) async fn list(&mut self, cause: ListCause) -> Result<State<L::Watch>, Failure> {
        let live = self.live.clone();
        let slots = &live.shared.list_slots;
        let Ok(_slot) = slots.acquire().await else { return Err(Failure::Stop(Refusal::Stopping)) };
        live.series.relist(cause.label());
        self.known = self.held();
        if let Some(next) = self.list_at_first().await {
            return Ok(next);
        }
        let not_older = if self.consistent { None } else { self.known };
        if self.wants_watch_list() {
            match self.watch_list(not_older).await {
                // Not a failure: the upstream has none, and tells so at once (semantics.md §1.5).
                Err(Failure::Invalid(answer)) => {
                    tracing::info!(answer, "the upstream has no watch-list; listing page by page");
                    live.shared.watch_list.lacks();
                }
                listed => return listed,
            }
        }
        self.paged_list(not_older).await
    }

    /// Whether to list by a watch-list: the upstream is not known to lack them, and this resource's did not stay silent just now.
    fn wants_watch_list(&self) -> bool {
        self.live.shared.watch_list.is_worth_trying() && self.silent < SILENT_MAX
    }

    /// A list at exactly the resourceVersion that the first watcher wants to begin at, so that it lies in the history. `None` if the upstream
    /// cannot: the cache then starts as usual.
    async fn list_at_first(&mut self) -> Option<State<L::Watch>> {
        let at = self.begin.at.take()?;
        let live = self.live.clone();
        let mut gathered = Gathered::new(&live);
        let mut pages = 0;
        match self.pages(self.exactly(at), &mut pages, |object| gathered.push(object)).await {
            Ok(listed_at) if listed_at == at => {
                self.commit(gathered.take(), at).ok()?;
                self.learn_watch_list(at).await;
                Some(State::Resuming(Doubt::History))
            }
            Ok(_) => None,
            Err(failure) => {
                tracing::debug!(%at, error = failure.cause(), "no list at a watcher's resourceVersion");
                None
            }
        }
    }

    /// Whether the upstream writes the state that is held in the bytes in which it is held; false also where the upstream can no longer tell. Page
    /// by page, so that it takes no memory to speak of.
    pub(super) async fn is_written_the_same(&self) -> Result<bool, Failure> {
        let Some(held) = self.live.cache.state() else { return Ok(false) };
        let first = self.exactly(held.resource_version());
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

    /// Asks for the state as it was at a resourceVersion.
    fn exactly(&self, at: ResourceVersion) -> ListRequest {
        ListRequest {
            limit: Some(self.live.shared.config.page_size),
            resource_version: Some(at),
            resource_version_match: "Exact",
            ..ListRequest::default()
        }
    }

    /// An exact list does not tell whether the upstream has watch-list, and a cache that serves watches must know (semantics.md §1.4). So one of
    /// no objects is asked for; what does not come soon, a later list will tell.
    async fn learn_watch_list(&self, at: ResourceVersion) {
        let support = &self.live.shared.watch_list;
        if support.is_known() {
            return;
        }
        let request = WatchRequest {
            resource_version: Some(at),
            send_initial_events: true,
            of_nothing: true,
            timeout_seconds: LEARNING_SECONDS,
        };
        let initial = async {
            let mut watch = self.upstream.watch(request).await?;
            while let Some(events) = watch.next().await? {
                let mut nothing = Gathered::new(&self.live);
                if self.gather(&mut events.into_iter(), &mut nothing)?.is_some() {
                    support.works();
                    break;
                }
            }
            Ok::<_, Failure>(())
        };
        match timeout(Duration::from_secs(LEARNING_SECONDS.into()), initial).await {
            Ok(Err(Failure::Invalid(answer))) => {
                tracing::info!(answer, "the upstream has no watch-list");
                support.lacks();
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
        let live = self.live.clone();
        let mut first = ListRequest {
            limit: Some(live.shared.config.page_size),
            resource_version: not_older,
            resource_version_match: if not_older.is_some() { "NotOlderThan" } else { "" },
            ..ListRequest::default()
        };
        let mut gathered = Gathered::new(&live);
        let mut pages = 0;
        let walk = self.pages(first.clone(), &mut pages, |object| gathered.push(object));
        let listed = match walk.await {
            // The revision of the first page was compacted away while the later ones were fetched. All at once cannot expire.
            Err(Failure::Expired) if pages > 0 => {
                tracing::info!("the list expired between its pages; listing all at once");
                gathered.clear();
                first.limit = None;
                self.pages(first, &mut pages, |object| gathered.push(object)).await
            }
            other => other,
        };
        let resource_version = listed?;
        self.commit(gathered.take(), resource_version)?;
        // A list tells no bookmark, so the first watch is a short one, and the probe that verifies it makes the upstream send one.
        let is_known = self.live.template.load().is_some();
        Ok(State::Resuming(if is_known { Doubt::Nothing } else { Doubt::History }))
    }

    /// Fetches all pages of one walk and counts them; returns the resourceVersion that they share.
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
            // Pages of different revisions are no state (semantics.md §3.10).
            if page.resource_version != resource_version {
                return Err(Failure::Expired);
            }
        }
    }

    async fn page(&self, request: ListRequest) -> Result<ListPage, Failure> {
        match timeout(PAGE_TIMEOUT, self.upstream.list(request)).await {
            Ok(listed) => {
                if let Err(UpstreamError::TooLong(_)) = &listed {
                    self.live.shared.metrics.budget_refusal("resource");
                }
                let page = listed?;
                self.learn_warnings();
                Ok(page)
            }
            Err(_elapsed) => Err(UpstreamError::Timeout(PAGE_TIMEOUT).into()),
        }
    }

    /// A watch that begins with the state (KEP-3157). After its initial events it goes on as the reflector's watch, so that
    /// nothing lies between list and watch.
    async fn watch_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State<L::Watch>, Failure> {
        let live = self.live.clone();
        let timeout_seconds = watch_seconds();
        let request = WatchRequest {
            resource_version: not_older,
            send_initial_events: true,
            timeout_seconds,
            ..WatchRequest::default()
        };
        let opening = timeout(PAGE_TIMEOUT, self.upstream.watch(request)).await;
        let mut watch = opening.map_err(|_elapsed| UpstreamError::Timeout(PAGE_TIMEOUT))??;
        self.learn_warnings();
        let opened = Instant::now();
        let mut gathered = Gathered::new(&live);
        loop {
            let next = timeout(SILENCE_MAX, watch.next()).await;
            let Some(events) = next.unwrap_or(Ok(None))? else { return Err(self.silent()) };
            let mut events = events.into_iter();
            if let Some(resource_version) = self.gather(&mut events, &mut gathered)? {
                live.shared.watch_list.works();
                self.commit(gathered.take(), resource_version)?;
                let mut running = Running::new(watch, opened, timeout_seconds);
                running.pending = events.collect();
                return Ok(State::Watching(running));
            }
        }
    }

    /// Takes initial events until their end, whose resourceVersion it returns.
    fn gather(
        &self,
        events: &mut impl Iterator<Item = UpstreamEvent>,
        gathered: &mut Gathered<'_>,
    ) -> Result<Option<ResourceVersion>, Failure> {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) => gathered.push(object)?,
                UpstreamEvent::Delete(object) => gathered.remove(&object),
                UpstreamEvent::Bookmark { resource_version, initial_events_end, object } => {
                    self.learn(&object);
                    if initial_events_end {
                        return Ok(Some(resource_version));
                    }
                }
                UpstreamEvent::Error(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn silent(&self) -> Failure {
        if self.silent + 1 >= SILENT_MAX {
            self.live.shared.watch_list.seems_to_lack();
        }
        Failure::Silent
    }
}

/// The objects of a list under way.
struct Gathered<'a> {
    live: &'a LiveCache,
    objects: Vec<Object>,
    weight: usize,
}

impl<'a> Gathered<'a> {
    fn new(live: &'a LiveCache) -> Self {
        Self { live, objects: Vec::new(), weight: 0 }
    }

    /// Takes an object, if the budgets have room for it.
    fn push(&mut self, object: Object) -> Result<(), Failure> {
        self.weight += object.weight();
        self.objects.push(object);
        self.live.account.set_listing(self.weight);
        let budget = if self.live.account.is_too_heavy(self.weight) {
            "resource"
        } else if self.live.shared.budget.excess() > OVERDRAFT_BYTES {
            "total"
        } else {
            return Ok(());
        };
        self.live.shared.metrics.budget_refusal(budget);
        Err(Failure::Stop(Refusal::OverBudget))
    }

    /// Not sent by any known upstream before the end of initial events; client-go allows for it, and so do we.
    fn remove(&mut self, deleted: &Object) {
        self.objects.retain(|object| object.key != deleted.key);
    }

    fn take(&mut self) -> Vec<Object> {
        std::mem::take(&mut self.objects)
    }

    fn clear(&mut self) {
        self.weight = 0;
        self.objects.clear();
        self.live.account.set_listing(0);
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.live.account.set_listing(0);
    }
}

/// The upstream ends a list after 60 s itself (`--request-timeout`); what takes longer is stuck on the way.
pub(super) const PAGE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a watch-list may send nothing before the end of its initial events. The upstream waits three seconds for its own cache
/// (semantics.md §2.1).
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long an upstream may take to tell whether it has watch-list; its own cache waits for up to three seconds.
const LEARNING_SECONDS: u32 = 5;
/// So many watch-lists of one resource without an end, and it is listed page by page.
const SILENT_MAX: u32 = 2;
/// A walk ends at some time: five million objects at the default page size.
const PAGES_MAX: usize = 10_000;
/// How far a list may exceed the total budget before it is given up: the registry needs a moment to stop idle caches first.
const OVERDRAFT_BYTES: usize = 16 * 1024 * 1024;
