//! Follows the cluster's FlowSchemas and PriorityLevelConfigurations by Weir's own caches of them.
//!
//! The plan is replaced as a whole, at most once a second. Where Weir may not read both resources,
//! or the API server does not serve them, kube-apiserver's own objects count. Once both were read,
//! the last plan stays, however long the API server is away. An object that is invalid keeps its
//! last valid version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::resource::{GroupVersionResource, Representation};
use crate::cache::core::watcher::{ObjectBatch, WatchStart};
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::codec::object::Object;
use crate::flow::level::PriorityLevel;
use crate::flow::plan::Plan;
use crate::flow::schema::{FlowSchema, InvalidObject};
use crate::server::flow_control::FlowControl;

/// Starts to follow both resources, until the guard is dropped or the registry stops. Must be
/// called within a tokio runtime.
pub fn start(flow: &Arc<FlowControl>, registry: &Registry) -> DropGuard {
    flow.metrics.set_source(false);
    let cancel = CancellationToken::new();
    let source = Arc::new(Source::default());
    let schemas = Arc::clone(&source).follow::<FlowSchema>(Arc::clone(flow), registry.clone());
    let levels = Arc::clone(&source).follow::<PriorityLevel>(Arc::clone(flow), registry.clone());
    tokio::spawn(cancel.clone().run_until_cancelled_owned(schemas));
    tokio::spawn(cancel.clone().run_until_cancelled_owned(levels));
    tokio::spawn(cancel.clone().run_until_cancelled_owned(source.apply(Arc::clone(flow))));
    cancel.drop_guard()
}

#[derive(Default)]
struct Source {
    objects: Mutex<Objects>,
    changed: Notify,
}

/// The objects that were read; `None` before the first whole list.
#[derive(Default)]
struct Objects {
    schemas: Option<Collection<FlowSchema>>,
    levels: Option<Collection<PriorityLevel>>,
}

trait Followed: Clone + Send + 'static {
    /// The plural name of the resource.
    const RESOURCE: &'static str;
    /// The number of objects that are used.
    const COUNT_MAX: usize;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject>;

    fn collection(objects: &mut Objects) -> &mut Option<Collection<Self>>;
}

impl Followed for FlowSchema {
    const RESOURCE: &'static str = "flowschemas";
    const COUNT_MAX: usize = 1_000;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        Self::parse(json)
    }

    fn collection(objects: &mut Objects) -> &mut Option<Collection<Self>> {
        &mut objects.schemas
    }
}

impl Followed for PriorityLevel {
    const RESOURCE: &'static str = "prioritylevelconfigurations";
    const COUNT_MAX: usize = 256;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        Self::parse(json)
    }

    fn collection(objects: &mut Objects) -> &mut Option<Collection<Self>> {
        &mut objects.levels
    }
}

impl Source {
    async fn apply(self: Arc<Self>, flow: Arc<FlowControl>) {
        loop {
            self.changed.notified().await;
            let plan = {
                let objects = self.objects.lock();
                let both = objects.schemas.as_ref().zip(objects.levels.as_ref());
                both.map(|(schemas, levels)| Plan::new(schemas.valid(), levels.valid()))
            };
            if let Some(plan) = plan {
                flow.set_plan(plan);
                flow.metrics.set_source(true);
                sleep(APPLY_INTERVAL).await;
            }
        }
    }

    /// Follows one resource until the registry stops.
    async fn follow<T: Followed>(self: Arc<Self>, flow: Arc<FlowControl>, registry: Registry) {
        let gvr = GroupVersionResource::new(GROUP, "v1", T::RESOURCE);
        let mut logged = None;
        loop {
            match registry.ready(&gvr, "", Representation::Json, READY_TIMEOUT).await {
                Ok(handle) => {
                    logged = None;
                    self.follow_cache::<T>(&flow, &handle).await;
                }
                Err(Refusal::Stopping) => return,
                // This may change: the upstream was down, or a permission was missing.
                Err(refusal) if logged != Some(refusal) => {
                    let (resource, reason) = (T::RESOURCE, refusal.as_str());
                    tracing::warn!(
                        resource,
                        reason,
                        "cannot read the cluster's priority and fairness: requests are classified by the last known objects, or by kube-apiserver's own"
                    );
                    logged = Some(refusal);
                }
                Err(_) => {}
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Follows one cache until the watch ends.
    async fn follow_cache<T: Followed>(&self, flow: &FlowControl, handle: &CacheHandle) {
        let Ok(mut watcher) = handle.cache().follow(WatchStart::InitialEvents) else { return };
        loop {
            match watcher.next_objects() {
                ObjectBatch::State(state) => self.change::<T>(flow, |collection| {
                    collection.replace(state.store().iter().map(|object| &**object));
                }),
                ObjectBatch::Events(events) => self.change::<T>(flow, |collection| {
                    for event in events {
                        if event.is_deletion() {
                            collection.remove(event.object());
                        } else {
                            collection.put(event.object());
                        }
                    }
                }),
                ObjectBatch::Idle => watcher.until_woken().await,
                ObjectBatch::Ended(_) => return,
            }
        }
    }

    fn change<T: Followed>(&self, flow: &FlowControl, change: impl FnOnce(&mut Collection<T>)) {
        let invalid = {
            let mut objects = self.objects.lock();
            let collection = T::collection(&mut objects).get_or_insert_default();
            change(collection);
            collection.invalid()
        };
        flow.metrics.set_invalid(T::RESOURCE, invalid);
        self.changed.notify_one();
    }
}

/// The valid objects of one resource, by name.
struct Collection<T> {
    valid: BTreeMap<Box<str>, T>,
    /// The objects whose last version is not used.
    invalid: BTreeSet<Box<str>>,
}

impl<T> Default for Collection<T> {
    fn default() -> Self {
        Self { valid: BTreeMap::new(), invalid: BTreeSet::new() }
    }
}

impl<T: Followed> Collection<T> {
    fn valid(&self) -> Vec<T> {
        self.valid.values().cloned().collect()
    }

    /// Returns the number of objects whose last version is not used.
    fn invalid(&self) -> usize {
        self.invalid.len()
    }

    fn replace<'a>(&mut self, objects: impl Iterator<Item = &'a Object>) {
        let before = std::mem::take(self);
        for object in objects {
            let name = object.key.name();
            if let Some((name, earlier)) = before.valid.get_key_value(name) {
                self.valid.insert(name.clone(), earlier.clone());
            }
            self.put(object);
        }
    }

    fn put(&mut self, object: &Object) {
        let name = object.key.name();
        let is_known = self.valid.contains_key(name);
        let parsed = match T::parse(object.body()) {
            Ok(_) if !is_known && self.valid.len() >= T::COUNT_MAX => {
                Err("there are too many".to_owned())
            }
            Ok(parsed) => Ok(parsed),
            Err(error) => Err(error.to_string()),
        };
        match parsed {
            Ok(parsed) => {
                self.invalid.remove(name);
                self.valid.insert(name.into(), parsed);
            }
            Err(error) => {
                tracing::warn!(name, error, "an object of priority and fairness is not used");
                self.invalid.insert(name.into());
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        let name = object.key.name();
        self.valid.remove(name);
        self.invalid.remove(name);
    }
}

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// How long to wait for a cache to become ready before asking again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a cache that stopped or was refused is asked for again. The registry caches
/// refusals, so this costs the upstream little.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The least time between two plans: an operator changes several objects one after the other.
const APPLY_INTERVAL: Duration = Duration::from_secs(1);
