//! A watcher that goes on as client-go's reflector does: it begins with a list or a watch with
//! initial events, and watches again from its last resourceVersion whenever a watch ends. It lists
//! again after a 410, after another error in the stream, and after a watch that ended within a
//! second without any event.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;

use super::client::Client;
use super::reference::{Change, Frame, Lines, State, apply, read_list};
use crate::h2_tls::reset;

/// The objects that an informer watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Namespace(&'static str),
    /// One object of [`ONE_NAMESPACE`], as a kubelet does.
    One(&'static str),
}

impl Scope {
    pub(super) fn contains(self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.split('/').next() == Some(namespace),
            Self::One(name) => key.split_once('/') == Some((ONE_NAMESPACE, name)),
        }
    }
}

/// The path with the beginning of a query.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "/api/v1/configmaps?"),
            Self::Namespace(namespace) => write!(f, "/api/v1/namespaces/{namespace}/configmaps?"),
            Self::One(name) => write!(
                f,
                "/api/v1/namespaces/{ONE_NAMESPACE}/configmaps?fieldSelector=metadata.name%3D{name}&"
            ),
        }
    }
}

/// The state and the events of an informer.
#[derive(Default)]
pub(super) struct Informed {
    pub(super) store: State,
    /// Each begins with a whole state.
    pub(super) runs: Vec<Run>,
}

pub(super) struct Run {
    pub(super) from: u64,
    pub(super) known: u64,
    pub(super) events: Vec<Change>,
}

impl Informed {
    pub(super) fn known(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.known)
    }

    fn begin(&mut self, store: State, at: u64) {
        self.store = store;
        self.runs.push(Run { from: at, known: at, events: Vec::new() });
    }
}

/// The observations of all clients.
#[derive(Default)]
pub(super) struct Seen {
    /// Watches that are open.
    pub(super) open: AtomicUsize,
    pub(super) from_cache: AtomicUsize,
    pub(super) forwarded: AtomicUsize,
    /// Requests that failed, by the way.
    pub(super) failed: Mutex<BTreeMap<String, usize>>,
    /// Watches that were refused for the moment, by 429.
    pub(super) refused_for_now: AtomicUsize,
    /// Lists after the first one, by their causes.
    pub(super) lists: Mutex<BTreeMap<String, usize>>,
    /// How long watchers were without a watch.
    pub(super) gaps: Mutex<Vec<Duration>>,
    /// Answers to requests that are not watches.
    pub(super) answered: AtomicUsize,
}

impl Seen {
    pub(super) fn fail(&self, what: String) {
        *self.failed.lock().entry(what).or_default() += 1;
    }

    fn note_list(&self, cause: &str) {
        *self.lists.lock().entry(cause.to_owned()).or_default() += 1;
    }
}

pub(super) struct Informer {
    client: Arc<Client>,
    scope: Scope,
    /// Whether it begins with a watch instead of a list.
    streams: bool,
    informed: Arc<Mutex<Informed>>,
    seen: Arc<Seen>,
    /// When its last watch ended.
    closed: Option<Instant>,
}

enum End {
    /// Watch from the last resourceVersion.
    Resume,
    List(&'static str),
}

impl Informer {
    pub(super) fn new(client: Arc<Client>, scope: Scope, streams: bool, seen: Arc<Seen>) -> Self {
        Self { client, scope, streams, informed: Arc::default(), seen, closed: None }
    }

    pub(super) fn informed(&self) -> Arc<Mutex<Informed>> {
        Arc::clone(&self.informed)
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            let began = if self.streams { self.stream().await } else { self.list().await };
            let mut end = match began {
                Ok(end) => end,
                Err(what) => {
                    self.seen.fail(what);
                    back_off().await;
                    continue;
                }
            };
            while matches!(end, End::Resume) {
                end = self.watch().await;
            }
            if let End::List(cause) = end {
                self.seen.note_list(cause);
            }
            back_off().await;
        }
    }

    /// Any state at first, then one that is not older than now.
    fn least(&self) -> &'static str {
        if self.informed.lock().runs.is_empty() { "resourceVersion=0" } else { "" }
    }

    async fn list(&self) -> Result<End, String> {
        let path = format!("{}{}", self.scope, self.least());
        let (status, body) = self.client.fetch(&Method::GET, &path, "").await?;
        if status != 200 {
            return Err(format!("list: {status}"));
        }
        let (objects, at) = read_list(&body);
        self.informed.lock().begin(objects, at);
        Ok(End::Resume)
    }

    async fn stream(&mut self) -> Result<End, String> {
        let path = format!("{}{WATCH}{INITIAL}", self.scope);
        let response = self.client.get(&path).await?;
        if response.status() != 200 {
            return Err(format!("watch with initial events: {}", response.status()));
        }
        let mut lines = Lines::new(response.into_body());
        let mut objects = State::new();
        loop {
            match lines.next().await.map_err(|error| format!("initial events: {error:?}"))? {
                Some(Frame::Event(change)) => apply(&mut objects, &change),
                Some(Frame::Bookmark { version, ends_initial: true }) => {
                    self.informed.lock().begin(objects, version);
                    return Ok(self.follow(lines).await);
                }
                other => return Err(format!("{other:?} in initial events")),
            }
        }
    }

    async fn watch(&mut self) -> End {
        let known = self.informed.lock().known();
        let path = format!("{}{WATCH}&resourceVersion={known}", self.scope);
        loop {
            let response = match self.client.get(&path).await {
                Ok(response) => response,
                Err(what) => {
                    self.seen.fail(format!("watch: {what}"));
                    back_off().await;
                    continue;
                }
            };
            let header = response.headers().get("x-weir-cache");
            let cached = header.is_some_and(|value| value.as_bytes().starts_with(b"hit"));
            match response.status().as_u16() {
                200 => {
                    let seen = if cached { &self.seen.from_cache } else { &self.seen.forwarded };
                    seen.fetch_add(1, Ordering::Relaxed);
                    return self.follow(Lines::new(response.into_body())).await;
                }
                410 => return End::List("410"),
                429 => {
                    self.seen.refused_for_now.fetch_add(1, Ordering::Relaxed);
                    back_off().await;
                }
                status => {
                    self.seen.fail(format!("watch: {status}"));
                    back_off().await;
                }
            }
        }
    }

    async fn follow(&mut self, mut lines: Lines) -> End {
        if let Some(closed) = self.closed.take() {
            self.seen.gaps.lock().push(closed.elapsed());
        }
        self.seen.open.fetch_add(1, Ordering::Relaxed);
        let end = self.read(&mut lines).await;
        self.seen.open.fetch_sub(1, Ordering::Relaxed);
        self.closed = Some(Instant::now());
        end
    }

    async fn read(&self, lines: &mut Lines) -> End {
        let (opened, mut frames) = (Instant::now(), 0_usize);
        loop {
            let frame = match lines.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) if frames == 0 && opened.elapsed() < Duration::from_secs(1) => {
                    return End::List("a very short watch");
                }
                Ok(None) => return End::Resume,
                Err(error) if reset(&error).and_then(h2::Error::reason).is_some() => {
                    self.seen.fail("watch: reset".to_owned());
                    return End::List("a reset");
                }
                Err(_) => {
                    self.seen.fail("watch: its connection broke".to_owned());
                    return End::Resume;
                }
            };
            frames += 1;
            let mut informed = self.informed.lock();
            let Informed { store, runs } = &mut *informed;
            let run = runs.last_mut().unwrap();
            match frame {
                Frame::Event(change) => {
                    run.known = change.version;
                    apply(store, &change);
                    run.events.push(change);
                }
                Frame::Bookmark { version, .. } => run.known = version,
                Frame::Error(text) if text.contains(r#""code":410"#) => return End::List("410"),
                Frame::Error(text) => {
                    self.seen.fail(format!("watch: {text}"));
                    return End::List("an error event");
                }
            }
        }
    }
}

/// client-go's first wait.
async fn back_off() {
    tokio::time::sleep(Duration::from_millis(800).mul_f64(1.0 + fastrand::f64())).await;
}

pub(super) const ONE_NAMESPACE: &str = "a";
const WATCH: &str = "watch=1&allowWatchBookmarks=true&timeoutSeconds=590";
const INITIAL: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
