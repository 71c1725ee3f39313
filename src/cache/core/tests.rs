//! Tests of the watch cache's core, and their shared helpers: pods, filters, and reading from
//! watchers.

mod cache;
mod dispatcher;
mod earlier;
mod field_index;
mod model;
mod relist;
mod separate_lists;
mod snapshot;
mod threads;
mod unreadable;
mod window;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Buf as _;
use serde_json::{Value, json};

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::SelectableFields;
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::cache::core::watch_cache::{EndCause, Now, WatchCache, WindowLimits};
use crate::cache::core::watcher::{Batch, WatchFilter, Watcher};
use crate::codec::attrs::{self, Attrs};
use crate::codec::object::{Key, Layout, Object, Span};

/// A pod with the fields that filters use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pod {
    namespace: String,
    name: String,
    resource_version: u64,
    node: String,
    app: String,
    uid: String,
    /// Shows which of two states of the pod a frame contains. No filter uses it.
    phase: String,
}

impl Pod {
    fn new(namespace: &str, name: &str, resource_version: u64) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            resource_version,
            node: "n1".to_owned(),
            app: "a".to_owned(),
            uid: "u".to_owned(),
            phase: "Running".to_owned(),
        }
    }

    fn node(mut self, node: &str) -> Self {
        node.clone_into(&mut self.node);
        self
    }

    fn app(mut self, app: &str) -> Self {
        app.clone_into(&mut self.app);
        self
    }

    fn uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    fn at(&self, resource_version: u64) -> Self {
        Self { resource_version, ..self.clone() }
    }

    fn key(&self) -> String {
        Key::new(&self.namespace, &self.name).as_str().to_owned()
    }

    fn object(&self) -> Object {
        let metadata = json!({
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version.to_string(),
            "labels": {"app": self.app},
        });
        let body = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": {"nodeName": self.node},
            "status": {"phase": self.phase},
        })
        .to_string();
        let digits = self.resource_version.to_string();
        let mark = "\"resourceVersion\":\"";
        let at = body.find(mark).unwrap() + mark.len();
        let metadata = metadata.to_string();
        let metadata_at = body.find(&metadata).unwrap();
        let mut fields = vec![Cow::Borrowed(&b""[..]); pod_fields().len()];
        fields[node_field()] = Cow::Borrowed(self.node.as_bytes());
        let attrs = attrs::encode(&fields, [(&b"app"[..], self.app.as_bytes())].into_iter());
        Object::new(
            (&self.namespace, &self.name),
            ResourceVersion(self.resource_version),
            Attrs::new(&attrs),
            body.as_bytes(),
            Layout {
                metadata: Span::new(metadata_at, metadata.len()).unwrap(),
                resource_version: Span::new(at, digits.len()).unwrap(),
                ..Layout::default()
            },
        )
    }

    fn from_json(value: &Value) -> Self {
        let text = |path: &str| value.pointer(path).unwrap().as_str().unwrap().to_owned();
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            resource_version: text("/metadata/resourceVersion").parse().unwrap(),
            node: text("/spec/nodeName"),
            app: text("/metadata/labels/app"),
            uid: text("/metadata/uid"),
            phase: text("/status/phase"),
        }
    }
}

/// One delivery to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Delivery {
    Event(String, Pod),
    InitialEventsEnd(u64),
}

/// Why a read stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Nothing is pending; a bookmark can claim this resourceVersion.
    Idle(u64),
    Ended(EndCause),
}

/// Reads one batch and appends it to `deliveries`, or returns why there was none.
fn read_batch(
    watcher: &mut Watcher,
    max_bytes: usize,
    deliveries: &mut Vec<Delivery>,
) -> Option<Stop> {
    let (text, events) = match watcher.next_batch(max_bytes) {
        Batch::Frames { chunks, events, .. } => (chunks.concat(), events),
        Batch::InitialEvents { mut frames, events } => {
            (frames.copy_to_bytes(frames.remaining()).to_vec(), events)
        }
        Batch::InitialEventsEnd(resource_version) => {
            deliveries.push(Delivery::InitialEventsEnd(resource_version.0));
            return None;
        }
        Batch::Yield => return None,
        Batch::Idle => return Some(Stop::Idle(watcher.resource_version().0)),
        Batch::Ended(cause) => return Some(Stop::Ended(cause)),
    };
    let before = deliveries.len();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let frame: Value = serde_json::from_slice(line).unwrap();
        let event = frame["type"].as_str().unwrap().to_owned();
        deliveries.push(Delivery::Event(event, Pod::from_json(&frame["object"])));
    }
    assert_eq!(deliveries.len() - before, events);
    assert!(events > 0, "an answer without frames");
    None
}

/// Reads until the watcher is idle or ended.
fn read_all(watcher: &mut Watcher, deliveries: &mut Vec<Delivery>) -> Stop {
    loop {
        if let Some(stop) = read_batch(watcher, 1 << 20, deliveries) {
            return stop;
        }
    }
}

/// Reads until the watcher is idle or ended, and returns the deliveries as text: `ADDED ns/name 5`.
fn drain(watcher: &mut Watcher) -> (Vec<String>, Stop) {
    let mut deliveries = Vec::new();
    let stop = read_all(watcher, &mut deliveries);
    let short = deliveries.iter().map(|delivery| match delivery {
        Delivery::Event(event, pod) => format!("{event} {} {}", pod.key(), pod.resource_version),
        Delivery::InitialEventsEnd(resource_version) => format!("END {resource_version}"),
    });
    (short.collect(), stop)
}

fn cache_of(events_min: usize, events_max: usize, bytes_max: usize) -> WatchCache {
    let age = Duration::from_secs(75);
    let (unread_from, unread_bytes_max) = (u64::MAX, 0);
    let limits =
        WindowLimits { events_min, events_max, age, bytes_max, unread_from, unread_bytes_max };
    WatchCache::new(limits).with_index(pod_fields().indexed())
}

fn at(seconds: u64) -> Now {
    Now(Duration::from_secs(seconds))
}

fn pod_fields() -> SelectableFields {
    SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"))
}

fn fields(text: &str) -> FieldSelector {
    FieldSelector::parse(text, &pod_fields()).unwrap()
}

fn node_field() -> usize {
    pod_fields().indexed().unwrap()
}

fn in_namespace(namespace: &str) -> WatchFilter {
    WatchFilter { namespace: Some(namespace.into()), ..WatchFilter::default() }
}

fn by_app(app: &str) -> WatchFilter {
    let labels = LabelSelector::parse(&format!("app={app}")).unwrap();
    WatchFilter { labels, ..WatchFilter::default() }
}

fn on_node(node: &str) -> WatchFilter {
    WatchFilter { fields: fields(&format!("spec.nodeName={node}")), ..WatchFilter::default() }
}

fn pods_by_key(pods: impl IntoIterator<Item = Pod>) -> BTreeMap<String, Pod> {
    pods.into_iter().map(|pod| (pod.key(), pod)).collect()
}
