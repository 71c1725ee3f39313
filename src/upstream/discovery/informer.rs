//! A small informer for CRDs and APIServices. It keeps a few facts of each object, follows them
//! with a watch, and notifies its receivers when they change.
//!
//! A watch that ends or breaks is resumed where it was, since a list of CRDs has all their schemas.
//! The API server of the next watch must have reached that resourceVersion: one that lags sends
//! nothing until then, and so does one whose history was rewound. Otherwise the informer lists.
//! Lists are consistent, because an instance of the upstream that lags could bring back a
//! definition that is gone, and with it the caches of that definition.
//!
//! A watch has a deadline, after which its connection counts as dead. A 403 or 404 ends what is
//! known only if it lasts ([`Refusals`]).

mod facts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

pub(super) use self::facts::{Facts, parse_list};
use self::facts::{parse_bookmark, parse_object};
use crate::api::media_type::Encoding;
use crate::codec::frame::{FrameSplitter, FrameType, RawFrame};
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::discovery::refusals::Refusals;
use crate::upstream::endpoints::pin::Pin;
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::fetch::Get;
use crate::upstream::reached::{REACH_TIMEOUT, in_time, not_older};
use crate::upstream::self_review::may_list_and_watch;
use crate::upstream::status::status_error;
use crate::upstream::{Choice, TrafficClass, Upstream, pool};

/// A collection that discovery needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    pub(super) path: &'static str,
    pub(super) group: &'static str,
    /// Its plural name.
    pub(super) resource: &'static str,
}

/// The state of a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum InformerState<T> {
    /// Not listed yet.
    Pending,
    /// Weir's identity may not list it.
    Forbidden,
    /// The upstream does not serve it, as a virtual cluster may not.
    Absent,
    /// The facts of each object, by name.
    Synced(BTreeMap<String, T>),
}

impl<T> InformerState<T> {
    /// Returns the facts, if the collection was listed.
    pub(super) fn synced(&self) -> Option<&BTreeMap<String, T>> {
        match self {
            Self::Synced(facts) => Some(facts),
            Self::Pending | Self::Forbidden | Self::Absent => None,
        }
    }
}

/// Follows one collection.
pub(super) struct Informer<T> {
    upstream: Upstream,
    collection: Collection,
    /// The API server that is watched.
    pin: Arc<Pin>,
    state: watch::Sender<InformerState<T>>,
    /// Changes when the collection must be listed again.
    doubts: watch::Receiver<u64>,
    is_watching: Arc<AtomicBool>,
    refusals: Refusals,
    /// The resourceVersion up to which the facts are complete; `None` if the next watch follows a
    /// list.
    held: Option<String>,
}

impl<T: Facts> Informer<T> {
    /// Creates an informer that sets `state`, and lists again when `doubts` changes.
    pub(super) fn new(
        upstream: Upstream,
        collection: Collection,
        state: watch::Sender<InformerState<T>>,
        doubts: watch::Receiver<u64>,
    ) -> Self {
        Self {
            upstream,
            collection,
            pin: Arc::new(Pin::new(collection.path)),
            state,
            doubts,
            is_watching: Arc::default(),
            refusals: Refusals::default(),
            held: None,
        }
    }

    /// Returns whether the watch is open.
    pub(super) fn is_watching(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_watching)
    }

    /// Follows the collection while its state has receivers.
    pub(super) async fn run(mut self) {
        while !self.state.is_closed() {
            let ended = self.list_and_watch().await;
            self.is_watching.store(false, Ordering::Relaxed);
            let delay = match ended {
                // Watches that end immediately must not cause a busy loop.
                Ok(()) => DELAY_MIN,
                Err(error) => self.failed(&error).await,
            };
            let is_pending = *self.state.borrow() == InformerState::Pending;
            let delay = if is_pending { delay.min(FIRST_RETRY_DELAY) } else { delay };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.upstream.availability().until_returned() => {}
            }
        }
    }

    /// Returns the delay after a failure.
    async fn failed(&mut self, error: &UpstreamError) -> Duration {
        let path = self.collection.path;
        let code = match error {
            UpstreamError::Status { code, .. } => *code,
            UpstreamError::Malformed(_) => {
                self.held = None;
                StatusCode::OK
            }
            _ => StatusCode::OK,
        };
        let state = match code {
            StatusCode::FORBIDDEN => InformerState::Forbidden,
            StatusCode::NOT_FOUND => InformerState::Absent,
            StatusCode::GONE => {
                tracing::debug!(path, "the upstream no longer has the events; listing again");
                self.held = None;
                return DELAY_MIN;
            }
            _ => {
                tracing::debug!(path, %error, "cannot list or watch a collection that discovery needs; retrying");
                return RETRY_DELAY.mul_f64(1.0 + fastrand::f64());
            }
        };
        let is_known = self.state.borrow().synced().is_some();
        let delay = self.refusals.next_delay(is_known);
        let is_believed = self.refusals.are_believed(is_known);
        if is_believed && (!is_known || self.is_denied(code).await) {
            self.held = None;
            self.set(state);
        }
        delay
    }

    /// Whether a refusal that has lasted is final: access reviews must deny what was forbidden.
    async fn is_denied(&self, code: StatusCode) -> bool {
        let Collection { path, group, resource } = self.collection;
        if code != StatusCode::FORBIDDEN {
            return true;
        }
        match may_list_and_watch(&self.upstream, group, resource, "").await {
            Ok(is_allowed) => !is_allowed,
            Err(error) => {
                tracing::debug!(path, %error, "an access review of Weir's own failed");
                false
            }
        }
    }

    /// Watches the collection until the watch ends, after a list if need be.
    async fn list_and_watch(&mut self) -> Result<(), UpstreamError> {
        let (held, is_resumed) = match self.held.clone() {
            Some(held) => (held, true),
            None => (self.list().await?, false),
        };
        let seconds = fastrand::u64(TIMEOUT_SECONDS);
        let deadline = Instant::now() + Duration::from_secs(seconds) + DEADLINE_GRACE;
        let path = self.collection.path;
        let watch = format!(
            "{path}?watch=1&allowWatchBookmarks=true&resourceVersion={held}&timeoutSeconds={seconds}"
        );
        let get = Get { class: TrafficClass::Stream, timeout: HEAD_TIMEOUT, ..Get::json(&watch) };
        let response = get.send_by(&self.upstream, self.choice()).await?;
        if is_resumed && !self.has_reached(&held).await? {
            self.pin.leave(Instant::now());
            self.held = None;
            return Ok(());
        }
        self.refusals.note_watch();
        self.is_watching.store(true, Ordering::Relaxed);
        let mut doubts = self.doubts.clone();
        tokio::select! {
            ended = timeout_at(deadline, self.read_events(response.into_body())) => {
                ended.unwrap_or_else(|_elapsed| {
                    let text = "the watch outlived its own time-out; its connection is dead";
                    Err(UpstreamError::Lost(text.to_owned()))
                })
            }
            Ok(()) = doubts.changed() => {
                self.held = None;
                Ok(())
            }
        }
    }

    /// Lists the collection, and returns the list's resourceVersion.
    async fn list(&mut self) -> Result<String, UpstreamError> {
        self.doubts.mark_unchanged();
        let path = self.collection.path;
        let read = async {
            let answer = Get::json(path).send_by(&self.upstream, self.choice()).await?;
            read_body(answer.into_body(), LIST_BYTES_MAX).await
        };
        let body = with_timeout(LIST_TIMEOUT, read).await?;
        let (resource_version, facts) = parse_list(&body, path)?;
        self.set(InformerState::Synced(facts));
        self.refusals.note_list();
        self.held = Some(resource_version.clone());
        Ok(resource_version)
    }

    /// Whether the API server that sends the watch has come to a resourceVersion.
    async fn has_reached(&self, resource_version: &str) -> Result<bool, UpstreamError> {
        let path = not_older(self.collection.path, resource_version);
        let get = Get { timeout: REACH_TIMEOUT, ..Get::json(&path) };
        Ok(in_time(get.send_by(&self.upstream, self.choice()).await)?.is_some())
    }

    fn choice(&self) -> Choice {
        Choice::Pinned(Arc::clone(&self.pin))
    }

    async fn read_events(&mut self, mut body: pool::Body) -> Result<(), UpstreamError> {
        let mut splitter = FrameSplitter::new(Encoding::Json, LIST_BYTES_MAX);
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| UpstreamError::Lost(chain(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            splitter.push(data, &mut frames).map_err(|_| malformed())?;
            for frame in frames.drain(..) {
                self.apply(&frame)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, frame: &RawFrame) -> Result<(), UpstreamError> {
        let resource_version = match frame.event {
            FrameType::Added | FrameType::Modified | FrameType::Deleted => {
                let object = parse_object::<T>(&frame.object).ok_or_else(malformed)?;
                let facts = object.facts.filter(|_| frame.event != FrameType::Deleted);
                self.state.send_if_modified(|state| change(state, object.name, facts));
                object.resource_version
            }
            FrameType::Bookmark => parse_bookmark(&frame.object).ok_or_else(malformed)?,
            FrameType::Error => {
                return Err(status_error(&frame.object, StatusCode::INTERNAL_SERVER_ERROR));
            }
        };
        if !resource_version.is_empty() {
            self.held = Some(resource_version);
        }
        Ok(())
    }

    /// Sets the state, and notifies the receivers only if it differs.
    fn set(&self, state: InformerState<T>) {
        self.state.send_if_modified(|before| {
            let differs = *before != state;
            *before = state;
            differs
        });
    }
}

/// Sets the facts of one object, or removes them. Returns whether that changes the state.
fn change<T: Facts>(state: &mut InformerState<T>, name: String, facts: Option<T>) -> bool {
    let InformerState::Synced(synced) = state else { return false };
    match facts {
        Some(facts) if synced.get(&name) == Some(&facts) => false,
        Some(facts) => {
            synced.insert(name, facts);
            true
        }
        None => synced.remove(&name).is_some(),
    }
}

fn malformed() -> UpstreamError {
    UpstreamError::Malformed("a watch frame".to_owned())
}

/// The time-outs of watches: client-go's.
const TIMEOUT_SECONDS: std::ops::Range<u64> = 300..600;
/// How long a watch may stay open after its time-out before its connection counts as dead.
const DEADLINE_GRACE: Duration = Duration::from_secs(15);
/// The longest wait for the head of a watch: the upstream sends it at once, or after waiting some
/// seconds for freshness.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time of a list. The upstream ends one after 60 s itself.
const LIST_TIMEOUT: Duration = Duration::from_secs(90);
/// The shortest delay after a failure; the longest is twice as long.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The delay after a failure of the first list, for which requests wait.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The least delay between two watches.
const DELAY_MIN: Duration = Duration::from_millis(200);
/// CRDs carry schemas: a hundred of them can be tens of megabytes.
const LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
