//! Keeps what is known of one resource equal to the upstream, by a watcher of Weir's own cache of it.
//!
//! An event is applied as the cache is told it, so a revocation counts from then on. What is known may be relied on while it can be shown that the
//! cache is told everything, and the kinds of silence are told apart so:
//!
//! * A watch that is known to be broken counts no longer than it takes to open the next one when it reached its time-out, as it does every few
//!   minutes. After a longer break everything has to be shown anew.
//! * A watch that is silent may be dead without knowing. Whatever it tells shows that it is not; after ten seconds without a word a
//!   second, short watch asks ([`CacheHandle::is_current`]). What that shows is what the authorizer of the instance that answers
//!   knows as well: it learns of roles and bindings by watches of the same cache.
//!
//! A cache that ends, is replaced by another list, or overtakes the watcher is watched anew. What was known meanwhile is not relied on, and gives way
//! in one step to the new state. The handle in use keeps the cache from being stopped as idle.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::resource::Representation;
use crate::auth::rbac::index::Key;
use crate::auth::rbac::known::Known;
use crate::auth::rbac::policy::Policy;
use crate::auth::rbac::resource::RbacResource;
use crate::cache::core::event::Event;
use crate::cache::core::watch_cache::State;
use crate::cache::core::watcher::{ObjectBatch, WatchFilter, WatchStart, Watcher};
use crate::cache::handle::{CacheHandle, Refusal};
use crate::cache::registry::Registry;
use crate::codec::object::Object;

/// Runs until the registry stops, or the task is dropped.
pub(super) async fn feed(known: Arc<Known>, registry: Registry, resource: RbacResource) {
    let mut told = None;
    loop {
        let ready = registry.ready(&resource.gvr(), "", Representation::Json, READY_TIMEOUT).await;
        match ready {
            Ok(handle) => {
                told = None;
                Feed::new(&known, resource, &handle).follow().await;
                known.rely_until(resource, None);
                tracing::debug!(resource = resource.as_str(), "watched anew");
            }
            Err(Refusal::Stopping) => return,
            // It may come to be there: the upstream was away, or a right was missing.
            Err(refusal) if told != Some(refusal) => {
                let (resource, reason) = (resource.as_str(), refusal.as_str());
                tracing::warn!(resource, reason, "RBAC cannot be decided here");
                told = Some(refusal);
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

/// One cache being followed.
struct Feed<'a> {
    known: &'a Known,
    resource: RbacResource,
    handle: &'a CacheHandle,
    /// As of when everything is known, once that was shown.
    shown: Option<Instant>,
    /// Since when the upstream's watch is not open.
    broken: Option<Instant>,
    /// When the upstream was last asked whether everything is known.
    asked: Option<Instant>,
}

impl<'a> Feed<'a> {
    fn new(known: &'a Known, resource: RbacResource, handle: &'a CacheHandle) -> Self {
        Self { known, resource, handle, shown: None, broken: None, asked: None }
    }

    /// Returns when the watcher has ended.
    async fn follow(mut self) {
        let cache = self.handle.cache();
        let Ok(mut watcher) = cache.watch(WatchFilter::default(), WatchStart::InitialEvents) else {
            return;
        };
        let (mut progress, mut watching) = (cache.progress(), self.handle.watching());
        let mut asking = pin!(Fuse::terminated());
        while self.drain(&mut watcher).await {
            if self.is_reopened(*watching.borrow_and_update()) {
                // What was asked before tells nothing of what was missed.
                asking.set(Fuse::terminated());
            }
            self.known.rely_until(self.resource, self.reliable_until());
            tokio::select! {
                biased;
                () = watcher.woken() => {}
                Ok(()) = progress.changed() => {
                    self.shown = self.shown.map(|_| Instant::now());
                }
                Ok(()) = watching.changed() => {}
                shown = asking.as_mut() => if shown {
                    self.shown = self.shown.max(self.asked);
                },
                () = sleep_until(self.ask_at()), if self.broken.is_none() && asking.is_terminated() => {
                    self.asked = Some(Instant::now());
                    asking.set(self.handle.is_current(ASK_TIMEOUT).fuse());
                }
            }
        }
    }

    /// Takes note whether the upstream's watch is open. Returns whether it is again, after so long that something may have been missed.
    fn is_reopened(&mut self, open: bool) -> bool {
        let now = Instant::now();
        if !open {
            self.broken.get_or_insert(now);
            return false;
        }
        let long = self.broken.take().is_some_and(|since| now.duration_since(since) > REOPEN);
        if long {
            (self.shown, self.asked) = (None, None);
        }
        long
    }

    /// Until when what is known may be relied on.
    fn reliable_until(&self) -> Option<Instant> {
        let until = self.shown? + RELIABLE;
        Some(self.broken.map_or(until, |since| until.min(since + REOPEN)))
    }

    /// When the upstream is to be asked.
    fn ask_at(&self) -> Instant {
        let silent = self.shown.map(|shown| shown + ASK_AFTER);
        let again = self.asked.map(|asked| asked + ASK_AGAIN);
        silent.max(again).unwrap_or_else(Instant::now)
    }

    /// Applies everything that there is; false once the watcher has ended.
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

    /// Takes a whole state in one step, read beside what is known before.
    async fn replace(&self, state: &State) {
        let mut objects = HashMap::with_capacity(state.len());
        for (count, object) in state.store().iter().enumerate() {
            objects.insert(key(object), self.read(object));
            if count % READ_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        self.known.change(self.resource, |writer| writer.replace(self.resource, objects));
    }

    fn apply(&self, events: &[Arc<Event>]) {
        self.known.change(self.resource, |writer| {
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
        let policy = Policy::read(self.resource, object.key.namespace(), &object.body);
        if policy == Policy::Unreadable {
            let resource = self.resource.as_str();
            tracing::warn!(resource, object = ?object.key, "cannot be read, and grants nothing");
        }
        policy
    }
}

fn key(object: &Object) -> Key {
    (object.key.namespace().into(), object.key.name().into())
}

/// How long a cache may take to come; then it is asked for again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How soon a cache that ended or was refused is asked for again. The registry remembers refusals itself, so this costs the upstream nothing.
const RETRY: Duration = Duration::from_secs(1);
/// How long what is known may be relied on without a sign that the cache is told everything.
const RELIABLE: Duration = Duration::from_secs(30);
/// How long a watch that has reached its time-out may be without a successor: a probe and a watch take some ten milliseconds.
const REOPEN: Duration = Duration::from_secs(1);
/// How long the upstream may be silent before it is asked. With the time that takes, there are two attempts within [`RELIABLE`].
const ASK_AFTER: Duration = Duration::from_secs(10);
/// How soon it is asked again if nothing came of it.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// A short watch lasts three seconds, and may have to wait for a place.
const ASK_TIMEOUT: Duration = Duration::from_secs(8);
/// Objects read before others have their turn: a millisecond's worth.
const READ_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests;
