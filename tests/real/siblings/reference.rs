//! All changes, from one watch of the API server itself, and the frames of watches in JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;

use super::informer::Scope;
use crate::suite::wire::{Call, Endpoint};

/// Namespace and name.
pub(super) type Key = Arc<str>;

/// A set of objects, each with its resourceVersion.
pub(super) type State = BTreeMap<Key, u64>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) deleted: bool,
}

/// A line of a watch.
#[derive(Debug)]
pub(super) enum Frame {
    Event(Change),
    Bookmark { version: u64, ends_initial: bool },
    Error(String),
}

/// The objects at the beginning, and all changes since.
pub(super) struct Reference {
    initial: State,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Reference {
    /// Lists at the API server, and watches from there.
    pub(super) async fn start(direct: &Endpoint) -> Self {
        let list = direct.send(&Call::get(PATH)).await;
        let (initial, at) = read_list(&list.body);
        let path = format!("{PATH}?watch=1&resourceVersion={at}&timeoutSeconds=3600");
        let response = direct.open(&Call::get(path)).await.expect("a watch");
        assert_eq!(response.status(), 200);
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        tokio::spawn(async move {
            let mut lines = Lines::new(response.into_body());
            while let Ok(Some(frame)) = lines.next().await {
                match frame {
                    Frame::Event(change) => seen.lock().push(change),
                    other => panic!("{other:?} in the reference watch"),
                }
            }
        });
        Self { initial, changes }
    }

    /// Whether it has seen this resourceVersion.
    pub(super) fn has(&self, version: u64) -> bool {
        self.changes.lock().last().is_some_and(|last| last.version >= version)
    }

    /// Returns all changes of a scope after one resourceVersion, up to another one.
    pub(super) fn changes(&self, scope: Scope, after: u64, until: u64) -> Vec<Change> {
        let changes = self.changes.lock();
        let fits =
            |it: &&Change| it.version > after && it.version <= until && scope.contains(&it.key);
        changes.iter().filter(fits).cloned().collect()
    }

    /// Returns the objects of a scope after all changes.
    pub(super) fn state(&self, scope: Scope) -> State {
        let mut state = self.initial.clone();
        for change in self.changes.lock().iter() {
            apply(&mut state, change);
        }
        state.retain(|key, _| scope.contains(key));
        state
    }
}

pub(super) fn apply(state: &mut State, change: &Change) {
    if change.deleted {
        state.remove(&change.key);
    } else {
        state.insert(Arc::clone(&change.key), change.version);
    }
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Incoming,
    bytes: Vec<u8>,
}

impl Lines {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, bytes: Vec::new() }
    }

    /// Returns the next frame; none after a clean end.
    pub(super) async fn next(&mut self) -> hyper::Result<Option<Frame>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.bytes) {
                let rest = self.bytes.split_off(end + 1);
                let line = std::mem::replace(&mut self.bytes, rest);
                return Ok(Some(frame(&String::from_utf8_lossy(&line))));
            }
            match self.body.frame().await {
                Some(frame) => {
                    let frame = frame?;
                    self.bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
                }
                None => return Ok(None),
            }
        }
    }
}

/// Reads the first fields only: config maps have their metadata first.
fn frame(line: &str) -> Frame {
    let version = after(line, r#""resourceVersion":""#).and_then(|text| text.parse().ok());
    let Some(version) = version.filter(|_| !line.starts_with(r#"{"type":"ERROR""#)) else {
        return Frame::Error(line.to_owned());
    };
    if line.starts_with(r#"{"type":"BOOKMARK""#) {
        return Frame::Bookmark {
            version,
            ends_initial: line.contains("k8s.io/initial-events-end"),
        };
    }
    let name = after(line, r#""name":""#).expect("a name");
    let namespace = after(line, r#""namespace":""#).expect("a namespace");
    let deleted = line.starts_with(r#"{"type":"DELETED""#);
    Frame::Event(Change { version, key: format!("{namespace}/{name}").into(), deleted })
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.split('"').next()
}

/// Returns the objects of a list, and its resourceVersion.
pub(super) fn read_list(body: &[u8]) -> (State, u64) {
    let list: List = serde_json::from_slice(body).expect("a list");
    let object = |item: Item| {
        let metadata = item.metadata;
        let key = format!("{}/{}", metadata.namespace, metadata.name);
        (key.into(), metadata.resource_version.parse().expect("a resourceVersion"))
    };
    let at = list.metadata.resource_version.parse().expect("a resourceVersion");
    (list.items.into_iter().map(object).collect(), at)
}

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    resource_version: String,
}

const PATH: &str = "/api/v1/configmaps";
