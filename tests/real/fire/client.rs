//! The parts that all clients share: requests with their outcomes, and the resourceVersions that
//! one client was shown, which must not fall.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use kube::Config;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;

use super::objects::{COLLECTIONS, Scope};
use super::reference::Key;
use super::world::World;
use crate::cuts::requests::{body, send};

/// One client with connections of its own.
pub(super) struct Client {
    name: String,
    http: kube::Client,
    pub(super) world: Arc<World>,
    /// For each resource the highest resourceVersion shown, and the number of its history.
    floors: [(u64, usize); COLLECTIONS.len()],
    /// The highest resourceVersion of a forwarded list of each resource.
    forwarded: [u64; COLLECTIONS.len()],
    objects: BTreeMap<Key, u64>,
}

/// A whole list.
pub(super) struct State {
    pub(super) resource_version: u64,
    pub(super) objects: BTreeMap<Key, u64>,
    pub(super) continue_token: String,
    /// The history that it must be of: the present one, if the read was consistent.
    pub(super) history: Option<usize>,
    pub(super) cached: bool,
}

/// A status other than 200, or 0 for a broken connection or none.
pub(super) type Failure = u16;

/// How a response's resourceVersion is bounded from below, besides by what the client was shown.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    /// Any state.
    Any,
    /// This state or a later one.
    NotOlderThan(u64),
    /// A state with every write that was committed before the request.
    Consistent,
}

impl Client {
    pub(super) async fn new(world: &Arc<World>, name: String) -> Self {
        let http = connect(&world.kubeconfig).await;
        let world = Arc::clone(world);
        let (floors, forwarded) = Default::default();
        Self { name, http, world, floors, forwarded, objects: BTreeMap::new() }
    }

    /// Sends a GET. Returns the response once its head is there, and whether the cache answered.
    pub(super) async fn open(&self, path: &str, kind: &str) -> Result<Answered, Failure> {
        let sent = tokio::time::timeout(HEAD_TIMEOUT, send(&self.http, path, &[]));
        let Ok(Some(response)) = sent.await else {
            self.world.report.count(&format!("{kind}: no answer"));
            return Err(0);
        };
        let header = response.headers().get("x-weir-cache");
        let cached = header.is_some_and(|value| value.as_bytes().starts_with(b"hit"));
        let status = response.status().as_u16();
        self.world.report.count(&match status {
            200 if cached => format!("{kind}: from the cache"),
            200 => format!("{kind}: forwarded"),
            _ => format!("{kind}: {status}"),
        });
        match status {
            200 => Ok(Answered { response, cached }),
            404 | 410 | 429 | 500..=504 => Err(status),
            403 if self.world.may_refuse() => Err(status),
            _ => {
                self.violation(&format!("{status} to {path}"));
                Err(status)
            }
        }
    }

    /// Lists a collection, and checks the resourceVersion.
    pub(super) async fn list(
        &mut self,
        scope: Scope,
        query: &str,
        bound: Bound,
        kind: &str,
    ) -> Result<State, Failure> {
        let before = self.world.reference.newest(scope.resource);
        let path = format!("{}?{query}", scope.path());
        let answered = self.open(&path, kind).await?;
        let list = self.read::<List>(answered.response, kind).await?;
        let (at, path) = (list.metadata.version(), format!("{path}, cached: {}", answered.cached));
        self.check_bound(before, scope, at, bound, &path);
        self.check_answer(scope.resource, at, answered.cached, &path);
        let key = |metadata: &Metadata| {
            format!("{}/{}/{}", scope.resource, metadata.namespace, metadata.name).into()
        };
        let items = list.items.iter().map(|item| &item.metadata);
        let objects: BTreeMap<_, _> =
            items.map(|metadata| (key(metadata), metadata.version())).collect();
        let continue_token = list.metadata.continue_token;
        let history = self.history_of(before, bound);
        let cached = answered.cached;
        Ok(State { resource_version: at, objects, continue_token, history, cached })
    }

    /// Gets an object, and checks its resourceVersion.
    pub(super) async fn get(&mut self, scope: Scope, key: &Key, query: &str, kind: &str) {
        let before = self.world.reference.number();
        let name = key.rsplit('/').next().unwrap();
        let path = format!("{}/{name}?{query}", scope.path());
        let Ok(answered) = self.open(&path, kind).await else { return };
        let Answered { response, cached } = answered;
        let Ok(item) = self.read::<Item>(response, kind).await else { return };
        let at = item.metadata.version();
        let floor = self.objects.get(key).copied().unwrap_or(0);
        if cached {
            self.objects.insert(Arc::clone(key), at);
        }
        if (cached || query.is_empty())
            && at < floor
            && self.world.reference.number() == before
            && self.floors_are_of(before)
        {
            self.violation(&format!("{path}: {at} after {floor}"));
        }
    }

    /// Notes the objects of a list from the cache: later GETs may show nothing older. An object
    /// that is missing may come back later only.
    pub(super) fn remember(&mut self, scope: Scope, state: &State) {
        if !state.cached {
            return;
        }
        for (key, at) in &mut self.objects {
            if scope.contains(key) {
                *at = state.resource_version;
            }
        }
        self.objects.extend(state.objects.iter().map(|(key, at)| (Arc::clone(key), *at)));
    }

    /// Checks the resourceVersion of an answer. The cache may be a few milliseconds behind a read
    /// that was forwarded before; how often it is, is counted.
    pub(super) fn check_answer(&mut self, resource: usize, at: u64, cached: bool, what: &str) {
        if cached {
            self.see(resource, at, what);
            if at < self.forwarded[resource] {
                self.world.report.count("answers of the cache older than a forwarded one before");
            }
        } else {
            let floor = &mut self.forwarded[resource];
            *floor = at.max(*floor);
        }
    }

    /// Checks that a resource does not go back, but once in each new history.
    pub(super) fn see(&mut self, resource: usize, at: u64, what: &str) {
        let number = self.world.reference.number();
        let (floor, history) = self.floors[resource];
        if at < floor && history == number {
            self.violation(&format!("{what}: {at} after {floor}"));
        }
        if at < floor && history < number {
            self.objects.clear();
            self.floors[resource] = (at, number);
        } else {
            // An answer of the lost history may still come after the new one has begun.
            let history = if history == 0 { number } else { history };
            self.floors[resource] = (at.max(floor), history);
        }
    }

    /// Checks the bound of a response to a request that was sent at `before`.
    pub(super) fn check_bound(
        &self,
        before: (usize, u64),
        scope: Scope,
        at: u64,
        bound: Bound,
        path: &str,
    ) {
        let least = match bound {
            Bound::Any => 0,
            Bound::NotOlderThan(least) => least,
            Bound::Consistent => before.1,
        };
        if at < least && self.world.reference.newest(scope.resource).0 == before.0 {
            self.violation(&format!("{path}: {at}, but must not be older than {least}"));
        }
    }

    /// Returns the history of a response that was requested at `before`, if it is certain.
    pub(super) fn history_of(&self, before: (usize, u64), bound: Bound) -> Option<usize> {
        let is_same =
            self.world.reference.newest(0).0 == before.0 && self.world.reference.is_running();
        (is_same && matches!(bound, Bound::Consistent)).then_some(before.0)
    }

    pub(super) fn violation(&self, what: &str) {
        self.world.report.violation(&format!("{}: {what}", self.name));
    }

    fn floors_are_of(&self, history: usize) -> bool {
        self.floors.iter().all(|(_, number)| *number == history || *number == 0)
    }

    async fn read<T>(&self, response: Response<Body>, kind: &str) -> Result<T, Failure>
    where
        T: for<'a> Deserialize<'a>,
    {
        let read = tokio::time::timeout(HEAD_TIMEOUT, body(response)).await;
        let bytes: Option<Bytes> = read.ok().flatten();
        let whole = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        whole.ok_or_else(|| {
            self.world.report.count(&format!("{kind}: broke off"));
            0
        })
    }
}

/// Returns a client that repeats nothing by itself.
pub(super) async fn connect(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// A response with status 200.
pub(super) struct Answered {
    pub(super) response: Response<Body>,
    pub(super) cached: bool,
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

/// The metadata of an object or a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
}

impl Metadata {
    pub(super) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// Longer than Weir makes any request wait.
const HEAD_TIMEOUT: Duration = Duration::from_secs(40);
