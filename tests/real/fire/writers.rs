//! Clients that write: to the API servers themselves, and through Weir, where each creation has a
//! mark, so that one that happened twice is noticed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::Response;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::client::connect;
use super::objects::{COLLECTIONS, Scope, new_object};
use super::readers::NAMES;
use super::reference::{History, Kind};
use super::world::World;
use crate::cuts::requests::json_request;

/// Creates, changes and deletes objects without Weir, until it is aborted.
pub(super) async fn write(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    loop {
        // A connection that hangs is not used again.
        let client = connect(&world.direct).await;
        while write_one(&world, &client, &mut rng).await.is_some() {
            tokio::time::sleep(Duration::from_millis(rng.u64(10..120))).await;
        }
    }
}

async fn write_one(world: &World, client: &kube::Client, rng: &mut Rng) -> Option<()> {
    world.wait_for_writes().await;
    let namespace = *rng.choice(&["a", "a-b"]).unwrap();
    let resource = rng.usize(..COLLECTIONS.len());
    let path = Scope { resource, namespace: Some(namespace) }.path();
    let name = format!("o{}", rng.u32(..NAMES));
    let object = format!("{path}/{name}");
    let request = match rng.u8(..10) {
        0..4 => json_request("POST", &path, &new_object(resource, &json!({"name": name}), rng)),
        4..6 => json_request("DELETE", &object, &json!({"gracePeriodSeconds": 0})),
        _ => {
            let change = json!({"metadata": {"annotations": {"n": rng.u32(..).to_string()}}});
            json_request("PATCH", &object, &change)
        }
    };
    let response = tokio::time::timeout(WRITE_TIMEOUT, client.send(request)).await.ok()?.ok()?;
    finish(response).await.map(drop)
}

/// How the creations through Weir ended, by their mark.
pub(super) type Marks = Arc<Mutex<BTreeMap<String, Creation>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    Sent,
    Answered(u16),
    Lost,
}

/// Creates objects with a mark through Weir, until it is aborted.
pub(super) async fn create(world: Arc<World>, marks: Marks, number: usize) {
    let mut rng = Rng::with_seed(number as u64);
    let client = connect(&world.kubeconfig).await;
    for n in 0.. {
        world.wait_for_writes().await;
        let mark = format!("m{number}-{n}-");
        marks.lock().insert(mark.clone(), Creation::Sent);
        let object = new_object(0, &json!({"generateName": mark}), &mut rng);
        let request = json_request("POST", "/api/v1/namespaces/a/configmaps", &object);
        let sent = tokio::time::timeout(CREATE_TIMEOUT, client.send(request)).await;
        let outcome = match sent {
            Ok(Ok(response)) => Creation::Answered(response.status().as_u16()),
            _ => Creation::Lost,
        };
        world.report.count(&format!("create: {outcome:?}"));
        marks.lock().insert(mark, outcome);
        tokio::time::sleep(Duration::from_millis(rng.u64(50..300))).await;
    }
}

/// Returns the creations that happened twice, that were confirmed and did not happen, and that were
/// answered as not sent and happened.
pub(super) fn check(marks: &BTreeMap<String, Creation>, histories: &[History]) -> Vec<String> {
    let mut happened: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for history in histories {
        let shared = history.shared_until;
        let changes = history.changes.iter().filter(|change| change.revision > shared);
        for change in changes.filter(|change| change.kind == Kind::Added) {
            let Some(name) = change.key.strip_prefix("0/a/") else { continue };
            happened.entry(mark_of(name).to_owned()).or_default().push(name);
        }
    }
    let wrong = |(mark, creation): (&String, &Creation)| {
        let times = happened.get(mark).map_or(0, Vec::len);
        let allowed = match creation {
            Creation::Answered(201) => 1..=1,
            Creation::Answered(429 | 503) => 0..=0,
            _ => 0..=1,
        };
        (!allowed.contains(&times)).then(|| format!("{mark}: {creation:?}, {times} times"))
    };
    marks.iter().filter_map(wrong).collect()
}

/// Returns the mark of a name, which API servers make of the mark and five letters.
pub(super) fn mark_of(name: &str) -> &str {
    name.get(..name.len().saturating_sub(5)).unwrap_or_default()
}

async fn finish(response: Response<Body>) -> Option<bytes::Bytes> {
    let body = crate::cuts::requests::body(response);
    tokio::time::timeout(WRITE_TIMEOUT, body).await.ok().flatten()
}

const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
const CREATE_TIMEOUT: Duration = Duration::from_secs(40);
