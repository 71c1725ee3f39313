//! Keeps Weir's copy of one RBAC resource equal to the upstream, by a watcher of Weir's own cache
//! of it.
//!
//! An event is applied as soon as the cache receives it, so a revocation takes effect then. The
//! copy is valid while it can be shown that the cache receives every event. There are two kinds of
//! silence:
//!
//! * A watch that is known to be closed invalidates the copy, unless it is reopened quickly.
//!   Watches reach their time-out every few minutes, and reopening one takes milliseconds. After a
//!   longer gap the copy must be verified again.
//! * An open but silent watch may be dead unnoticed. Any event or bookmark shows that it is
//!   alive. After ten seconds of silence a second, short watch asks whether anything is missing
//!   ([`CacheHandle::is_current`]). The authorizer of the API server that answers has the same
//!   information: it follows roles and bindings by watches of the same cache.
//!
//! If the cache stops, is replaced by a new list, or overtakes the watcher, the feed starts a new
//! watch. Until that has delivered the whole state, the old copy is invalid; then it is replaced in
//! one step. The handle that the feed holds keeps the cache from being stopped as idle.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::resource::Representation;
use crate::auth::rbac::index::ObjectKey;
use crate::auth::rbac::policy::Policy;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::state::RbacState;
use crate::cache::core::event::Event;
use crate::cache::core::watch_cache::State;
use crate::cache::core::watcher::{ObjectBatch, WatchStart, Watcher};
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::codec::object::Object;

/// Follows one resource until the registry stops or the task is dropped.
pub(super) async fn feed(state: Arc<RbacState>, registry: Registry, resource: RbacResource) {
    let mut logged = None;
    loop {
        let ready = registry.ready(&resource.gvr(), "", Representation::Json, READY_TIMEOUT).await;
        match ready {
            Ok(handle) => {
                logged = None;
                Feed::new(&state, resource, &handle).follow().await;
                state.set_valid_until(resource, None);
                tracing::debug!(resource = resource.as_str(), "starting a new watch");
            }
            Err(Refusal::Stopping) => return,
            // This may change: the upstream was down, or a permission was missing.
            Err(refusal) if logged != Some(refusal) => {
                let (resource, reason) = (resource.as_str(), refusal.as_str());
                tracing::warn!(
                    resource,
                    reason,
                    "cannot decide by the cluster's roles and bindings"
                );
                logged = Some(refusal);
            }
            Err(_) => {}
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Follows one cache.
struct Feed<'a> {
    state: &'a RbacState,
    resource: RbacResource,
    handle: &'a CacheHandle,
    /// The latest time as of which the copy is known to be complete; `None` before the first
    /// verification.
    verified_at: Option<Instant>,
    /// Since when the upstream's watch is closed.
    closed_since: Option<Instant>,
    /// When the last verification started.
    verification_started: Option<Instant>,
}

impl<'a> Feed<'a> {
    fn new(state: &'a RbacState, resource: RbacResource, handle: &'a CacheHandle) -> Self {
        let (verified_at, closed_since, verification_started) = (None, None, None);
        Self { state, resource, handle, verified_at, closed_since, verification_started }
    }

    /// Applies events until the watcher has ended.
    async fn follow(mut self) {
        let cache = self.handle.cache();
        let Ok(mut watcher) = cache.follow(WatchStart::InitialEvents) else { return };
        let (mut progress, mut watching) = (cache.progress(), self.handle.watching());
        let mut verification = pin!(Fuse::terminated());
        while self.drain(&mut watcher).await {
            if self.reopened_after_gap(*watching.borrow_and_update()) {
                // A verification from before the gap does not cover it.
                verification.set(Fuse::terminated());
            }
            self.state.set_valid_until(self.resource, self.valid_until());
            tokio::select! {
                biased;
                () = watcher.until_woken() => {}
                Ok(()) = progress.changed() => {
                    self.verified_at = self.verified_at.map(|_| Instant::now());
                }
                Ok(()) = watching.changed() => {}
                is_current = verification.as_mut() => if is_current {
                    self.verified_at = self.verified_at.max(self.verification_started);
                },
                () = sleep_until(self.verify_at()),
                    if self.closed_since.is_none() && verification.is_terminated() =>
                {
                    self.verification_started = Some(Instant::now());
                    verification.set(self.handle.is_current(VERIFY_TIMEOUT).fuse());
                }
            }
        }
    }

    /// Notes whether the upstream's watch is open. Returns true if it was reopened after a gap in
    /// which events may have been missed; the copy must then be verified again.
    fn reopened_after_gap(&mut self, is_open: bool) -> bool {
        let now = Instant::now();
        if !is_open {
            self.closed_since.get_or_insert(now);
            return false;
        }
        let closed_since = self.closed_since.take();
        let has_gap = closed_since.is_some_and(|since| now.duration_since(since) > REOPEN_MAX);
        if has_gap {
            (self.verified_at, self.verification_started) = (None, None);
        }
        has_gap
    }

    /// Returns until when the copy is valid.
    fn valid_until(&self) -> Option<Instant> {
        let until = self.verified_at? + VALIDITY;
        Some(self.closed_since.map_or(until, |since| until.min(since + REOPEN_MAX)))
    }

    /// Returns when to start the next verification.
    fn verify_at(&self) -> Instant {
        let after_silence = self.verified_at.map(|at| at + VERIFY_AFTER);
        let retry = self.verification_started.map(|started| started + VERIFY_RETRY);
        after_silence.max(retry).unwrap_or_else(Instant::now)
    }

    /// Applies everything that the watcher has. Returns false once the watcher has ended.
    async fn drain(&self, watcher: &mut Watcher) -> bool {
        loop {
            match watcher.next_objects() {
                ObjectBatch::State(state) => self.replace(&state).await,
                ObjectBatch::Events(events) => self.apply(&events),
                ObjectBatch::Idle => return true,
                ObjectBatch::Ended(_) => return false,
            }
        }
    }

    /// Replaces the copy in one step. The objects are parsed before, while the old copy is
    /// unchanged.
    async fn replace(&self, state: &State) {
        let mut objects = HashMap::with_capacity(state.len());
        for (count, object) in state.store().iter().enumerate() {
            objects.insert(key(object), self.read(object));
            if count % READ_BATCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        self.state.change(self.resource, |writer| writer.replace(self.resource, objects));
    }

    fn apply(&self, events: &[Arc<Event>]) {
        self.state.change(self.resource, |writer| {
            for event in events {
                let object = event.object();
                if event.is_deletion() {
                    writer.remove(self.resource, object.key.namespace(), object.key.name());
                } else {
                    writer.put_policy(self.resource, key(object), self.read(object));
                }
            }
        });
    }

    fn read(&self, object: &Object) -> Policy {
        let policy = Policy::parse(self.resource, object.key.namespace(), object.body());
        if policy == Policy::Unreadable {
            let resource = self.resource.as_str();
            // Names of bindings are for those who may read them, so only the debug log has them.
            tracing::warn!(resource, "an RBAC object cannot be read and grants nothing");
            tracing::debug!(resource, object = ?object.key, "the RBAC object that cannot be read");
        }
        policy
    }
}

fn key(object: &Object) -> ObjectKey {
    (object.key.namespace().into(), object.key.name().into())
}

/// How long to wait for a cache to become ready before asking again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a cache that stopped or was refused is asked for again. The registry caches
/// refusals, so this costs the upstream nothing.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long the copy is valid after the last sign that the cache receives every event.
const VALIDITY: Duration = Duration::from_secs(30);
/// How long the watch may be closed between its time-out and the next watch. A probe and the new
/// watch take about ten milliseconds.
const REOPEN_MAX: Duration = Duration::from_secs(1);
/// How long the watch may be silent before a verification. This leaves time for two verifications
/// within [`VALIDITY`].
const VERIFY_AFTER: Duration = Duration::from_secs(10);
/// The delay between the starts of two verifications.
const VERIFY_RETRY: Duration = Duration::from_secs(10);
/// A short watch lasts three seconds, and may have to wait for a connection.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(8);
/// Objects parsed before yielding to other tasks, which takes about a millisecond.
const READ_BATCH: usize = 256;

#[cfg(test)]
mod tests;
