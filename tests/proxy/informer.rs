//! A client that lists and watches like client-go's reflector, and reports every event that does
//! not follow from the events before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::client::{Call, Next, Watch, fetch};

/// The known objects: `namespace/name` to resourceVersion.
pub(crate) type Objects = BTreeMap<String, u64>;

/// A running informer. Dropping it stops it.
pub(crate) struct Informer {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// The state of an informer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) objects: Objects,
    pub(crate) events: usize,
    pub(crate) lists: usize,
    pub(crate) watches: usize,
    pub(crate) expired: usize,
    pub(crate) refused: usize,
    /// Events that were lost, repeated or out of order.
    pub(crate) complaints: Vec<String>,
}

impl Informer {
    /// Follows a collection; `selector` is a query such as `labelSelector=a%3Db`, or empty.
    pub(crate) fn start(address: SocketAddr, collection: &str, selector: &str) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (path, shared) = (format!("{collection}?{selector}"), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            // As client-go's `relistResourceVersion`: 0 at first, then not older than the latest,
            // and consistent after a 410.
            let mut from = "0".to_owned();
            loop {
                let Some(at) = list(address, &path, &from, &shared).await else {
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                };
                from = follow(address, &path, at, &shared).await;
            }
        });
        Self { seen, task }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn list(address: SocketAddr, path: &str, from: &str, seen: &Mutex<Seen>) -> Option<u64> {
    let answer = fetch(address, &Call::get(&format!("{path}&resourceVersion={from}"))).await;
    let mut seen = seen.lock();
    if answer.status != 200 {
        seen.refused += 1;
        return None;
    }
    let list = answer.json();
    seen.lists += 1;
    seen.objects = list["items"].as_array().unwrap().iter().map(key).collect();
    Some(number(&list["metadata"]["resourceVersion"]))
}

/// Watches until a 410; returns the resourceVersion for the next list.
async fn follow(address: SocketAddr, path: &str, mut at: u64, seen: &Mutex<Seen>) -> String {
    loop {
        let call =
            Call::get(&format!("{path}&watch=1&allowWatchBookmarks=true&resourceVersion={at}"));
        let mut watch = Watch::open(address, &call).await;
        if watch.status != 200 {
            seen.lock().refused += 1;
            tokio::time::sleep(RETRY_DELAY).await;
            continue;
        }
        seen.lock().watches += 1;
        // A watch without events may be silent for any time. The tests bound how long they wait for
        // the informer's state.
        while let Next::Frame(frame) = watch.read().await {
            let event: Value = serde_json::from_str(&frame).unwrap();
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410, "{frame}");
                seen.lock().expired += 1;
                return String::new();
            }
            apply(&event, &mut at, &mut seen.lock());
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn apply(event: &Value, at: &mut u64, seen: &mut Seen) {
    let (name, revision) = key(&event["object"]);
    let kind = event["type"].as_str().unwrap();
    let is_known = seen.objects.contains_key(&name);
    let follows = match kind {
        "ADDED" => !is_known && revision > *at,
        "MODIFIED" => is_known && revision > *at,
        // A relist deletes a missing object at the resourceVersion that it had before.
        "DELETED" => is_known && revision >= *at,
        "BOOKMARK" => revision >= *at,
        _ => false,
    };
    if !follows {
        seen.complaints.push(format!("{kind} {name} at {revision} after {at}, known: {is_known}"));
    }
    *at = revision.max(*at);
    match kind {
        "ADDED" | "MODIFIED" => drop(seen.objects.insert(name, revision)),
        "DELETED" => drop(seen.objects.remove(&name)),
        _ => return,
    }
    seen.events += 1;
}

/// Returns the key and resourceVersion of an object.
pub(crate) fn key(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    (format!("{}/{}", text("namespace"), text("name")), number(&metadata["resourceVersion"]))
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

/// The delay between tries: client-go's back-off, shortened.
const RETRY_DELAY: Duration = Duration::from_millis(20);
