//! Reads and writes without HTTP, for tests and for the demo's cluster.

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::json::text;
use super::kinds::Kind;
use super::object::key;
use super::shared::Shared;
use super::status::ApiError;
use super::store::MissedEvents;
use super::write::{self, Preconditions, WriteTarget};

/// A handle to the objects of a simulator. Writes follow the same rules as HTTP requests and
/// produce the same events.
#[derive(Clone, Debug)]
pub struct Api {
    shared: Arc<Shared>,
}

/// The error of a rejected write.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct WriteError {
    /// The HTTP status that a request would receive.
    pub code: u16,
    /// The message of the `Status`.
    pub message: String,
}

impl From<ApiError> for WriteError {
    fn from(error: ApiError) -> Self {
        Self { code: error.code, message: error.message }
    }
}

impl Api {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Creates an object. `object` has an `apiVersion`, a `kind` and, for a namespaced kind, a
    /// namespace.
    pub fn create(&self, object: Value) -> Result<Value, WriteError> {
        let kind = self.kind_of(&object)?;
        let namespace = text(&object, "/metadata/namespace").to_owned();
        Ok(write::create(&self.shared.store, &kind, &namespace, object, false)?)
    }

    /// Replaces an object. Without a resourceVersion in `object` the write is unconditional.
    pub fn update(&self, object: Value) -> Result<Value, WriteError> {
        self.replace(object, "")
    }

    /// Replaces an object's status.
    pub fn update_status(&self, object: Value) -> Result<Value, WriteError> {
        self.replace(object, "status")
    }

    /// Applies a JSON merge patch (RFC 7386) to an object, and to its `status` if the kind has that
    /// subresource.
    pub fn patch(
        &self,
        api_version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, WriteError> {
        let kind = self.kind(api_version, resource)?;
        let merge = |mut object: Value| {
            json_patch::merge(&mut object, patch);
            Ok(object)
        };
        let status = patch.get("status").is_some() && kind.has_subresource("status");
        let change = |subresource| {
            let place = WriteTarget { namespace, name, subresource };
            write::modify(&self.shared.store, &kind, place, false, merge)
        };
        if status {
            let only_status = patch.as_object().is_some_and(|map| map.len() == 1);
            let changed = change("status")?;
            return if only_status { Ok(changed) } else { Ok(change("")?) };
        }
        Ok(change("")?)
    }

    /// Deletes an object.
    pub fn delete(
        &self,
        api_version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), WriteError> {
        let kind = self.kind(api_version, resource)?;
        let any = Preconditions::default();
        write::delete(&self.shared.store, &kind, namespace, name, &any)?;
        Ok(())
    }

    /// Returns the latest state of an object.
    pub fn get(
        &self,
        api_version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let kind = self.kind(api_version, resource).ok()?;
        Some(self.shared.store.get(&kind, &key(namespace, name))?.value())
    }

    /// Returns all objects of a resource, in all namespaces, in key order.
    pub fn list(&self, api_version: &str, resource: &str) -> Vec<Value> {
        let Ok(kind) = self.kind(api_version, resource) else { return Vec::new() };
        let objects = self
            .shared
            .store
            .read(&kind, |collection, _| collection.objects.values().cloned().collect::<Vec<_>>());
        objects.iter().map(|object| object.value()).collect()
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, api_version: &str, resource: &str) -> usize {
        let Ok(kind) = self.kind(api_version, resource) else { return 0 };
        self.shared.store.read(&kind, |collection, _| collection.objects.len())
    }

    /// Returns the global revision.
    pub fn revision(&self) -> u64 {
        self.shared.store.revision()
    }

    /// Returns a channel that changes with every event of a resource, and closes when its watches
    /// end.
    pub(super) fn subscribe(
        &self,
        api_version: &str,
        resource: &str,
    ) -> Option<tokio::sync::watch::Receiver<u64>> {
        Some(self.shared.store.subscribe(FIRST_SERVER, &*self.kind(api_version, resource).ok()?))
    }

    /// Returns the objects that changed after a resourceVersion, each in its last known state, and
    /// the present resourceVersion. Returns all objects if the history does not reach back to
    /// `after`.
    pub(super) fn changes(
        &self,
        api_version: &str,
        resource: &str,
        after: u64,
    ) -> (Vec<Value>, u64) {
        let Ok(kind) = self.kind(api_version, resource) else { return (Vec::new(), after) };
        let (objects, current) = self.shared.store.read(&kind, |collection, _| {
            // After a rewind the store can be older than `after`.
            let current = collection.current(FIRST_SERVER);
            let since = if after > current { 0 } else { after };
            match collection.since(FIRST_SERVER, since, false) {
                MissedEvents::Events(events, current) => {
                    let objects = events.into_iter().filter_map(|event| event.new.or(event.old));
                    (objects.collect::<Vec<_>>(), current)
                }
                MissedEvents::Expired(_) => {
                    (collection.objects.values().cloned().collect(), current)
                }
            }
        });
        (objects.iter().map(|object| object.value()).collect(), current)
    }

    /// Returns the objects of a namespace whose owner has the given uid.
    pub(super) fn owned(
        &self,
        api_version: &str,
        resource: &str,
        namespace: &str,
        uid: &str,
    ) -> Vec<Value> {
        let Ok(kind) = self.kind(api_version, resource) else { return Vec::new() };
        let objects = self.shared.store.read(&kind, |collection, _| {
            let owned = collection.objects.values().filter(|object| {
                *object.namespace == *namespace && object.owners.iter().any(|owner| **owner == *uid)
            });
            owned.cloned().collect::<Vec<_>>()
        });
        objects.iter().map(|object| object.value()).collect()
    }

    /// Returns a random object of a resource.
    pub(super) fn pick(
        &self,
        api_version: &str,
        resource: &str,
        rng: &mut fastrand::Rng,
    ) -> Option<Value> {
        let kind = self.kind(api_version, resource).ok()?;
        let picked = self.shared.store.read(&kind, |collection, _| {
            let count = collection.objects.len();
            if count == 0 {
                None
            } else {
                collection.objects.values().nth(rng.usize(0..count)).cloned()
            }
        });
        Some(picked?.value())
    }

    fn replace(&self, object: Value, subresource: &str) -> Result<Value, WriteError> {
        let kind = self.kind_of(&object)?;
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let name = text(&object, "/metadata/name").to_owned();
        let place = WriteTarget { namespace: &namespace, name: &name, subresource };
        Ok(write::modify(&self.shared.store, &kind, place, false, |_| Ok(object))?)
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>, WriteError> {
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let kind_found = self.shared.store.registry().find_kind(api_version, kind);
        kind_found.ok_or_else(|| ApiError::unknown_resource().into())
    }

    fn kind(&self, api_version: &str, resource: &str) -> Result<Arc<Kind>, WriteError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind_found = self.shared.store.registry().find(group, version, resource);
        kind_found.ok_or_else(|| ApiError::unknown_resource().into())
    }
}

/// The API server whose watch caches the simulated controllers read.
const FIRST_SERVER: usize = 0;
