//! The running caches by key.
//!
//! Invariants: there is at most one cache for each key. A cache is looked up and counted as used
//! while its shard is locked, and removed only if a condition holds under the same lock, so that a
//! cache that is found unused cannot be looked up before it is removed.
//!
//! Lock order: a shard of `caches`, then a shard of the floors or the writer of a cache; the
//! retired caches, with no other lock. No lock is held across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::api::resource::{GroupVersionResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;

/// The running caches.
#[derive(Default)]
pub(super) struct CacheMap {
    caches: DashMap<CacheKey, Arc<CachedResource>, BuildKeyedHash>,
    /// At least the number of caches in `caches` that hold one namespace. It is increased before a
    /// cache is inserted, and decreased after it was removed.
    namespaced: AtomicUsize,
    /// The resources of the caches that were retired and still apply events for their watchers,
    /// once for each cache.
    retired: Mutex<Vec<GroupVersionResource>>,
    /// The length of `retired`.
    retired_len: AtomicUsize,
}

impl CacheMap {
    /// Finds the cache of the cluster, or the cache of the namespace if that one is further ahead:
    /// otherwise a client that read from it would go back in time. Both hold the same resource, so
    /// their resourceVersions can be compared. For the same reason the cache of the cluster is not
    /// ready for reads of all namespaces until it is as far as those of the namespaces.
    ///
    /// Takes a single look-up while there is no cache of a namespace, which is the usual case.
    pub(super) fn lookup(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Option<CacheHandle> {
        let key = |scope| CacheKey { gvr: gvr.clone(), representation, scope };
        let cluster = key(Scope::Cluster);
        if namespace.is_empty() || self.namespaced() == 0 {
            let handle = self.get(&cluster);
            if let Some(handle) = handle.as_ref().filter(|_| self.namespaced() > 0) {
                let cached = handle.cached_resource();
                let namespaced = |other: &Arc<CachedResource>| other.key.is_namespaced();
                for other in self.scopes_of(&cluster).filter(namespaced) {
                    cached.gate.hold_behind(&other.gate);
                }
            }
            return handle;
        }
        let namespace_key = key(Scope::Namespace(namespace.into()));
        let reached = |key: &CacheKey| self.caches.get(key)?.gate.resource_version();
        // Only the cache that is returned counts a use, so that the other one may become idle.
        let namespaced = if reached(&namespace_key) > reached(&cluster) {
            self.get(&namespace_key)
        } else {
            None
        };
        namespaced.or_else(|| self.get(&cluster)).or_else(|| self.get(&namespace_key))
    }

    fn get(&self, key: &CacheKey) -> Option<CacheHandle> {
        let handle = self.caches.get(key).map(|cached| CacheHandle::new(cached.clone()))?;
        // A retired cache raises the floor. One without a state compares its list with that itself.
        if self.retired_len.load(Ordering::Acquire) > 0 && self.retired.lock().contains(&key.gvr) {
            handle.cached_resource().gate.hold_below_floor(None, false);
        }
        Some(handle)
    }

    /// Returns a handle of the cache for `key`. If there is none, inserts the one that `create`
    /// returns and returns it too.
    pub(super) fn get_or_insert(
        &self,
        key: CacheKey,
        create: impl FnOnce(CacheKey) -> Arc<CachedResource>,
    ) -> (CacheHandle, Option<Arc<CachedResource>>) {
        let vacant = match self.caches.entry(key.clone()) {
            Entry::Occupied(present) => return (CacheHandle::new(present.get().clone()), None),
            Entry::Vacant(vacant) => vacant,
        };
        let cached = create(key);
        let handle = CacheHandle::new(cached.clone());
        self.namespaced.fetch_add(count_namespaced(&cached.key), Ordering::AcqRel);
        vacant.insert(cached.clone());
        (handle, Some(cached))
    }

    /// Whether a cache has a state that any read may use.
    pub(super) fn any_ready(&self) -> bool {
        self.caches.iter().any(|cached| cached.is_ready())
    }

    /// Returns the number and the bytes of a resource's objects. Protobuf counts rather than JSON,
    /// since it is the upstream's own form.
    pub(super) fn size_of(&self, gvr: &GroupVersionResource) -> Option<(u64, u64)> {
        let forms = [Representation::Protobuf, Representation::Json];
        forms.into_iter().find_map(|representation| {
            let key = CacheKey { gvr: gvr.clone(), representation, scope: Scope::Cluster };
            let state = self.caches.get(&key)?.gate.state()?;
            Some((state.len() as u64, state.weight() as u64))
        })
    }

    /// Returns the newest resourceVersion that a cache of the whole resource has.
    pub(super) fn newest_version(&self, gvr: &GroupVersionResource) -> Option<ResourceVersion> {
        let caches = Representation::ALL.into_iter().filter_map(|representation| {
            let key = CacheKey { gvr: gvr.clone(), representation, scope: Scope::Cluster };
            self.caches.get(&key)?.gate.resource_version()
        });
        caches.max()
    }

    /// Whether there is a cache for `key`.
    pub(super) fn contains(&self, key: &CacheKey) -> bool {
        self.caches.contains_key(key)
    }

    /// Returns the number of caches.
    pub(super) fn len(&self) -> usize {
        self.caches.len()
    }

    /// Returns the number of caches of one namespace, or more while one is inserted or removed.
    pub(super) fn namespaced(&self) -> usize {
        self.namespaced.load(Ordering::Acquire)
    }

    /// Returns the number of requests that wait for a cache of a resource which holds `namespace`.
    pub(super) fn waiting(&self, gvr: &GroupVersionResource, namespace: &str) -> usize {
        let mut caches = self.in_scope(gvr, "");
        if !namespace.is_empty() {
            caches.extend(self.in_scope(gvr, namespace));
        }
        caches.iter().map(|cached| cached.usage.ready_waiters()).sum()
    }

    /// Returns the caches of a resource that hold one namespace, or (empty) the cluster.
    pub(super) fn in_scope(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
    ) -> Vec<Arc<CachedResource>> {
        let scope = match namespace {
            "" => Scope::Cluster,
            namespace => Scope::Namespace(namespace.into()),
        };
        let key = |representation| {
            let (gvr, scope) = (gvr.clone(), scope.clone());
            CacheKey { gvr, representation, scope }
        };
        let caches = Representation::ALL.into_iter().map(key);
        caches.filter_map(|key| Some(Arc::clone(&*self.caches.get(&key)?))).collect()
    }

    /// Returns all caches, so that the caller locks no shard.
    pub(super) fn to_vec(&self) -> Vec<Arc<CachedResource>> {
        self.caches.iter().map(|cached| Arc::clone(&cached)).collect()
    }

    /// Removes `cached`, if it is still in the map and `condition` holds. `condition` is called
    /// under the lock of the shard.
    pub(super) fn remove_if(
        &self,
        cached: &Arc<CachedResource>,
        condition: impl Fn(&CachedResource) -> bool,
    ) -> bool {
        let is_removed = |_: &CacheKey, present: &Arc<CachedResource>| {
            Arc::ptr_eq(present, cached) && condition(present)
        };
        let removed = self.caches.remove_if(&cached.key, is_removed).is_some();
        if removed {
            self.namespaced.fetch_sub(count_namespaced(&cached.key), Ordering::AcqRel);
        }
        removed
    }

    /// Removes `cached` like [`Self::remove_if`], and closes what its successor opens again: the
    /// series of the same labels, and the floor.
    pub(super) fn close_if(
        &self,
        cached: &Arc<CachedResource>,
        condition: impl Fn(&CachedResource) -> bool,
    ) -> bool {
        let removed = self.remove_if(cached, |present| {
            let holds = condition(present);
            if holds {
                present.gate.raise_floor(present.gate.resource_version());
                present.series.retire();
            }
            holds
        });
        if removed {
            self.hold_others(cached);
        }
        removed
    }

    /// Notes that a cache was retired and removed. It applies events for its watchers until its
    /// reflector ends, and its successor may get the same events later.
    pub(super) fn add_retired(&self, gvr: &GroupVersionResource) {
        let mut retired = self.retired.lock();
        retired.push(gvr.clone());
        self.retired_len.store(retired.len(), Ordering::Release);
    }

    /// Notes that the reflector of a retired cache has ended.
    pub(super) fn remove_retired(&self, gvr: &GroupVersionResource) {
        let mut retired = self.retired.lock();
        if let Some(place) = retired.iter().position(|other| other == gvr) {
            retired.swap_remove(place);
        }
        self.retired_len.store(retired.len(), Ordering::Release);
    }

    /// Returns the number of retired caches.
    #[cfg(test)]
    pub(super) fn retired_len(&self) -> usize {
        self.retired_len.load(Ordering::Acquire)
    }

    /// Lets the other caches of the resource answer no more until they have come as far as `ended`:
    /// what that cache has shown may not be taken back. They are of other scopes, or the successor.
    /// [`Self::lookup`] compares those that run.
    pub(super) fn hold_others(&self, ended: &CachedResource) {
        // `ended` may be out of the map already.
        let has_scopes = ended.key.is_namespaced() || self.namespaced() > 0;
        if !has_scopes && !ended.lifecycle.is_retiring() {
            return;
        }
        for other in self.scopes_of(&ended.key) {
            other.gate.hold_behind(&ended.gate);
        }
    }

    /// Returns the caches of a key's resource in its representation, in all scopes.
    fn scopes_of(&self, key: &CacheKey) -> impl Iterator<Item = Arc<CachedResource>> {
        let is_same =
            |other: &CacheKey| other.gvr == key.gvr && other.representation == key.representation;
        self.to_vec().into_iter().filter(move |cached| is_same(&cached.key))
    }

    /// Stops `cached` and removes it in one step, if `condition` still holds.
    pub(super) fn stop_if(
        &self,
        cached: &Arc<CachedResource>,
        reason: Refusal,
        condition: impl Fn(&CachedResource) -> bool,
    ) -> bool {
        let removed = self.close_if(cached, condition);
        if removed {
            cached.account.close();
            cached.lifecycle.stop(reason);
        }
        removed
    }
}

/// Returns 1 for a cache of one namespace, 0 for one of the cluster.
fn count_namespaced(key: &CacheKey) -> usize {
    usize::from(key.is_namespaced())
}
