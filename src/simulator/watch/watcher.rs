//! A running watch: a task that follows the history of its collection by a cursor, and sends its
//! frames through a bounded channel.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use super::damage;
use super::frames::Frames;
use super::start::WatchStart;
use crate::faults::Cut;
use crate::kinds::Kind;
use crate::list;
use crate::object::Object;
use crate::selector::Selector;
use crate::shared::Shared;
use crate::status::ApiError;
use crate::store::{Event, MissedEvents};

/// The time before the end of a watch at which the upstream sends the last bookmark.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// The delay of the first bookmark of a watch that begins with the state: the upstream's first
/// timer tick (`docs/semantics.md` §5.6).
const FIRST_BOOKMARK_DELAY: Duration = Duration::from_secs(1);

/// The initial objects of a watch; `None` if it does not begin with the state.
pub(super) type InitialState = Option<Vec<Arc<Object>>>;

/// The channel of frames. An error breaks the connection.
pub(super) type Sender = mpsc::Sender<Result<Bytes, io::Error>>;

pub(super) enum WatchEnd {
    /// It reached its time-out, its reader was slow, or the client has closed.
    Clean,
    /// An ERROR event is sent first.
    Failed(ApiError),
    /// An injected fault cut it.
    Cut(Cut),
}

/// A running watch.
pub(super) struct Watcher {
    pub(super) shared: Arc<Shared>,
    /// Its number in the log of requests.
    pub(super) number: u64,
    /// The number of the API server.
    pub(super) server: usize,
    pub(super) kind: Arc<Kind>,
    pub(super) selector: Selector,
    pub(super) frames: Frames,
    pub(super) sender: Sender,
    pub(super) changed: watch::Receiver<u64>,
    pub(super) cuts: broadcast::Receiver<(Option<String>, Cut)>,
    pub(super) bookmarks: bool,
    pub(super) deadline: Instant,
    /// Whether a bookmark marks the end of the initial events.
    pub(super) marks_end: bool,
    /// The resourceVersion at which it began. Bookmarks are newer.
    pub(super) began: u64,
    /// Every event up to this revision was sent or does not match.
    pub(super) cursor: u64,
    /// Whether the cursor is known to be within the history.
    pub(super) running: bool,
    /// An event that is to be sent after the next one.
    pub(super) late: Option<Event>,
}

impl Watcher {
    /// Runs the watch until it ends.
    pub(super) async fn run(mut self, start: Result<InitialState, WatchEnd>, garbage: bool) {
        let sent = match start {
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
            WatchEnd::Clean | WatchEnd::Cut(Cut::Clean) => {}
            WatchEnd::Failed(error) => drop(self.send(self.frames.error(&error)).await),
            WatchEnd::Cut(cut) => {
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
        self.shared.log.watch_closed(self.number);
    }

    /// Sets the cursor, and returns the initial state if the watch begins with it.
    pub(super) async fn begin(
        &mut self,
        start: WatchStart,
        gone: bool,
    ) -> Result<InitialState, WatchEnd> {
        if gone {
            if let WatchStart::After(revision) = start {
                self.cursor = revision;
            }
            let oldest = self.shared.store.revision();
            return Err(WatchEnd::Failed(self.expired(oldest)));
        }
        match start {
            WatchStart::After(revision) => {
                (self.cursor, self.began) = (revision, revision);
                Ok(None)
            }
            WatchStart::Now { consistent } => {
                self.cursor = if consistent {
                    self.shared.store.progress(self.server, &self.kind);
                    // The cache may lag behind it; the watch is silent until it has caught up.
                    self.shared.store.revision()
                } else {
                    self.current()
                };
                self.began = self.cursor;
                Ok(None)
            }
            WatchStart::State(revision) => {
                let revision = match revision {
                    None => self.shared.store.revision(),
                    Some(revision) => revision,
                };
                if revision > 0 {
                    let (shared, server) = (&self.shared, self.server);
                    let fresh = list::wait_until_fresh(shared, server, &self.kind, revision).await;
                    fresh.map_err(WatchEnd::Failed)?;
                }
                Ok(Some(self.take_state()))
            }
        }
    }

    fn take_state(&mut self) -> Vec<Arc<Object>> {
        let (objects, revision) = self.shared.store.read(&self.kind, |collection, _| {
            let cached = collection.cached(self.server);
            let objects = cached.values().filter(|object| self.selector.matches(object));
            let objects: Vec<Arc<Object>> = objects.cloned().collect();
            (objects, collection.current(self.server))
        });
        (self.cursor, self.began) = (revision, revision);
        self.running = true;
        objects
    }

    async fn send_state(&self, state: InitialState) -> Result<(), WatchEnd> {
        let Some(objects) = state else { return Ok(()) };
        let revision = self.cursor;
        for object in objects {
            let frame = self.frames.event("ADDED", &object).map_err(WatchEnd::Failed)?;
            self.send(frame).await?;
        }
        if self.bookmarks && self.marks_end {
            let frame = self.frames.bookmark(revision, true).map_err(WatchEnd::Failed)?;
            self.send(frame).await?;
        }
        Ok(())
    }

    /// Sends events and bookmarks until the watch ends.
    async fn follow(&mut self) -> WatchEnd {
        let mut next_bookmark = self.first_bookmark();
        loop {
            if let Err(end) = self.catch_up().await {
                return end;
            }
            tokio::select! {
                changed = self.changed.changed() => if changed.is_err() {
                    // The collection ended its watches. Events from before that are still sent.
                    return self.catch_up().await.err().unwrap_or(WatchEnd::Clean);
                },
                cut = self.cuts.recv() => match cut {
                    Ok((resource, cut))
                        if resource.as_ref().is_none_or(|name| *name == self.kind.resource) =>
                    {
                        return WatchEnd::Cut(cut);
                    }
                    Ok(_) | Err(_) => {}
                },
                () = self.sender.closed() => return WatchEnd::Clean,
                () = tokio::time::sleep_until(self.deadline) => return WatchEnd::Clean,
                () = tokio::time::sleep_until(next_bookmark) => {
                    next_bookmark = self.bookmark_after(Instant::now());
                    if let Err(end) = self.bookmark().await {
                        return end;
                    }
                }
            }
        }
    }

    /// Sends a bookmark if the cache has advanced since the watch began.
    async fn bookmark(&mut self) -> Result<(), WatchEnd> {
        let current = self.current();
        let moved = current > self.began && current >= self.cursor;
        if !(self.bookmarks && self.kind.cached() && moved) {
            return Ok(());
        }
        self.catch_up().await?;
        let frame = self.frames.bookmark(self.cursor, false).map_err(WatchEnd::Failed)?;
        self.send(frame).await
    }

    /// Sends the events since the cursor.
    async fn catch_up(&mut self) -> Result<(), WatchEnd> {
        let since = self.shared.store.read(&self.kind, |collection, _| {
            collection.since(self.server, self.cursor, self.running)
        });
        let (events, current) = match since {
            MissedEvents::Events(events, current) => (events, current),
            MissedEvents::Expired(oldest) => {
                // A running watch only ends. The client learns at its retry that the
                // resourceVersion has expired.
                let expired = self.expired(oldest);
                return Err(if self.running { WatchEnd::Clean } else { WatchEnd::Failed(expired) });
            }
        };
        self.running = true;
        for event in events {
            self.send_event(event).await?;
        }
        self.cursor = self.cursor.max(current);
        Ok(())
    }

    /// Sends an event that matches the selector, or what an injected damage makes of it.
    async fn send_event(&mut self, event: Event) -> Result<(), WatchEnd> {
        let object = event.new.as_ref().or(event.old.as_ref());
        let damage = object
            .and_then(|object| self.shared.faults.take_damage(&self.kind.resource, &object.key));
        let (events, late) = damage::apply(&self.kind, event, damage);
        for event in events.into_iter().chain(self.late.take()) {
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
            self.send(frame.map_err(WatchEnd::Failed)?).await?;
        }
        self.late = late;
        Ok(())
    }

    /// Returns the resourceVersion of the server's watch cache.
    fn current(&self) -> u64 {
        self.shared.store.read(&self.kind, |collection, _| collection.current(self.server))
    }

    fn expired(&self, oldest: u64) -> ApiError {
        self.shared.log.watch_expired();
        if self.kind.cached() {
            return ApiError::watch_expired(self.cursor, oldest);
        }
        let message = "The resourceVersion for the provided watch is too old.";
        ApiError::new(410, "Expired", message)
    }

    /// Sends a frame to the body. Waits for a slow reader, but not past the time-out.
    async fn send(&self, frame: Bytes) -> Result<(), WatchEnd> {
        let sent = tokio::time::timeout_at(self.deadline, self.sender.send(Ok(frame)));
        match sent.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(WatchEnd::Clean),
        }
    }

    fn first_bookmark(&self) -> Instant {
        let now = Instant::now();
        let regular = self.bookmark_after(now);
        if self.marks_end { regular.min(now + FIRST_BOOKMARK_DELAY) } else { regular }
    }

    /// Returns the earlier of one interval from now and two seconds before the time-out
    /// (`docs/semantics.md` §5.6).
    fn bookmark_after(&self, now: Instant) -> Instant {
        let regular = now + self.shared.options.bookmark_interval;
        let last = self.deadline.checked_sub(LAST_BOOKMARK_LEAD).filter(|last| *last > now);
        last.map_or(regular, |last| last.min(regular))
    }
}
