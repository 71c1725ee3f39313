//! The answers that a cache would have given at one resourceVersion: the one at which the upstream
//! has answered the same read. They are compared with the upstream's, and no client gets them.
//!
//! The answers are made by the code that makes them for clients, so that all of it is compared.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::snapshot::{PageRange, Snapshot};
use crate::cache::core::watch_cache::{Now, State, WatchRefusal};
use crate::cache::core::watcher::Watcher;
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::codec::object::{Key, Object};
use crate::server::cached::read::CachedRead;
use crate::server::cached::respond::not_found;
use crate::server::cached::{get, list};
use crate::server::delegate::{ListPlan, ReadAt, Reason};
use crate::server::http::body::Body;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    Forwards(Reason),
    Late,
    /// The history does not go back to it.
    BeforeCache,
}

#[derive(Debug)]
pub(crate) struct StateAnswer {
    pub(crate) response: Response<Body>,
    /// Why a cache would have forwarded the read all the same.
    pub(crate) forwards: Option<Reason>,
}

pub(crate) async fn list_at(
    read: &CachedRead<'_>,
    plan: &ListPlan,
    at: ResourceVersion,
    permits: &Semaphore,
) -> Result<StateAnswer, NoAnswer> {
    let forwards = plan.clone().for_target(&read.target, read.resource).err();
    if let Some(reason) =
        forwards.filter(|reason| !matches!(reason, Reason::Consistent | Reason::Latest))
    {
        return Err(NoAnswer::Forwards(reason));
    }
    cache_at(read, at, permits).await?;
    let plan = ListPlan { read_at: ReadAt::Exact(at), collection_only: false, ..plan.clone() };
    match list::serve(read, plan).await {
        Ok(response) => Ok(StateAnswer { response, forwards }),
        Err(Reason::Exact | Reason::Continue) => Err(NoAnswer::BeforeCache),
        Err(reason) => Err(NoAnswer::Forwards(reason)),
    }
}

/// Returns the object of a GET as it was at `at`, its own resourceVersion.
pub(crate) async fn get_at(
    read: &CachedRead<'_>,
    at: ResourceVersion,
    permits: &Semaphore,
) -> Result<StateAnswer, NoAnswer> {
    let handle = cache_at(read, at, permits).await?;
    let object = version_of(&handle, &key_of(read), at).ok_or(NoAnswer::BeforeCache)?;
    let response = get::respond_with(read, &handle, &object).map_err(NoAnswer::Forwards)?;
    Ok(StateAnswer { response, forwards: None })
}

/// Returns the 404 of a GET, if the object was absent at some moment since `since`; the object
/// otherwise.
pub(crate) async fn absent_since(
    read: &CachedRead<'_>,
    since: Instant,
    permits: &Semaphore,
) -> Result<StateAnswer, NoAnswer> {
    let handle = read.ready_cache().await.map_err(NoAnswer::Forwards)?;
    let is_new = handle.began_after(since);
    let (key, since) = (key_of(read), read.services.registry.history_time(since));
    if !was_absent(&handle, &key, since) {
        // Its deletion may be on its way.
        let upstream = handle.upstream_resource_version(WAIT_MAX).await;
        reach(&handle, upstream.map_err(|_| NoAnswer::Late)?, permits).await?;
    }
    let object = handle.newest_state().and_then(|state| state.get(&key));
    let object = object.filter(|_| !was_absent(&handle, &key, since));
    if is_new && object.is_some() {
        // It may have been created before the cache began.
        return Err(NoAnswer::BeforeCache);
    }
    let is_unreadable = |state: &Arc<State>| state.unreadable().may_have(&key);
    let response = match object {
        Some(object) => get::respond_with(read, &handle, &object),
        None if handle.newest_state().as_ref().is_some_and(is_unreadable) => {
            Err(Reason::Unreadable)
        }
        None => not_found(read, &handle),
    };
    let response = response.map_err(NoAnswer::Forwards)?;
    Ok(StateAnswer { response, forwards: None })
}

/// Returns the objects that a watch from the state at `at` begins with, in order.
pub(crate) async fn start_at(
    read: &CachedRead<'_>,
    at: ResourceVersion,
    permits: &Semaphore,
) -> Result<Vec<Arc<Object>>, NoAnswer> {
    let handle = cache_at(read, at, permits).await?;
    let state = handle.cache().state().ok_or(NoAnswer::BeforeCache)?;
    if !state.covers_since(&read.target.filter, at) {
        return Err(NoAnswer::Forwards(Reason::Unreadable));
    }
    let snapshot = Snapshot::at(&state, at).ok_or(NoAnswer::BeforeCache)?;
    Ok(snapshot.page(&read.target.filter, &PageRange::default()).objects)
}

/// Starts the cache of a watch whose start is to be compared once its end is known.
pub(crate) async fn begin(read: &CachedRead<'_>) -> Option<CacheHandle> {
    read.counts_shard().await.ok()?;
    read.begun_cache(None).await.ok()
}

/// Opens a watch of the cache after `after`, where the upstream's watch begins. The cache begins
/// there if it starts now, as for a client's watch.
pub(crate) async fn follow_from(
    read: &CachedRead<'_>,
    after: ResourceVersion,
) -> Result<(CacheHandle, Watcher), NoAnswer> {
    read.counts_shard().await.map_err(NoAnswer::Forwards)?;
    let handle = read.begun_cache(Some(after)).await.map_err(|reason| match reason {
        Reason::Refused(Refusal::NotReady) => NoAnswer::Late,
        reason => NoAnswer::Forwards(reason),
    })?;
    let watcher = handle.watch_after(read.target.filter.clone(), after, WAIT_MAX).await;
    let watcher = watcher.map_err(|refusal| match refusal {
        WatchRefusal::Unreadable => NoAnswer::Forwards(Reason::Unreadable),
        WatchRefusal::NotReady | WatchRefusal::Expired { .. } => NoAnswer::BeforeCache,
    })?;
    Ok((handle, watcher))
}

/// Returns one version of an object, if the cache still has it.
fn version_of(handle: &CacheHandle, key: &Key, at: ResourceVersion) -> Option<Arc<Object>> {
    let state = handle.newest_state()?;
    let is_it = |object: &Arc<Object>| object.key == *key && object.resource_version == at;
    if let Some(object) = state.get(key).filter(is_it) {
        return Some(object);
    }
    let state = handle.cache().state()?;
    let history = state.history();
    let mut previous_object = None;
    for (_, event) in history.events(history.first_seq(), history.end_seq()) {
        let previous = event.previous().filter(|object| is_it(object));
        let object = Some(event.object()).filter(|object| is_it(object) && !event.is_deletion());
        previous_object = previous_object.or_else(|| object.or(previous).cloned());
    }
    previous_object
}

/// Returns the cache once it has every change up to `at`.
async fn cache_at(
    read: &CachedRead<'_>,
    at: ResourceVersion,
    permits: &Semaphore,
) -> Result<CacheHandle, NoAnswer> {
    let handle = read.ready_cache().await.map_err(|reason| match reason {
        Reason::Refused(Refusal::NotReady) => NoAnswer::Late,
        reason => NoAnswer::Forwards(reason),
    })?;
    reach(&handle, at, permits).await?;
    Ok(handle)
}

/// Waits for the cache. If nothing changes, no event shows how far it is; then a short watch does.
async fn reach(
    handle: &CacheHandle,
    at: ResourceVersion,
    permits: &Semaphore,
) -> Result<(), NoAnswer> {
    let deadline = Instant::now() + WAIT_MAX;
    if handle.wait_until_fresh(at, QUIET_AFTER).await.is_ok() {
        return Ok(());
    }
    let left = || deadline.saturating_duration_since(Instant::now());
    let asked = async {
        let Ok(_permit) = permits.acquire().await else { return };
        // Another comparison may have asked meanwhile.
        if handle.wait_until_fresh(at, Duration::ZERO).await.is_err() {
            handle.is_current(left()).await;
        }
    };
    let fresh = handle.wait_until_fresh(at, left());
    let (mut asked, mut fresh) = (pin!(asked), pin!(fresh));
    let reached = tokio::select! {
        biased;
        reached = &mut fresh => reached,
        () = &mut asked => fresh.await,
    };
    reached.map_err(|_| NoAnswer::Late)
}

/// Whether an object was absent at some moment that the cache has seen since `since`.
fn was_absent(handle: &CacheHandle, key: &Key, since: Now) -> bool {
    let Some(state) = handle.newest_state() else { return false };
    if state.get(key).is_none() {
        return true;
    }
    let history = state.history();
    let mut events = history.events(history.first_seq(), history.end_seq());
    events.any(|(_, event)| {
        let is_change = event.is_deletion() || event.previous().is_none();
        event.object().key == *key && is_change && event.received() >= since
    })
}

fn key_of(read: &CachedRead<'_>) -> Key {
    let namespace = read.target.filter.namespace.as_deref().unwrap_or_default();
    Key::new(namespace, &read.request.name)
}

pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// Events of a busy resource come sooner.
const QUIET_AFTER: Duration = Duration::from_millis(500);
