//! Watches while objects are created, changed and deleted: the frames that a client gets through
//! Weir, over any number of connections and reconnects, equal those of one uninterrupted direct
//! watch of the same form. Bookmarks are not compared.
//!
//! The direct watch begins before the first write. Its events are therefore all that any watcher
//! may get, and the state at any later resourceVersion is their sum: the same objects as ADDED
//! frames, in the order of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::frames::{Frame, Frames};
use super::objects::create;
use super::wire::{Call, Connection, Endpoint, STEP_TIMEOUT};

/// The size of a run.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Writers, and the writes of each.
    pub(crate) writers: u64,
    pub(crate) writes: usize,
    /// Clients, spread over collections and forms.
    pub(crate) clients: usize,
}

/// Runs it: `sides[0]` is the upstream, the others are Weirs. `disturb` is called repeatedly while
/// writers write, to cut connections.
pub(crate) async fn churn(sides: Vec<Endpoint>, plan: Plan, mut disturb: impl FnMut(&mut Rng)) {
    prepare(&sides[0]).await;
    let world = Arc::new(World::begin(sides).await);
    let mut clients = JoinSet::new();
    for number in 0..plan.clients {
        let rng = Rng::with_seed(plan.seed + 1000 + number as u64);
        clients.spawn(Arc::clone(&world).client(number % world.direct_watches.len(), rng));
    }
    let mut writers = JoinSet::new();
    for number in 0..plan.writers {
        let rng = Rng::with_seed(plan.seed + number);
        writers.spawn(write(world.sides[0].connection(), plan.writes, rng));
    }
    let mut rng = Rng::with_seed(plan.seed + 500);
    while !writers.is_empty() {
        // A pause between cuts, not a wait for a condition.
        let pause = tokio::time::timeout(Duration::from_millis(900), writers.join_next()).await;
        match pause {
            Ok(Some(done)) => done.unwrap(),
            Ok(None) => break,
            Err(_) => disturb(&mut rng),
        }
    }
    world.finish().await;
    let mut runs = 0;
    while let Some(done) = clients.join_next().await {
        runs += done.unwrap();
    }
    let events: usize =
        world.direct_watches.iter().map(|reference| reference.frames.lock().len()).sum();
    let hits = world.hits.load(Ordering::Relaxed);
    eprintln!(
        "churn, seed {}: {events} events, {runs} runs, {hits} watches from the cache",
        plan.seed
    );
    assert!(events > 500 && runs >= plan.clients && hits > 0, "too little happened");
}

/// A collection with selectors in one form, and every event in it.
struct DirectWatch {
    path: String,
    selectors: &'static str,
    accept: &'static str,
    began: u64,
    frames: Arc<Mutex<Vec<Frame>>>,
}

struct World {
    sides: Vec<Endpoint>,
    direct_watches: Vec<DirectWatch>,
    /// Whether all writes are done and every direct watch has them.
    over: AtomicBool,
    hits: AtomicUsize,
}

/// The frames of a client since it last started over.
#[derive(Default)]
struct Run {
    /// The position before the first frame; with an initial state, the resourceVersion of that
    /// state.
    from: u64,
    state: Option<Vec<Frame>>,
    events: Vec<Frame>,
    /// The resourceVersion that the frames prove.
    reached: u64,
}

impl World {
    async fn begin(sides: Vec<Endpoint>) -> Self {
        let mut direct_watches = Vec::new();
        for (path, selectors) in COLLECTIONS {
            for accept in accepts(path) {
                // With the existing state, such as objects that a real upstream keeps for itself.
                let query = format!("watch=1&allowWatchBookmarks=1{selectors}");
                let call = Call::get(format!("{path}?{query}")).header("accept", accept);
                let response = sides[0].open(&call).await.expect("the upstream answers");
                if response.status() == 406 {
                    eprintln!("the upstream has no {accept} of {path}");
                    continue;
                }
                assert_eq!(response.status(), 200, "{call}");
                let frames = Arc::new(Mutex::new(Vec::new()));
                let into = Arc::clone(&frames);
                let (begun, begins) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    let (mut frames, mut begun) = (Frames::new(response), Some(begun));
                    while let Some(frame) = frames.next().await {
                        assert_ne!(frame.event, "ERROR", "the upstream itself failed");
                        if let Some(begun) = begun.take_if(|_| frame.ends_state) {
                            begun.send(frame.revision).unwrap();
                        } else if frame.event != "BOOKMARK" {
                            into.lock().push(frame);
                        }
                    }
                });
                let began = tokio::time::timeout(STEP_TIMEOUT, begins).await.unwrap().unwrap();
                direct_watches.push(DirectWatch {
                    path: path.to_owned(),
                    selectors,
                    accept,
                    began,
                    frames,
                });
            }
        }
        Self { sides, direct_watches, over: AtomicBool::new(false), hits: AtomicUsize::new(0) }
    }

    /// Writes one last object that every collection selects, and waits until the direct watches
    /// have it.
    async fn finish(&self) {
        let mut connection = self.sides[0].connection();
        for (path, kind) in WRITTEN {
            let mut last = object(kind, "last", 0, &mut Rng::with_seed(0));
            last["metadata"]["labels"] = json!({"a": "1", "b": "1"});
            create(&mut connection, &path.replace("NS", "a"), &last).await;
        }
        let deadline = Instant::now() + STEP_TIMEOUT;
        for reference in &self.direct_watches {
            while reference.frames.lock().last().is_none_or(|frame| frame.key != "a/last") {
                assert!(Instant::now() < deadline, "the direct watch of {} lags", reference.path);
                tokio::time::sleep(TICK).await;
            }
        }
        self.over.store(true, Ordering::Release);
    }

    /// Watches like an informer until it has everything; returns how many times it started.
    async fn client(self: Arc<Self>, reference: usize, mut rng: Rng) -> usize {
        let reference = &self.direct_watches[reference];
        let (mut runs, mut run) = (0, Self::begin_run(reference, &mut rng));
        let mut deadline = None;
        loop {
            let expired = self.watch(reference, &mut run, &mut rng).await;
            let done = self.over.load(Ordering::Acquire)
                && reference.frames.lock().last().is_none_or(|last| last.revision <= run.reached);
            if self.over.load(Ordering::Acquire) {
                let until = *deadline.get_or_insert_with(|| Instant::now() + STEP_TIMEOUT);
                assert!(
                    done || Instant::now() < until,
                    "{} stays behind at {}",
                    reference.name(),
                    run.reached
                );
            }
            if done || expired || rng.u8(..5) == 0 {
                reference.check(&run).await;
                runs += 1;
                if done {
                    return runs;
                }
                run = Self::begin_run(reference, &mut rng);
            }
        }
    }

    /// Starts with an initial state, or with the events since the beginning or a recent point.
    fn begin_run(reference: &DirectWatch, rng: &mut Rng) -> Run {
        let from = match rng.u8(..3) {
            0 => 0,
            1 => reference.began,
            _ => {
                let frames = reference.frames.lock();
                let one = rng.choice(frames.iter()).map_or(0, |frame| frame.revision);
                one.max(reference.began)
            }
        };
        Run { from, reached: from, ..Run::default() }
    }

    /// Opens one connection to any side. Returns whether the run is over because its
    /// resourceVersion is gone.
    async fn watch(&self, reference: &DirectWatch, run: &mut Run, rng: &mut Rng) -> bool {
        // Mostly through Weir.
        let side = if rng.u8(..4) == 0 { 0 } else { rng.usize(1..self.sides.len()) };
        let seconds = rng.u8(1..4);
        let initial = if run.reached > 0 {
            format!("resourceVersion={}", run.reached)
        } else {
            // If cut within its initial state, it starts over.
            let begin = *rng.choice(&["resourceVersion=0", ""]).unwrap();
            format!("{begin}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        };
        let query = format!(
            "watch=1&allowWatchBookmarks=1&timeoutSeconds={seconds}&{initial}{}",
            reference.selectors
        );
        let call =
            Call::get(format!("{}?{query}", reference.path)).header("accept", reference.accept);
        let Some(response) = self.sides[side].open(&call).await else {
            tokio::time::sleep(TICK).await;
            return false;
        };
        if matches!(response.status().as_u16(), 429 | 502..=504) {
            tokio::time::sleep(TICK).await;
            return false;
        }
        assert_eq!(response.status(), 200, "{call}");
        if response.headers().get("x-weir-cache").is_some_and(|value| value == "hit") {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        let mut frames = Frames::new(response);
        let mut state = (run.reached == 0).then(Vec::new);
        // Sometimes a client disconnects in the middle.
        let mut left = if rng.u8(..3) == 0 { rng.usize(1..40) } else { usize::MAX };
        while let Some(frame) = frames.next().await {
            match (frame.event.as_str(), &mut state) {
                ("ERROR", _) => {
                    let text = String::from_utf8_lossy(&frame.bytes);
                    assert!(text.contains("too old") || text.contains("oo large"), "{text}");
                    return text.contains("too old");
                }
                ("BOOKMARK", state) if frame.ends_state => {
                    run.state = Some(state.take().expect("one end of the state"));
                    (run.from, run.reached) = (frame.revision, frame.revision);
                }
                ("BOOKMARK", state) => {
                    assert!(state.is_none() && frame.revision >= run.reached, "{call}");
                    run.reached = frame.revision;
                }
                (_, Some(state)) => state.push(frame),
                (_, None) => {
                    assert!(
                        frame.revision > run.reached,
                        "{call}: {} after {}",
                        frame.revision,
                        run.reached
                    );
                    run.reached = frame.revision;
                    run.events.push(frame);
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        false
    }
}

impl DirectWatch {
    fn name(&self) -> String {
        format!("{} {} as {}", self.path, self.selectors, self.accept)
    }

    /// Checks that the frames are a contiguous part of the direct watch.
    async fn check(&self, run: &Run) {
        // The direct watch may lag behind the one through Weir.
        let newest = run.events.last().map_or(0, |frame| frame.revision);
        let deadline = Instant::now() + STEP_TIMEOUT;
        while newest > 0 && self.frames.lock().last().is_none_or(|last| last.revision < newest) {
            assert!(
                Instant::now() < deadline,
                "{}: an event that the upstream never sent",
                self.name()
            );
            tokio::time::sleep(TICK).await;
        }
        let frames = self.frames.lock();
        if let Some(state) = &run.state {
            let seen: Vec<_> = state.iter().map(|frame| (&*frame.key, &frame.object)).collect();
            let mut expected = BTreeMap::new();
            for frame in frames.iter().filter(|frame| frame.revision <= run.from) {
                if frame.event == "DELETED" {
                    expected.remove(&*frame.key);
                } else {
                    expected.insert(&*frame.key, &frame.object);
                }
            }
            let expected: Vec<(&str, &Bytes)> = expected.into_iter().collect();
            assert!(seen == expected, "{}: another state at {}", self.name(), run.from);
        }
        // Past the last event a client may know a later resourceVersion only by a bookmark; the
        // direct watch has it or never will.
        let within = |frame: &&Frame| {
            frame.revision > run.from && frame.revision <= run.reached.min(newest.max(run.from))
        };
        let expected: Vec<&Frame> = frames.iter().filter(within).collect();
        let seen: Vec<&Frame> = run.events.iter().collect();
        let at = (0..)
            .find(|at| seen.get(*at) != expected.get(*at) || expected.get(*at).is_none())
            .unwrap();
        assert!(
            seen == expected,
            "{}: events in ({}, {}] differ at {at}\nseen     {:?}\nexpected {:?}",
            self.name(),
            run.from,
            run.reached,
            seen.get(at),
            expected.get(at)
        );
        let missed = frames
            .iter()
            .find(|frame| frame.revision > newest.max(run.from) && frame.revision <= run.reached);
        assert!(
            missed.is_none(),
            "{}: {missed:?} was passed over by a bookmark at {}",
            self.name(),
            run.reached
        );
    }
}

/// Creates, changes and deletes the same few names.
async fn write(mut connection: Connection, count: usize, mut rng: Rng) {
    for number in 0..count {
        let (path, kind) = WRITTEN[rng.usize(..WRITTEN.len())];
        let path = path.replace("NS", rng.choice(&["a", "a-b"]).unwrap());
        let name = format!("o{}", rng.u8(..7));
        let one = format!("{path}/{name}");
        let call = match rng.u8(..10) {
            0..3 => Call::json(Method::POST, &path, &object(kind, &name, number, &mut rng)),
            3..5 => Call::json(Method::DELETE, &one, &json!({"gracePeriodSeconds": 0})),
            _ => {
                let mut patch = json!({"metadata": {"labels": labels(&mut rng), "annotations": {"n": number.to_string()}}});
                if kind == "Widget" {
                    patch["spec"] = json!({"color": *rng.choice(&["red", "blue"]).unwrap()});
                }
                Call::json(Method::PATCH, &one, &patch)
            }
        };
        let answer = connection.send(&call).await;
        assert!(matches!(answer.status, 200 | 201 | 404 | 409), "{call}: {}", answer.status);
        tokio::time::sleep(Duration::from_millis(rng.u64(1..12))).await;
    }
}

async fn prepare(direct: &Endpoint) {
    let mut connection = direct.connection();
    for namespace in ["a", "a-b"] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(&mut connection, "/api/v1/namespaces", &object).await;
    }
    let crd = super::objects::definition("widgets", "Widget", "Namespaced");
    let mut object =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    object["metadata"] = crd["metadata"].clone();
    object["spec"] = crd["spec"].clone();
    create(&mut connection, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &object)
        .await;
    let deadline = Instant::now() + STEP_TIMEOUT;
    while connection.send(&Call::get("/apis/example.com/v1/widgets")).await.status != 200 {
        assert!(Instant::now() < deadline, "widgets are not served");
        tokio::time::sleep(TICK).await;
    }
}

fn object(kind: &str, name: &str, number: usize, rng: &mut Rng) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(rng)}});
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.retain(|_, value| !value.is_null());
    }
    object["kind"] = kind.into();
    object["apiVersion"] = if kind == "Widget" { "example.com/v1" } else { "v1" }.into();
    match kind {
        "Widget" => {
            object["spec"] =
                json!({"color": *rng.choice(&["red", "blue"]).unwrap(), "n": number, "big": 1e21})
        }
        "Pod" => {
            let node = *rng.choice(&["n1", "n2"]).unwrap();
            object["spec"] = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        }
        _ => object["data"] = json!({"n": number.to_string(), "t": "<&>\u{2028}\u{e9}\"\\\n"}),
    }
    object
}

/// Two labels that appear, change and disappear; a patch removes those that are null.
fn labels(rng: &mut Rng) -> Value {
    let mut value = || match rng.u8(..3) {
        0 => Value::Null,
        number => json!(number.to_string()),
    };
    json!({"a": value(), "b": value()})
}

fn accepts(path: &str) -> &'static [&'static str] {
    if path.starts_with("/apis/example.com/") { &ACCEPTS[1..] } else { &ACCEPTS }
}

const ACCEPTS: [&str; 4] = [
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
];

const WRITTEN: [(&str, &str); 3] = [
    ("/api/v1/namespaces/NS/configmaps", "ConfigMap"),
    ("/api/v1/namespaces/NS/pods", "Pod"),
    ("/apis/example.com/v1/namespaces/NS/widgets", "Widget"),
];

/// Each selects the last object.
const COLLECTIONS: [(&str, &str); 10] = [
    ("/api/v1/configmaps", ""),
    ("/api/v1/configmaps", "&labelSelector=a%3D1"),
    ("/api/v1/namespaces/a/configmaps", "&labelSelector=a%20in%20(1,2),b!%3D2"),
    ("/api/v1/configmaps", "&fieldSelector=metadata.namespace%3Da,metadata.name!%3Do1"),
    ("/api/v1/pods", ""),
    ("/api/v1/pods", "&fieldSelector=status.phase%3DPending&labelSelector=b"),
    ("/api/v1/namespaces/a/pods", "&fieldSelector=spec.restartPolicy%3DAlways"),
    ("/apis/example.com/v1/widgets", ""),
    ("/apis/example.com/v1/widgets", "&labelSelector=b%3E0"),
    ("/apis/example.com/v1/namespaces/a/widgets", "&fieldSelector=spec.color!%3Dgreen"),
];

const TICK: Duration = Duration::from_millis(20);
