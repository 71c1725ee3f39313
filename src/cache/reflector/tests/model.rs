//! Tests the reflector and the watch cache against a model of an upstream that loses connections,
//! compacts its history and fails at random. In the end the cache must equal the model's state, and
//! no client may lose an event, or receive one twice or out of order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Buf as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::api::resource::{Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::core::watcher::{Batch, WatchFilter, WatchStart, Watcher};
use crate::cache::key::CacheKey;
use crate::cache::script::{bookmark, config, object, page, status};
use crate::codec::list::ListPage;
use crate::testing::config_maps;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    Answer, ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};

/// An API server with one collection. Every write has its own resourceVersion.
struct Model {
    upstream: Mutex<UpstreamState>,
    changed: Notify,
    lists: Lists,
    connections: AtomicU64,
}

/// How the reflector can list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    StreamedList,
    WatchList,
    Pages,
}

/// The state of the upstream, and how it got there.
struct UpstreamState {
    random: fastrand::Rng,
    /// The writes: resourceVersion, name, and whether the object was deleted.
    log: Vec<(u64, String, bool)>,
    now: u64,
    compacted: u64,
    /// The percentage of calls that fail.
    faults: u32,
}

impl UpstreamState {
    fn succeeds(&mut self) -> bool {
        self.random.u32(0..100) >= self.faults
    }

    fn at(&self, resource_version: u64) -> BTreeMap<String, u64> {
        let mut state = BTreeMap::new();
        for (at, name, deleted) in self.log.iter().filter(|(at, ..)| *at <= resource_version) {
            if *deleted {
                state.remove(name);
            } else {
                state.insert(name.clone(), *at);
            }
        }
        state
    }

    fn write(&mut self) {
        self.now += self.random.u64(1..4);
        let name = self.random.u32(0..12).to_string();
        let deletes = self.at(self.now).contains_key(&name) && self.random.u32(0..3) == 0;
        self.log.push((self.now, name, deletes));
    }
}

impl Model {
    fn new(seed: u64, lists: Lists) -> Arc<Self> {
        let random = fastrand::Rng::with_seed(seed);
        let upstream = UpstreamState { random, log: Vec::new(), now: 10, compacted: 0, faults: 20 };
        Arc::new(Self {
            upstream: Mutex::new(upstream),
            changed: Notify::new(),
            lists,
            connections: AtomicU64::new(1),
        })
    }

    fn write(&self) {
        let mut upstream = self.upstream.lock();
        upstream.write();
        if upstream.random.u32(0..20) == 0 {
            upstream.compacted = upstream.now;
        }
        drop(upstream);
        self.changed.notify_waiters();
    }

    fn open(
        self: &Arc<Self>,
        request: &WatchRequest,
    ) -> Result<(ModelWatch, Duration), UpstreamError> {
        let mut upstream = self.upstream.lock();
        if request.send_initial_events && self.lists == Lists::Pages {
            return Err(status(422, "no watch-list"));
        }
        if !upstream.succeeds() {
            return Err(UpstreamError::Lost("a fault".to_owned()));
        }
        let mut ready = VecDeque::new();
        let from = if request.send_initial_events {
            let match_nothing = request.match_nothing;
            let state = if match_nothing { BTreeMap::new() } else { upstream.at(upstream.now) };
            ready.extend(state.iter().map(|(name, at)| UpstreamEvent::Upsert(object(name, *at))));
            ready.push_back(bookmark(upstream.now, true));
            upstream.now
        } else {
            request.resource_version.unwrap().0
        };
        if from < upstream.compacted {
            ready.push_back(UpstreamEvent::Error(status(410, "too old")));
        }
        let pause = Duration::from_millis(upstream.random.u64(0..1500));
        let ends = Instant::now() + Duration::from_secs(request.timeout_seconds.into());
        Ok((ModelWatch { model: self.clone(), ready, from, ends }, pause))
    }
}

/// The model's API.
struct Api(Arc<Model>);

impl ListWatch for Api {
    fn list(&self, request: ListRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut upstream = self.0.upstream.lock();
            if !upstream.succeeds() {
                return Err(status(500, "a fault"));
            }
            let (at, from) = match request.continue_token.split_once(':') {
                Some((at, from)) => (at.parse().unwrap(), from.to_owned()),
                None => (upstream.now, String::new()),
            };
            if at < upstream.compacted {
                return Err(status(410, "compacted"));
            }
            let state = upstream.at(at);
            let limit = request.limit.map_or(usize::MAX, |limit| limit as usize);
            let mut rest = state.range(from..);
            let objects = rest.by_ref().take(limit).map(|(name, rv)| object(name, *rv)).collect();
            let remaining = rest.clone().count() as u64;
            let next = rest.next().map(|(name, _)| format!("{at}:{name}"));
            let page = page(at, &next.unwrap_or_default(), objects);
            Ok(ListPage { remaining_item_count: Some(remaining), ..page })
        })
    }

    fn cluster_uid(&self) -> Answer<'_, Option<String>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.0.connections.fetch_add(1, Ordering::Relaxed);
            if !self.0.upstream.lock().succeeds() {
                return Err(status(500, "a fault"));
            }
            Ok(Some("cluster".to_owned()))
        })
    }

    fn connections_opened(&self) -> u64 {
        self.0.connections.load(Ordering::Relaxed)
    }

    fn streams_lists(&self) -> bool {
        self.0.lists == Lists::StreamedList
    }

    /// Streams the initial events of a watch. The model's stream ends with them.
    fn stream_list(&self, request: ListRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            let resource_version = request.resource_version;
            let request = WatchRequest {
                resource_version,
                send_initial_events: true,
                timeout_seconds: 60,
                ..WatchRequest::default()
            };
            self.watch(request).await
        })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            self.0.connections.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
            let (watch, pause) = self.0.open(&request)?;
            // This pause lets writes happen between reading the state and the first frame, so that
            // one read can contain them and the end of the initial events.
            tokio::time::sleep(pause).await;
            Ok(Box::new(watch) as Box<dyn WatchStream>)
        })
    }
}

struct ModelWatch {
    model: Arc<Model>,
    ready: VecDeque<UpstreamEvent>,
    from: u64,
    ends: Instant,
}

impl WatchStream for ModelWatch {
    fn next(&mut self) -> Answer<'_, Option<Vec<UpstreamEvent>>> {
        Box::pin(async move {
            loop {
                let model = self.model.clone();
                let changed = model.changed.notified();
                if let Some(read) = self.read() {
                    return read;
                }
                let _elapsed = tokio::time::timeout(Duration::from_secs(1), changed).await.is_err();
            }
        })
    }
}

impl ModelWatch {
    fn read(&mut self) -> Option<Result<Option<Vec<UpstreamEvent>>, UpstreamError>> {
        let mut upstream = self.model.upstream.lock();
        if upstream.random.u32(0..400) < upstream.faults {
            let clean = upstream.random.bool();
            return Some(if clean { Ok(None) } else { Err(UpstreamError::Lost("cut".to_owned())) });
        }
        if Instant::now() >= self.ends {
            return Some(Ok(None));
        }
        let from = self.from;
        for (at, name, deleted) in upstream.log.iter().filter(|(at, ..)| *at > from) {
            let object = object(name, *at);
            let event = if *deleted { UpstreamEvent::Delete } else { UpstreamEvent::Upsert };
            self.ready.push_back(event(object));
            self.from = *at;
        }
        if self.ready.is_empty() && upstream.random.u32(0..4) == 0 {
            self.ready.push_back(bookmark(upstream.now, false));
        }
        let count = upstream.random.usize(1..=self.ready.len().max(1));
        (!self.ready.is_empty()).then(|| Ok(Some(self.ready.drain(..count).collect())))
    }
}

/// A client that resumes as client-go does, and checks the resourceVersions of all its events.
#[derive(Default)]
struct Client {
    watcher: Option<Watcher>,
    state: BTreeMap<String, u64>,
    last: Option<u64>,
    /// Whether the client is receiving the events of a relist.
    in_relist: bool,
}

impl Client {
    fn poll(&mut self, cached: &CachedResource, upstream: &UpstreamState) {
        let Some(watcher) = &mut self.watcher else { return self.connect(cached) };
        match watcher.next_batch(1 << 20) {
            Batch::Frames { chunks, .. } => self.receive_all(&chunks.concat(), upstream),
            Batch::InitialEvents { mut frames, .. } => {
                self.receive_all(&frames.copy_to_bytes(frames.remaining()), upstream);
            }
            Batch::InitialEventsEnd(at) => {
                assert_eq!(
                    self.state,
                    upstream.at(at.0),
                    "the initial state differs from the state at its resourceVersion"
                );
                self.last = Some(at.0);
            }
            Batch::Yield => {}
            Batch::Idle => {
                let at = watcher.resource_version().0;
                if self.last.is_some_and(|last| last <= at) {
                    assert_eq!(self.state, upstream.at(at), "an event was lost");
                }
                if watcher.take_bookmark_due() || fastrand::bool() {
                    self.last = self.last.max(Some(at));
                }
                self.in_relist = false;
            }
            Batch::Ended(_) => self.watcher = None,
        }
    }

    fn connect(&mut self, cached: &CachedResource) {
        let start = match self.last {
            Some(last) => WatchStart::After(ResourceVersion(last)),
            None => WatchStart::InitialEvents,
        };
        match cached.watch_cache.watch(WatchFilter::default(), start) {
            Ok(watcher) => {
                self.in_relist = false;
                if start == WatchStart::InitialEvents {
                    self.state.clear();
                }
                self.watcher = Some(watcher);
            }
            Err(WatchRefusal::NotReady | WatchRefusal::Unreadable) => {}
            Err(WatchRefusal::Expired { .. }) => self.last = None,
        }
    }

    fn receive_all(&mut self, text: &[u8], upstream: &UpstreamState) {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.receive(&serde_json::from_slice(line).unwrap(), upstream);
        }
    }

    fn receive(&mut self, event: &serde_json::Value, upstream: &UpstreamState) {
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        let at: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        // Deletions by a relist have the resourceVersion before it, which may be the object's own.
        let is_newer = if event["type"] == "DELETED" {
            self.state.remove(&name) <= Some(at)
        } else {
            self.state.insert(name, at) < Some(at)
        };
        assert!(is_newer, "an object went back to an older state");
        if let Some(last) = self.last {
            let next = upstream.log.iter().map(|(at, ..)| *at).find(|at| *at > last);
            // Events may be missing only if the upstream compacted them. The others are in order,
            // and the state is right after them.
            self.in_relist |= Some(at) != next && last < upstream.compacted;
            assert!(
                Some(at) == next || self.in_relist,
                "an event was lost, repeated or out of order"
            );
            assert!(last <= at, "the resourceVersion went back");
            self.last = Some(at);
        }
    }
}

async fn run_history(seed: u64, lists: Lists) {
    fastrand::seed(seed);
    let model = Model::new(seed, lists);
    let api = Arc::new(Api(model.clone()));
    let context = context(config());
    let resource = Arc::new(config_maps());
    let (gvr, representation) = (resource.gvr.clone(), Representation::Json);
    let key = CacheKey { gvr, representation, scope: Scope::Cluster };
    let cached = Arc::new(CachedResource::new(key, resource, api, context, false));
    let task = tokio::spawn(run(cached.clone(), StartOptions::default()));
    let mut clients: Vec<_> = (0..4).map(|_| Client::default()).collect();
    for step in 0..3000 {
        if step == 2500 {
            model.upstream.lock().faults = 0;
        }
        let pause = Duration::from_millis(fastrand::u64(0..1000));
        tokio::time::sleep(pause).await;
        if step < 2500 && fastrand::bool() {
            model.write();
        }
        let upstream = model.upstream.lock();
        for client in clients.iter_mut().filter(|_| fastrand::bool()) {
            client.poll(&cached, &upstream);
        }
    }
    let upstream = model.upstream.lock();
    let held = cached.watch_cache.state().unwrap();
    let held: BTreeMap<_, _> = held
        .select(&WatchFilter::default())
        .iter()
        .map(|object| (object.key.name().to_owned(), object.resource_version.0))
        .collect();
    assert_eq!(held, upstream.at(upstream.now));
    for client in &clients {
        assert_eq!(client.state, held);
    }
    assert!(!task.is_finished());
    assert_eq!(cached.context.history.generation(), 0, "no rewind is reported");
}

#[tokio::test(start_paused = true)]
async fn with_watch_lists_the_cache_equals_the_upstream() {
    for seed in 0..SEEDS {
        run_history(seed, Lists::WatchList).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_streamed_lists_the_cache_equals_the_upstream() {
    for seed in 0..SEEDS {
        run_history(seed, Lists::StreamedList).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_pages_the_cache_equals_the_upstream() {
    for seed in 0..SEEDS {
        run_history(seed, Lists::Pages).await;
    }
}

/// Each seed takes about forty virtual minutes, and half a second of CPU time in a debug build.
const SEEDS: u64 = 4;
