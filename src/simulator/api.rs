//! Reads and writes past HTTP, for tests and for the living cluster of the demo.

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::json::text;
use super::kinds::Kind;
use super::object::key;
use super::shared::Shared;
use super::status::ApiError;
use super::store::Since;
use super::write::{self, Place, Preconditions};

/// A handle to the objects of a simulator. Writes obey the rules that HTTP requests do, and make the same events.
#[derive(Clone, Debug)]
pub struct Api {
    shared: Arc<Shared>,
}

/// A write that the API refuses.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct Refused {
    /// The HTTP status that a request would get.
    pub code: u16,
    /// The message of the `Status`.
    pub message: String,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { code: error.code, message: error.message }
    }
}

impl Api {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Creates an object, which names its `apiVersion`, `kind` and, if it has one, its namespace.
    pub fn create(&self, object: Value) -> Result<Value, Refused> {
        let kind = self.kind_of(&object)?;
        let namespace = text(&object, "/metadata/namespace").to_owned();
        Ok(write::create(&self.shared.store, &kind, &namespace, object, false)?)
    }

    /// Replaces an object; without a resourceVersion in it, whatever its present one is.
    pub fn update(&self, object: Value) -> Result<Value, Refused> {
        self.replace(object, "")
    }

    /// Replaces an object's status.
    pub fn update_status(&self, object: Value) -> Result<Value, Refused> {
        self.replace(object, "status")
    }

    /// Merges a JSON merge patch (RFC 7386) into an object; in `status`, where it has that subresource, too.
    pub fn patch(
        &self,
        api_version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Refused> {
        let kind = self.kind(api_version, resource)?;
        let merge = |mut object: Value| {
            json_patch::merge(&mut object, patch);
            Ok(object)
        };
        let status = patch.get("status").is_some() && kind.has_subresource("status");
        let change = |subresource| {
            let place = Place { namespace, name, subresource };
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
    ) -> Result<(), Refused> {
        let kind = self.kind(api_version, resource)?;
        let any = Preconditions::default();
        write::delete(&self.shared.store, &kind, namespace, name, &any)?;
        Ok(())
    }

    /// The latest state of an object.
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

    /// All objects of a resource in key order, in all namespaces.
    pub fn list(&self, api_version: &str, resource: &str) -> Vec<Value> {
        let Ok(kind) = self.kind(api_version, resource) else { return Vec::new() };
        let objects = self
            .shared
            .store
            .read(&kind, |collection, _| collection.objects.values().cloned().collect::<Vec<_>>());
        objects.iter().map(|object| object.value()).collect()
    }

    /// How many objects a resource has.
    pub fn count(&self, api_version: &str, resource: &str) -> usize {
        let Ok(kind) = self.kind(api_version, resource) else { return 0 };
        self.shared.store.read(&kind, |collection, _| collection.objects.len())
    }

    /// The global revision.
    pub fn revision(&self) -> u64 {
        self.shared.store.revision()
    }

    /// A channel that tells of changes of a resource, and closes when its watches end.
    pub(super) fn subscribe(
        &self,
        api_version: &str,
        resource: &str,
    ) -> Option<tokio::sync::watch::Receiver<u64>> {
        Some(self.shared.store.subscribe(&*self.kind(api_version, resource).ok()?))
    }

    /// What changed after a resourceVersion, each object in its last known state, and the resourceVersion now;
    /// everything, if that is too long ago.
    pub(super) fn changes(
        &self,
        api_version: &str,
        resource: &str,
        after: u64,
    ) -> (Vec<Value>, u64) {
        let Ok(kind) = self.kind(api_version, resource) else { return (Vec::new(), after) };
        let (objects, current) = self.shared.store.read(&kind, |collection, _| {
            // A rewound store is behind what was seen of it.
            let since = if after > collection.current() { 0 } else { after };
            match collection.since(since, false) {
                Since::Events(events, current) => {
                    let objects = events.into_iter().filter_map(|event| event.new.or(event.old));
                    (objects.collect::<Vec<_>>(), current)
                }
                Since::Expired(_) => {
                    (collection.objects.values().cloned().collect(), collection.current())
                }
            }
        });
        (objects.iter().map(|object| object.value()).collect(), current)
    }

    /// The objects of a namespace that an owner has.
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

    /// Any object of a resource.
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

    fn replace(&self, object: Value, subresource: &str) -> Result<Value, Refused> {
        let kind = self.kind_of(&object)?;
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let name = text(&object, "/metadata/name").to_owned();
        let place = Place { namespace: &namespace, name: &name, subresource };
        Ok(write::modify(&self.shared.store, &kind, place, false, |_| Ok(object))?)
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>, Refused> {
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let found = self.shared.store.registry().find_kind(api_version, kind);
        found.ok_or_else(|| ApiError::unknown_resource().into())
    }

    fn kind(&self, api_version: &str, resource: &str) -> Result<Arc<Kind>, Refused> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self.shared.store.registry().find(group, version, resource);
        found.ok_or_else(|| ApiError::unknown_resource().into())
    }
}
