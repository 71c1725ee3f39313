//! Watches: a task for each, which follows the history of its collection by a cursor and feeds the response's body
//! through a bounded channel (semantics.md §1.6.4, §5).
//!
//! A slow reader fills its channel; its cursor then falls out of the history's window, and the stream ends.

mod frames;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use self::frames::Frames;
use super::answer::{self, Body};
use super::faults::{Action, Cut};
use super::kinds::Kind;
use super::list;
use super::object::Object;
use super::request::{Options, Request, Target, parse_revision};
use super::selector::Selector;
use super::shared::Shared;
use super::status::ApiError;
use super::store::Since;

/// Frames a reader may lag behind before the watch waits for it: the upstream's queue of most resources.
const QUEUE_FRAMES: usize = 100;

/// The upstream's bookmarks come this long before a watch's deadline.
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// The objects that a watch begins with, if it begins with any.
type InitialState = Option<Vec<Arc<Object>>>;

type Sender = mpsc::Sender<Result<Frame<Bytes>, io::Error>>;

/// Answers a WATCH. Where it begins is settled before its answer's head is sent, as in the upstream: what is written after
/// a client has seen the head comes as an event.
pub(super) async fn watch(
    shared: &Arc<Shared>,
    request: &Request,
    kind: &Arc<Kind>,
    target: &Target,
    faults: &[Action],
) -> Result<Response<Body>, ApiError> {
    let form = answer::negotiate(request, !kind.custom, false)?;
    let options = Options::decode(request, shared.options.watch_list())?;
    let selector = list::selector(kind, target, &options)?;
    let start = Start::decide(&options).map_err(|text| ApiError::new(500, "", text))?;
    let frames = Frames::new(request, kind, form)?;
    let (sender, receiver) = mpsc::channel(QUEUE_FRAMES);
    let mut watcher = Watcher {
        changed: shared.store.subscribe(kind),
        cuts: shared.faults.cuts(),
        shared: Arc::clone(shared),
        kind: Arc::clone(kind),
        selector,
        frames,
        sender,
        bookmarks: options.bookmarks && !faults.contains(&Action::NoBookmarks),
        deadline: deadline(&options),
        cursor: 0,
        running: false,
    };
    let garbage = faults.contains(&Action::Garbage);
    let gone = faults.contains(&Action::Gone);
    let begun = watcher.begin(start, gone).await;
    shared.log.watch_opened();
    tokio::spawn(watcher.run(begun, garbage));
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    answer::set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    Ok(response)
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// With the state, once it has reached a revision; `None` for the latest.
    State(Option<u64>),
    /// After a resourceVersion.
    After(u64),
    /// With what comes from now on; whether that means the store's revision or the cache's.
    Now { consistent: bool },
}

impl Start {
    fn decide(options: &Options) -> Result<Self, String> {
        let version = options.resource_version.as_str();
        let revision = if version.is_empty() { 0 } else { parse_revision(version)? };
        Ok(match (options.initial_events, version, revision) {
            (Some(true), "", _) => Self::State(None),
            (Some(false), "", _) => Self::Now { consistent: true },
            (Some(false), _, 0) => Self::Now { consistent: false },
            (None, "", _) | (None | Some(true), _, 0) => Self::State(Some(0)),
            (Some(true), _, revision) => Self::State(Some(revision)),
            (_, _, revision) => Self::After(revision),
        })
    }
}

/// How a watch ends.
enum End {
    /// At its deadline, by a slow reader, or since the client is gone.
    Clean,
    /// With an ERROR event.
    Failed(ApiError),
    /// By an injected cut.
    Cut(Cut),
}

struct Watcher {
    shared: Arc<Shared>,
    kind: Arc<Kind>,
    selector: Selector,
    frames: Frames,
    sender: Sender,
    changed: watch::Receiver<u64>,
    cuts: broadcast::Receiver<(Option<String>, Cut)>,
    bookmarks: bool,
    deadline: Instant,
    /// All up to this revision was sent or is of no interest.
    cursor: u64,
    /// Whether the cursor is known to be within the history.
    running: bool,
}

impl Watcher {
    async fn run(mut self, begun: Result<InitialState, End>, garbage: bool) {
        let sent = match begun {
            Ok(state) => self.send_state(state).await,
            Err(end) => Err(end),
        };
        let end = match sent {
            Err(end) => end,
            Ok(()) => {
                if garbage {
                    drop(self.send(Bytes::from_static(b"{\"type\":\"MOD\x00garbage\n")).await);
                }
                self.follow().await
            }
        };
        match end {
            End::Clean | End::Cut(Cut::Clean) => {}
            End::Failed(error) => drop(self.send(frames::error(&error)).await),
            End::Cut(cut) => {
                if cut == Cut::MidFrame {
                    drop(
                        self.send(Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"kin"))
                            .await,
                    );
                }
                let reset = io::Error::new(io::ErrorKind::ConnectionReset, "the watch was cut");
                drop(self.sender.send(Err(reset)).await);
            }
        }
        self.shared.log.watch_closed();
    }

    /// Sets the cursor, and takes the initial state if it is wanted.
    async fn begin(&mut self, start: Start, gone: bool) -> Result<InitialState, End> {
        if gone {
            if let Start::After(revision) = start {
                self.cursor = revision;
            }
            let oldest = self.shared.store.revision();
            return Err(End::Failed(self.expired(oldest)));
        }
        match start {
            Start::After(revision) => {
                self.cursor = revision;
                Ok(None)
            }
            Start::Now { consistent } => {
                if consistent {
                    self.shared.store.progress(&self.kind);
                }
                self.cursor =
                    self.shared.store.read(&self.kind, |collection, _| collection.current());
                Ok(None)
            }
            Start::State(revision) => {
                let revision = match revision {
                    None => self.shared.store.progress(&self.kind),
                    Some(revision) => revision,
                };
                if revision > 0 {
                    let fresh = list::wait_until_fresh(&self.shared, &self.kind, revision).await;
                    fresh.map_err(End::Failed)?;
                }
                Ok(Some(self.take_state()))
            }
        }
    }

    fn take_state(&mut self) -> Vec<Arc<Object>> {
        let (objects, revision) = self.shared.store.read(&self.kind, |collection, _| {
            let objects =
                collection.objects.values().filter(|object| self.selector.matches(object));
            (objects.cloned().collect::<Vec<Arc<Object>>>(), collection.current())
        });
        self.cursor = revision;
        self.running = true;
        objects
    }

    async fn send_state(&self, state: InitialState) -> Result<(), End> {
        let Some(objects) = state else { return Ok(()) };
        let revision = self.cursor;
        for object in objects {
            let frame = self.frames.event("ADDED", &object);
            self.send(frame).await?;
        }
        if self.bookmarks && self.shared.options.watch_list() {
            let frame = self.frames.bookmark(revision, true);
            self.send(frame).await?;
        }
        Ok(())
    }

    /// Sends events and bookmarks until the watch ends.
    async fn follow(&mut self) -> End {
        let mut last_bookmark = self.cursor;
        let mut next_bookmark = self.first_bookmark();
        loop {
            if let Err(end) = self.catch_up().await {
                return end;
            }
            tokio::select! {
                changed = self.changed.changed() => if changed.is_err() { return End::Clean },
                cut = self.cuts.recv() => match cut {
                    Ok((resource, cut))
                        if resource.as_ref().is_none_or(|name| *name == self.kind.resource) =>
                    {
                        return End::Cut(cut);
                    }
                    Ok(_) | Err(_) => {}
                },
                () = self.sender.closed() => return End::Clean,
                () = tokio::time::sleep_until(self.deadline) => return End::Clean,
                () = tokio::time::sleep_until(next_bookmark) => {
                    next_bookmark = self.bookmark_after(Instant::now());
                    let current = self.shared.store.read(&self.kind, |collection, _| collection.current());
                    let useful = current > last_bookmark && current >= self.cursor;
                    if self.bookmarks && self.kind.cached() && useful {
                        if let Err(end) = self.catch_up().await {
                            return end;
                        }
                        last_bookmark = self.cursor;
                        let frame = self.frames.bookmark(self.cursor, false);
                        if let Err(end) = self.send(frame).await {
                            return end;
                        }
                    }
                }
            }
        }
    }

    /// Sends what happened since the cursor.
    async fn catch_up(&mut self) -> Result<(), End> {
        let since = self
            .shared
            .store
            .read(&self.kind, |collection, _| collection.since(self.cursor, self.running));
        let (events, current) = match since {
            Since::Events(events, current) => (events, current),
            Since::Expired(oldest) => {
                // A watch that had begun is only ended; the retry learns that its resourceVersion is gone.
                let expired = self.expired(oldest);
                return Err(if self.running { End::Clean } else { End::Failed(expired) });
            }
        };
        self.running = true;
        for event in events {
            let old = event.old.filter(|object| self.selector.matches(object));
            let new = event.new.filter(|object| self.selector.matches(object));
            let frame = match (old, new) {
                (None, Some(new)) => self.frames.event("ADDED", &new),
                (Some(_), Some(new)) => self.frames.event("MODIFIED", &new),
                (Some(old), None) => {
                    self.frames.event("DELETED", &old.at(&self.kind, event.revision))
                }
                (None, None) => continue,
            };
            self.send(frame).await?;
        }
        self.cursor = self.cursor.max(current);
        Ok(())
    }

    fn expired(&self, oldest: u64) -> ApiError {
        if self.kind.cached() {
            return ApiError::watch_expired(self.cursor, oldest);
        }
        let message = "The resourceVersion for the provided watch is too old.";
        ApiError::new(410, "Expired", message)
    }

    /// Hands a frame to the body; waits for a slow reader, but not past the deadline.
    async fn send(&self, frame: Bytes) -> Result<(), End> {
        let sent = tokio::time::timeout_at(self.deadline, self.sender.send(Ok(Frame::data(frame))));
        match sent.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Clean),
        }
    }

    fn first_bookmark(&self) -> Instant {
        self.bookmark_after(Instant::now())
    }

    /// The earlier of one interval on and two seconds before the deadline (semantics.md §5.6).
    fn bookmark_after(&self, now: Instant) -> Instant {
        let regular = now + self.shared.options.bookmark_interval;
        let last = self.deadline.checked_sub(BEFORE_DEADLINE).filter(|last| *last > now);
        last.map_or(regular, |last| last.min(regular))
    }
}

/// When a watch ends: as asked, or 30 to 60 minutes from now (semantics.md §5.7).
fn deadline(options: &Options) -> Instant {
    let seconds = match options.timeout_seconds {
        None | Some(0) => fastrand::u64(1800..3600),
        Some(seconds) => u64::try_from(seconds).unwrap_or(0),
    };
    // Some years stand for ever; more could overflow the clock.
    Instant::now() + Duration::from_secs(seconds.min(100_000_000))
}
