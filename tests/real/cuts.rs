//! Broken connections: the events that clients get through Weir, while objects change and
//! Weir's connections to the upstream are cut, compared event by event and byte by byte with the
//! upstream's own.
//!
//! For every selector one direct watch runs without interruption from before the first write. It
//! has every event that any watcher may get, because an event's type depends on the object before
//! and after, not on where a watch began. A client through Weir acts like an informer. Each of its
//! runs (an initial state, or a resourceVersion, and the events until it must start over) must be a
//! contiguous part of that sequence. Lists are compared with the upstream's own `Exact` list at the
//! resourceVersion that they have.

mod frames;
pub(crate) mod objects;
pub(crate) mod relay;
pub(crate) mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use http::Response;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::churn::client;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::cuts::frames::{Frame, Frames, assert_same, items, text};
use crate::cuts::objects::{COLLECTIONS, NAMESPACES, RESOURCES, change, new_object, prepare};
use crate::cuts::relay::Relay;
use crate::cuts::requests::{body, json_request, send};
use crate::support::Weir;

pub(crate) fn watches_and_lists() {
    let seed = seed();
    // Only the bookmark that ends an initial state shows which state it was.
    let plane = ControlPlane::start_with_watch_list();
    Runtime::new().unwrap().block_on(async {
        let direct = client(&plane.kubeconfig(ADMIN)).await;
        prepare(&direct).await;
        let relay = Relay::start(&plane.kubeconfig(ADMIN)).await;
        let weir = Weir::start(&relay.kubeconfig, "");
        let through = client(&weir.kubeconfig()).await;

        let world = Arc::new(World::begin(direct, through).await);
        let mut tasks = JoinSet::new();
        for n in 0..WRITERS {
            tasks.spawn(Arc::clone(&world).write(Rng::with_seed(seed + n)));
        }
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let rng = Rng::with_seed(seed + 100 + n);
            clients.spawn(Arc::clone(&world).watch(n as usize % world.direct_watches.len(), rng));
        }
        for n in 0..READERS {
            tasks.spawn(Arc::clone(&world).read(Rng::with_seed(seed + 1000 + n)));
        }
        let mut rng = Rng::with_seed(seed + 10_000);
        for pause in CUTS {
            tokio::time::sleep(pause).await;
            relay.cut(&mut rng);
        }
        tokio::time::sleep(CUTS[0]).await;
        world.over.store(true, Ordering::Relaxed);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        world.finish().await;
        let mut runs = 0;
        while let Some(done) = clients.join_next().await {
            runs += done.unwrap();
        }
        let events: usize = world.direct_watches.iter().map(|reference| reference.events.lock().len()).sum();
        let [hits, forwards] = [&world.hits, &world.forwards].map(|n| n.load(Ordering::Relaxed));
        eprintln!("seed {seed}: {events} events, {runs} runs, {hits} answers of the cache, {forwards} forwarded");
        assert!(events > 500 && runs > CLIENTS as usize && hits > forwards, "too little happened");
        weir
    });
}

/// `$CUTS_SEED`, or a constant.
fn seed() -> u64 {
    let seed = std::env::var("CUTS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    eprintln!("CUTS_SEED={seed}");
    seed
}

struct World {
    direct: Client,
    through: Client,
    direct_watches: Vec<DirectWatch>,
    /// Whether all writes are done.
    over: AtomicBool,
    /// The resourceVersion of the last event; 0 while there may be more.
    end: AtomicU64,
    hits: AtomicUsize,
    forwards: AtomicUsize,
}

/// A collection with selectors, and every event in it.
struct DirectWatch {
    resource: usize,
    path: String,
    selectors: String,
    began: u64,
    events: Arc<Mutex<Vec<Frame>>>,
}

/// The frames of a client between two starts.
#[derive(Default)]
struct Run {
    /// Its initial state with that state's resourceVersion, if it began with one.
    initial: Option<(Vec<Frame>, u64)>,
    /// The position before the first event.
    from: u64,
    /// The events after it.
    events: Vec<Frame>,
    /// The resourceVersion that the frames prove.
    reached: u64,
}

impl World {
    async fn begin(direct: Client, through: Client) -> Self {
        let mut direct_watches = Vec::new();
        for (resource, path, selectors) in COLLECTIONS {
            let list = send(&direct, path, &[]).await.unwrap();
            let began = resource_version_of(&body(list).await.unwrap());
            let events = Arc::new(Mutex::new(Vec::new()));
            let query =
                format!("{path}?watch=1&allowWatchBookmarks=1&resourceVersion={began}{selectors}");
            let response = send(&direct, &query, &[]).await.unwrap();
            let into = Arc::clone(&events);
            tokio::spawn(async move {
                let mut frames = Frames::new(response);
                while let Some(frame) = frames.next().await {
                    assert_ne!(frame.event, "ERROR", "the upstream itself failed");
                    if frame.event != "BOOKMARK" {
                        into.lock().push(frame);
                    }
                }
            });
            let (path, selectors) = (path.to_owned(), selectors.to_owned());
            direct_watches.push(DirectWatch { resource, path, selectors, began, events });
        }
        Self {
            direct,
            through,
            direct_watches,
            over: AtomicBool::new(false),
            end: AtomicU64::new(0),
            hits: AtomicUsize::new(0),
            forwards: AtomicUsize::new(0),
        }
    }

    /// Creates, changes and deletes objects, with the same few names.
    async fn write(self: Arc<Self>, mut rng: Rng) {
        let mut n = 0;
        while !self.over.load(Ordering::Relaxed) {
            n += 1;
            let (kind, namespace) = (rng.usize(..3), NAMESPACES[rng.usize(..2)]);
            let (prefix, plural) = RESOURCES[kind];
            let path = format!("{prefix}/namespaces/{namespace}/{plural}");
            let name = format!("o{}", rng.u8(..9));
            let object = format!("{path}/{name}");
            let request = match rng.u8(..10) {
                0..3 => json_request("POST", &path, &new_object(kind, &name, n, &mut rng)),
                3..5 => json_request("DELETE", &object, &json!({"gracePeriodSeconds": 0})),
                5..7 if kind == 1 => {
                    let phase = *rng.choice(&["Pending", "Running", "Failed"]).unwrap();
                    json_request(
                        "PATCH",
                        &format!("{object}/status"),
                        &json!({"status": {"phase": phase}}),
                    )
                }
                _ => json_request("PATCH", &object, &change(kind, n, &mut rng)),
            };
            let response = self.direct.send(request).await.unwrap();
            let ok = response.status().is_success();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            if ok && rng.u8(..8) == 0 {
                self.see_own_write(&path, &name, &text).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(1..15))).await;
        }
    }

    /// Checks that a list not older than a write contains it, or a newer state.
    async fn see_own_write(&self, path: &str, name: &str, written: &[u8]) {
        let written: Value = serde_json::from_slice(written).unwrap();
        let Some(text) = written["metadata"]["resourceVersion"].as_str() else { return };
        let at: u64 = text.parse().unwrap();
        let Some((_, body)) = self.list(&format!("{path}?resourceVersion={at}")).await else {
            return;
        };
        assert!(resource_version_of(&body) >= at, "{path} not older than {at}");
        let list: Value = serde_json::from_slice(&body).unwrap();
        let listed =
            list["items"].as_array().unwrap().iter().find(|i| i["metadata"]["name"] == name);
        if let Some(object) = listed {
            let revision: u64 =
                object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            // Another writer may have deleted the object and created it again, but never an older
            // one.
            assert!(revision >= at || written["kind"] == "Status", "{name}: {revision} after {at}");
        }
    }

    /// Lists through Weir, and compares each list with the upstream's own at the same
    /// resourceVersion.
    async fn read(self: Arc<Self>, mut rng: Rng) {
        let (mut seen, mut cached) =
            (vec![0; self.direct_watches.len()], vec![0; self.direct_watches.len()]);
        while !self.over.load(Ordering::Relaxed) {
            let n = rng.usize(..self.direct_watches.len());
            let reference = &self.direct_watches[n];
            let query = match rng.u8(..4) {
                0 => "resourceVersion=0".to_owned(),
                1 => format!("resourceVersion={}", seen[n].max(1)),
                2 => {
                    format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", seen[n].max(1))
                }
                _ => String::new(),
            };
            let path = format!("{}?{query}{}", reference.path, reference.selectors);
            let Some((hit, body)) = self.list(&path).await else { continue };
            let at = resource_version_of(&body);
            // The cache never goes back in time, and neither does a list that requires a
            // resourceVersion.
            let floor = match (&*query, hit) {
                ("resourceVersion=0", true) => cached[n],
                ("resourceVersion=0", false) => 0,
                _ => seen[n],
            };
            assert!(at >= floor, "{path}: {at} after {floor}, from the cache: {hit}");
            seen[n] = seen[n].max(at);
            if hit {
                cached[n] = at;
            }
            let exact = format!(
                "{}?resourceVersion={at}&resourceVersionMatch=Exact{}",
                reference.path, reference.selectors
            );
            let response = send(&self.direct, &exact, &[]).await.unwrap();
            assert_eq!(response.status(), 200, "{exact}");
            let expected = crate::cuts::body(response).await.unwrap();
            assert_eq!(text(&body), text(&expected), "{path} at {at}");
            tokio::time::sleep(Duration::from_millis(rng.u64(1..20))).await;
        }
    }

    /// Returns the body of a list through Weir, and whether the cache answered; `None` while the
    /// connection to the upstream is cut.
    async fn list(&self, path: &str) -> Option<(bool, Bytes)> {
        let response = send(&self.through, path, &[]).await?;
        let (status, hit) = (response.status(), self.count(&response));
        let body = body(response).await?;
        match status.as_u16() {
            200 => Some((hit, body)),
            429 | 502..=504 => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
            _ => panic!("{path}: {status}: {}", text(&body)),
        }
    }

    fn count(&self, response: &Response<Body>) -> bool {
        let hit = response.headers().get("x-weir-cache").is_some_and(|value| value == "hit");
        if hit { &self.hits } else { &self.forwards }.fetch_add(1, Ordering::Relaxed);
        hit
    }

    /// Waits for the last event: an object that every collection selects.
    async fn finish(&self) {
        for (kind, (prefix, plural)) in RESOURCES.into_iter().enumerate() {
            let path = format!("{prefix}/namespaces/{}/{plural}", NAMESPACES[0]);
            let mut last = new_object(kind, "o0", 0, &mut Rng::with_seed(0));
            last["metadata"]["labels"] = json!({"a": "1", "b": "1"});
            let delete = json!({"gracePeriodSeconds": 0});
            let request = json_request("DELETE", &format!("{path}/o0"), &delete);
            self.direct.send(request).await.unwrap();
            let response = self.direct.send(json_request("POST", &path, &last)).await.unwrap();
            assert_eq!(response.status(), 201);
        }
        let list = send(&self.direct, "/api/v1/namespaces/a/configmaps", &[]).await.unwrap();
        let end = resource_version_of(&body(list).await.unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        for reference in &self.direct_watches {
            let path = format!("{}?{}", reference.path, reference.selectors);
            let list = body(send(&self.direct, &path, &[]).await.unwrap()).await.unwrap();
            let newest =
                items(reference.resource, &list).iter().map(|item| item.resource_version).max();
            while reference.events.lock().last().map(|frame| frame.resource_version) < newest {
                assert!(Instant::now() < deadline, "the direct watch lags");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        self.end.store(end, Ordering::Relaxed);
    }

    /// Watches like an informer until it has seen everything, and returns how often it started
    /// over.
    async fn watch(self: Arc<Self>, n: usize, mut rng: Rng) -> usize {
        let reference = &self.direct_watches[n];
        let deadline = Instant::now() + Duration::from_secs(100);
        let mut runs = 0;
        let mut run = self.begin_run(reference, &mut rng).await;
        loop {
            let ended = self.watch_once(reference, &mut run, &mut rng).await;
            let done = self.has_all(reference, &run);
            assert!(
                done || Instant::now() < deadline,
                "{} stays behind at {}",
                reference.name(),
                run.reached
            );
            // Sometimes a client starts over for reasons of its own.
            if done || ended == Ended::Expired || rng.u8(..6) == 0 {
                self.check(reference, &run).await;
                runs += 1;
                if done {
                    return runs;
                }
                run = self.begin_run(reference, &mut rng).await;
            }
        }
    }

    fn has_all(&self, reference: &DirectWatch, run: &Run) -> bool {
        if self.end.load(Ordering::Relaxed) == 0 {
            return false;
        }
        reference.events.lock().last().is_none_or(|last| run.reached >= last.resource_version)
    }

    /// Starts with the state (0, unset, not older than), at some point in the past, or after a
    /// list.
    async fn begin_run(&self, reference: &DirectWatch, rng: &mut Rng) -> Run {
        let from = match rng.u8(..6) {
            0..3 => 0,
            3 => {
                let events = reference.events.lock();
                rng.choice(events.iter()).map_or(reference.began, |frame| frame.resource_version)
            }
            4 => reference.began,
            _ => {
                let path = format!("{}?resourceVersion=0{}", reference.path, reference.selectors);
                match self.list(&path).await {
                    Some((_, body)) => resource_version_of(&body),
                    None => 0,
                }
            }
        };
        Run { from, reached: from, ..Run::default() }
    }

    async fn watch_once(&self, reference: &DirectWatch, run: &mut Run, rng: &mut Rng) -> Ended {
        let start = match run.reached {
            0 => {
                let state = rng.choice(&[
                    "&resourceVersion=0",
                    "",
                    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                    "&resourceVersion=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                ]);
                (*state.unwrap()).to_owned()
            }
            reached => format!("&resourceVersion={reached}"),
        };
        let seconds = rng.u8(2..9);
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=1&timeoutSeconds={seconds}{start}{}",
            reference.path, reference.selectors
        );
        let Some(response) = send(&self.through, &path, &[]).await else { return Ended::Broken };
        self.count(&response);
        if response.status() != 200 {
            assert!(matches!(response.status().as_u16(), 429 | 502..=504), "{}", response.status());
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Ended::Broken;
        }
        let mut frames = Frames::new(response);
        let mut initial = (run.reached == 0).then(Vec::new);
        while let Some(frame) = frames.next().await {
            match (&*frame.event, &mut initial) {
                ("ERROR", _) => {
                    let text = text(&frame.bytes);
                    assert!(
                        text.contains("\"code\":410") || text.contains("\"code\":504"),
                        "{text}"
                    );
                    return Ended::Expired;
                }
                ("BOOKMARK", initial) if frame.initial_events_end => {
                    let objects = initial.take().expect("one end of the initial events");
                    (run.from, run.reached) = (frame.resource_version, frame.resource_version);
                    run.initial = Some((objects, frame.resource_version));
                }
                ("BOOKMARK", initial) => {
                    assert!(initial.is_none() && frame.resource_version >= run.reached);
                    run.reached = frame.resource_version;
                }
                (_, Some(objects)) => objects.push(frame),
                (_, None) => {
                    run.reached = frame.resource_version;
                    run.events.push(frame);
                }
            }
            if self.has_all(reference, run) {
                break;
            }
        }
        Ended::Broken
    }

    /// Checks that a run is a contiguous part of the direct watch.
    async fn check(&self, reference: &DirectWatch, run: &Run) {
        let name = reference.name();
        if let Some((objects, at)) = &run.initial {
            let exact = format!(
                "{}?resourceVersion={at}&resourceVersionMatch=Exact{}",
                reference.path, reference.selectors
            );
            let list = body(send(&self.direct, &exact, &[]).await.unwrap()).await.unwrap();
            assert_same(
                &format!("{name}, state at {at}"),
                objects,
                &items(reference.resource, &list),
            );
        }
        // The direct watch may lag behind the one through Weir.
        let deadline = Instant::now() + Duration::from_secs(10);
        let newest = run.events.last().map_or(0, |frame| frame.resource_version);
        while newest > 0
            && reference.events.lock().last().is_none_or(|last| last.resource_version < newest)
        {
            assert!(Instant::now() < deadline, "{name}: an event that the upstream never sent");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let settled = Instant::now() + Duration::from_millis(500);
        loop {
            let within = |frame: &&Frame| {
                frame.resource_version > run.from && frame.resource_version <= run.reached
            };
            let expected: Vec<_> = reference.events.lock().iter().filter(within).cloned().collect();
            if expected.len() < run.events.len() && Instant::now() < settled {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            let (from, reached) = (run.from, run.reached);
            assert_same(&format!("{name}, events in ({from}, {reached}]"), &run.events, &expected);
            return;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    Broken,
    Expired,
}

impl DirectWatch {
    fn name(&self) -> String {
        format!("{}{}", self.path, self.selectors)
    }
}

fn resource_version_of(list: &[u8]) -> u64 {
    let list: Value = serde_json::from_slice(list).unwrap();
    let digits = list["metadata"]["resourceVersion"].as_str();
    digits.unwrap_or_else(|| panic!("not a list: {list}")).parse().unwrap()
}

const WRITERS: u64 = 4;
const READERS: u64 = 2;
const CLIENTS: u64 = 45;
/// A reflector waits longer after each break, as client-go's does.
const CUTS: [Duration; 4] = [
    Duration::from_secs(4),
    Duration::from_secs(5),
    Duration::from_secs(6),
    Duration::from_secs(7),
];
