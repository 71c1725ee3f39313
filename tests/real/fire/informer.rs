//! An informer as client-go's reflector works: a list or a watch with initial events, then watches
//! from the last resourceVersion, and a list again where a watch cannot go on.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use super::client::{Bound, Client, Failure};
use super::frames::{Frame, Frames};
use super::objects::Scope;
use super::reference::{Change, Key, Kind};

/// The state and the history of an informer, shared with the checks.
#[derive(Default)]
pub(super) struct Informed {
    pub(super) store: BTreeMap<Key, u64>,
    /// The last one has not ended.
    pub(super) runs: Vec<Run>,
}

/// All between a beginning with a whole state and the next one.
#[derive(Clone)]
pub(super) struct Run {
    /// The number of objects' state at the beginning.
    pub(super) digest: u64,
    pub(super) from: u64,
    pub(super) reached: u64,
    pub(super) events: Vec<Change>,
    /// The resourceVersions of bookmarks, with the state when they came.
    pub(super) bookmarks: Vec<(u64, u64)>,
    /// The number of the history when it began.
    pub(super) history: usize,
    /// Whether a 410 ended it.
    pub(super) expired: bool,
}

/// One informer.
pub(super) struct Informer {
    client: Client,
    scope: Scope,
    /// Whether it begins with a watch instead of a list.
    streams: bool,
    rng: Rng,
    informed: Arc<Mutex<Informed>>,
    /// The resourceVersion of its next list: client-go's `relistResourceVersion`.
    relist_at: RelistAt,
    backoff: Duration,
}

#[derive(Clone, Copy)]
enum RelistAt {
    First,
    Last(u64),
    Consistent,
}

enum Ended {
    /// The next watch may go on.
    Clean,
    /// It has to list again.
    Relist,
}

impl Informer {
    pub(super) fn new(client: Client, scope: Scope, streams: bool, seed: u64) -> Self {
        Self {
            client,
            scope,
            streams,
            rng: Rng::with_seed(seed),
            informed: Arc::default(),
            relist_at: RelistAt::First,
            backoff: BACKOFF_MIN,
        }
    }

    pub(super) fn informed(&self) -> Arc<Mutex<Informed>> {
        Arc::clone(&self.informed)
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            let began = if self.streams { self.stream().await } else { self.list().await };
            match began {
                Ok(()) => self.watch().await,
                Err(status) => {
                    // Too old, or too large for the API server.
                    if matches!(status, 410 | 504) {
                        self.relist_at = RelistAt::Consistent;
                    }
                    self.back_off().await;
                }
            }
        }
    }

    async fn list(&mut self) -> Result<(), Failure> {
        let (query, bound) = match self.relist_at {
            RelistAt::First => ("resourceVersion=0".to_owned(), Bound::Any),
            RelistAt::Last(at) => (format!("resourceVersion={at}"), Bound::NotOlderThan(at)),
            RelistAt::Consistent => (String::new(), Bound::Consistent),
        };
        let state = self.client.list(self.scope, &query, bound, "informer's list").await?;
        self.begin(state.objects, state.resource_version, state.cached);
        Ok(())
    }

    async fn stream(&mut self) -> Result<(), Failure> {
        let (at, bound) = match self.relist_at {
            RelistAt::Last(at) => (format!("&resourceVersion={at}"), Bound::NotOlderThan(at)),
            RelistAt::First | RelistAt::Consistent => (String::new(), Bound::Consistent),
        };
        let before = self.client.world.reference.newest(self.scope.resource);
        let seconds = self.rng.u64(SECONDS);
        let path = format!("{}?{INITIAL}&timeoutSeconds={seconds}{at}", self.scope.path());
        let answered = self.client.open(&path, "informer's initial watch").await?;
        let mut frames = Frames::new(self.scope.resource, answered.response);
        let mut objects = BTreeMap::new();
        let limit = Duration::from_secs(seconds + LATE);
        let initial = async {
            loop {
                match frames.next().await {
                    Some(Frame::Event(change)) => objects.insert(change.key, change.revision),
                    Some(Frame::Bookmark { at, ends_initial: true }) => return Ok(at),
                    Some(Frame::Bookmark { .. }) => None,
                    Some(Frame::Error(code)) => return Err(code),
                    None => return Err(0),
                };
            }
        };
        let at = tokio::time::timeout(limit, initial).await.unwrap_or(Err(0))?;
        self.client.check_bound(before, self.scope, at, bound, &path);
        self.begin(objects, at, answered.cached);
        if matches!(self.follow(frames, seconds).await, Ended::Relist) {
            return Err(0);
        }
        Ok(())
    }

    fn begin(&mut self, objects: BTreeMap<Key, u64>, at: u64, cached: bool) {
        let what = format!("a new state of {}", self.scope);
        self.client.check_answer(self.scope.resource, at, cached, &what);
        let run = Run {
            digest: digest(&objects),
            from: at,
            reached: at,
            events: Vec::new(),
            bookmarks: Vec::new(),
            history: self.client.world.reference.number(),
            expired: false,
        };
        let mut informed = self.informed.lock();
        informed.store = objects;
        informed.runs.push(run);
        self.relist_at = RelistAt::Last(at);
        self.backoff = BACKOFF_MIN;
    }

    /// Watches until it has to list again.
    async fn watch(&mut self) {
        loop {
            let reached = self.reached();
            let seconds = self.rng.u64(SECONDS);
            let path = format!(
                "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={reached}",
                self.scope.path()
            );
            match self.client.open(&path, "informer's watch").await {
                Ok(answered) => {
                    let frames = Frames::new(self.scope.resource, answered.response);
                    if matches!(self.follow(frames, seconds).await, Ended::Relist) {
                        return;
                    }
                }
                // No connection, and too many requests.
                Err(0 | 429) => self.back_off().await,
                Err(status) => {
                    self.last_run(|run| run.expired = status == 410);
                    self.back_off().await;
                    return;
                }
            }
        }
    }

    async fn follow(&mut self, mut frames: Frames, seconds: u64) -> Ended {
        let until = tokio::time::Instant::now() + Duration::from_secs(seconds + LATE);
        loop {
            let Ok(frame) = tokio::time::timeout_at(until, frames.next()).await else {
                self.client.world.report.count("watches that outlived their time-out");
                return Ended::Clean;
            };
            match frame {
                Some(Frame::Event(change)) => self.apply(change),
                Some(Frame::Bookmark { at, .. }) => {
                    self.advance(at, "a bookmark");
                    let state = digest(&self.informed.lock().store);
                    self.last_run(|run| run.bookmarks.push((at, state)));
                }
                Some(Frame::Error(code)) => {
                    self.client.world.report.count(&format!("watches ended by {code}"));
                    self.last_run(|run| run.expired = code == 410);
                    return if code == 429 { Ended::Clean } else { Ended::Relist };
                }
                None => return Ended::Clean,
            }
        }
    }

    fn apply(&mut self, change: Change) {
        // The deletions after a list of Weir are all at the resourceVersion before it.
        let is_repeated = change.revision == self.reached() && change.kind != Kind::Deleted;
        if change.revision < self.reached() || is_repeated {
            let what = format!("{}: event {change:?} after {}", self.scope, self.reached());
            self.client.violation(&what);
        }
        self.advance(change.revision, "an event");
        let mut informed = self.informed.lock();
        match change.kind {
            Kind::Deleted => informed.store.remove(&change.key),
            _ => informed.store.insert(Arc::clone(&change.key), change.revision),
        };
        informed.runs.last_mut().unwrap().events.push(change);
    }

    fn advance(&mut self, at: u64, what: &str) {
        let reached = self.reached();
        if at < reached {
            self.client.violation(&format!("{}: {what} at {at} after {reached}", self.scope));
        }
        self.last_run(|run| run.reached = at.max(reached));
        self.relist_at = RelistAt::Last(at.max(reached));
    }

    fn reached(&self) -> u64 {
        self.informed.lock().runs.last().map_or(0, |run| run.reached)
    }

    fn last_run(&self, change: impl FnMut(&mut Run)) {
        self.informed.lock().runs.last_mut().into_iter().for_each(change);
    }

    async fn back_off(&mut self) {
        tokio::time::sleep(self.backoff.mul_f64(1.0 + self.rng.f64())).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

/// Returns a number that stands for a set of objects with their resourceVersions.
pub(super) fn digest<'a>(objects: impl IntoIterator<Item = (&'a Key, &'a u64)>) -> u64 {
    objects.into_iter().fold(0, |sum, (key, at)| sum ^ digest_of(key, *at))
}

/// The part of one object in the digest of a set; adding it again removes it.
pub(super) fn digest_of(key: &Key, at: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&**key, at).hash(&mut hasher);
    hasher.finish()
}

pub(super) const INITIAL: &str =
    "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
/// client-go's are 300 to 600; shorter watches begin more often.
const SECONDS: std::ops::Range<u64> = 20..60;
/// When the client gives a watch up after its time-out.
const LATE: u64 = 15;
/// client-go's; its longest is 30 s.
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
