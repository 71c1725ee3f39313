//! The truth: every change in etcd, by etcd's own watch. A restore of etcd, and another cluster,
//! begin a new history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::task::AbortHandle;

use super::objects::PREFIXES;
use crate::suite::wire::{Call, Endpoint};

/// Name of an object: number of the resource, `/`, namespace, `/`, name.
pub(super) type Key = Arc<str>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) kind: Kind,
    pub(super) key: Key,
}

/// All objects that count with their resourceVersions, and etcd's revision.
pub(super) type Base = (BTreeMap<Key, u64>, u64);

/// One history of etcd.
#[derive(Clone, Default)]
pub(super) struct History {
    /// The state before the first change.
    pub(super) base: Base,
    pub(super) changes: Vec<Change>,
    /// Up to this revision it is the history before it.
    pub(super) shared_until: u64,
}

/// All histories, the present one last.
#[derive(Default)]
pub(super) struct Reference {
    histories: Mutex<Vec<History>>,
    /// The revision that the watch has reached.
    reached: AtomicU64,
    /// The revision of the last change of each resource.
    newest: [AtomicU64; PREFIXES.len()],
    number: AtomicUsize,
    watch: Mutex<Option<AbortHandle>>,
}

impl Reference {
    /// Begins the first history, or that of another cluster, from a state that etcd had.
    pub(super) fn begin(self: &Arc<Self>, etcd: u16, base: Base) {
        let revision = base.1;
        self.start(etcd, History { base, ..History::default() }, revision);
    }

    /// Begins a history that equals the last one up to `revision`.
    pub(super) fn rewind(self: &Arc<Self>, etcd: u16, revision: u64) {
        let mut history = self.histories.lock().last().cloned().expect("a history began");
        history.changes.retain(|change| change.revision <= revision);
        history.shared_until = revision;
        self.start(etcd, history, revision);
    }

    /// Must be called in a runtime.
    fn start(self: &Arc<Self>, etcd: u16, history: History, revision: u64) {
        self.stop();
        for (n, newest) in self.newest.iter().enumerate() {
            let of_resource = |key: &Key| resource_of(key) == n;
            let changes = history.changes.iter().filter(|change| of_resource(&change.key));
            let changed = changes.map(|change| change.revision).max();
            let base = history.base.0.iter().filter(|(key, _)| of_resource(key));
            let at = changed.or(base.map(|(_, revision)| *revision).max());
            newest.store(at.unwrap_or(0), Ordering::Release);
        }
        self.histories.lock().push(history);
        self.number.fetch_add(1, Ordering::AcqRel);
        self.reached.store(revision, Ordering::Release);
        let reference = Arc::clone(self);
        let watch = tokio::spawn(async move { reference.watch(etcd, revision + 1).await });
        *self.watch.lock() = Some(watch.abort_handle());
    }

    /// Ends the present history. Until the next begins, reads have no lower bound.
    pub(super) fn stop(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
        self.newest.iter().for_each(|newest| newest.store(0, Ordering::Release));
    }

    /// Returns the revision of the last change of a resource, with the number of its history.
    pub(super) fn newest(&self, resource: usize) -> (usize, u64) {
        (self.number(), self.newest[resource].load(Ordering::Acquire))
    }

    /// Whether the present history goes on.
    pub(super) fn is_running(&self) -> bool {
        self.watch.lock().is_some()
    }

    /// Returns how many histories there were.
    pub(super) fn number(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Returns the present objects, and how many changes led to them.
    pub(super) fn now(&self) -> (BTreeMap<Key, u64>, usize) {
        let histories = self.histories.lock();
        let history = histories.last().expect("a history began");
        let mut objects = history.base.0.clone();
        for change in &history.changes {
            match change.kind {
                Kind::Deleted => objects.remove(&change.key),
                _ => objects.insert(Arc::clone(&change.key), change.revision),
            };
        }
        (objects, history.changes.len())
    }

    pub(super) fn histories(&self) -> Vec<History> {
        self.histories.lock().clone()
    }

    async fn watch(&self, etcd: u16, from: u64) {
        let range = json!({"key": STANDARD.encode([0]), "range_end": STANDARD.encode([0]),
            "start_revision": from.to_string()});
        let call = Call::json(Method::POST, "/v3/watch", &json!({"create_request": range}));
        let response = gateway(etcd).open(&call).await.expect("etcd opens a watch");
        let (mut body, mut buffer) = (response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(frame.data_ref().unwrap());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let message: Message = serde_json::from_slice(&line).unwrap();
                message.result.events.iter().for_each(|event| self.apply(event));
            }
        }
    }

    fn apply(&self, event: &Event) {
        let revision = event.kv.mod_revision.parse().unwrap();
        if let Some(key) = key_of(&event.kv.key) {
            let kind = match &*event.kind {
                "DELETE" => Kind::Deleted,
                _ if event.kv.create_revision == event.kv.mod_revision => Kind::Added,
                _ => Kind::Modified,
            };
            self.newest[resource_of(&key)].store(revision, Ordering::Release);
            let mut histories = self.histories.lock();
            histories.last_mut().unwrap().changes.push(Change { revision, kind, key });
        }
        self.reached.store(revision, Ordering::Release);
    }
}

/// Returns the number of the resource of an object.
pub(super) fn resource_of(key: &Key) -> usize {
    key.split_once('/').unwrap().0.parse().unwrap()
}

/// Reads the present state of etcd.
pub(super) async fn range(etcd: u16) -> Base {
    let range = json!({"key": STANDARD.encode([0]), "range_end": STANDARD.encode([0]),
        "keys_only": true});
    let answer = gateway(etcd).send(&Call::json(Method::POST, "/v3/kv/range", &range)).await;
    let range: Range = serde_json::from_slice(&answer.body).unwrap();
    let objects = range.kvs.iter();
    let objects = objects.filter_map(|kv| Some((key_of(&kv.key)?, kv.mod_revision.parse().ok()?)));
    (objects.collect(), range.header.revision.parse().unwrap())
}

fn gateway(etcd: u16) -> Endpoint {
    Endpoint::plain(([127, 0, 0, 1], etcd).into())
}

/// Returns the name of an object from etcd's key in base64; `None` for other keys.
fn key_of(encoded: &str) -> Option<Key> {
    let key = String::from_utf8(STANDARD.decode(encoded).unwrap()).ok()?;
    PREFIXES
        .iter()
        .enumerate()
        .find_map(|(n, prefix)| Some(format!("{n}/{}", key.strip_prefix(prefix)?).into()))
}

#[derive(Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Message {
    result: Events,
}

#[derive(Deserialize)]
struct Events {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    create_revision: String,
    mod_revision: String,
}
