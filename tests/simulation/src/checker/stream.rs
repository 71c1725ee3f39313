//! Watches: W1 (each event, in order, none missing), W4 (the initial state), W5 (nothing old), W7
//! (bookmarks).
//!
//! A stream is compared with the writes of each epoch that it may show, until only one fits.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Checker, Form, Inner};
use crate::resources::Selection;
use crate::write_log::{Epoch, Log, Moment, Version};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// After a resourceVersion.
    After(u64),
    /// With the state, whose end a bookmark marks; `true` if it must be the latest.
    State { consistent: bool },
}

/// The check of one stream.
pub(crate) struct StreamCheck {
    target: String,
    selection: Selection,
    start: Start,
    begun: Moment,
    floor: u64,
    is_hit: bool,
    /// The initial state, until its end.
    initial: Option<Vec<Vec<u8>>>,
    candidates: Vec<Candidate>,
    /// How many epochs were looked at for `candidates`.
    epochs: usize,
    /// Events since the last bookmark may be the difference of two states.
    is_relisted: bool,
    last_bookmark: u64,
    last_event: u64,
}

/// An epoch that the stream may show.
struct Candidate {
    epoch: usize,
    /// The stream begins after this revision, which may be in the future.
    after: u64,
    /// The index of the next write in the log.
    next: usize,
}

#[derive(Deserialize)]
struct Frame<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What held when a request was sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) begun: Moment,
    /// The highest resourceVersion that the caches which may answer had shown.
    floor: u64,
}

/// The content of a frame of a watch.
#[derive(Debug, PartialEq)]
pub(crate) enum Notice {
    /// An object was added or changed.
    Put(String, Box<[u8]>, u64),
    /// An object is gone, or left the selection.
    Deleted(String, u64),
    /// Everything up to this resourceVersion was sent; `true` ends the initial state.
    Bookmark(u64, bool),
    /// An ERROR event, with its code.
    Error(u64),
}

impl Checker {
    /// Notes what holds when the request of a stream is sent.
    pub(crate) fn send(&self, target: &str, selection: &Selection) -> Sent {
        Sent { begun: self.now(), floor: self.floor(target, selection, Form::Json) }
    }

    /// Begins to check a stream.
    pub(crate) fn stream(
        &self,
        target: &str,
        selection: &Selection,
        start: Start,
        Sent { begun, floor }: Sent,
        is_hit: bool,
    ) -> StreamCheck {
        // What is forwarded may reach an API server whose cache lags.
        let floor = if is_hit { floor } else { 0 };
        let mut inner = self.0.lock();
        inner.write_log.now();
        let after = match start {
            Start::After(revision) => revision,
            Start::State { .. } => 0,
        };
        let candidates = inner.write_log.candidates(begun).map(|epoch| {
            let log = inner.write_log.epoch(epoch).log(selection.resource);
            let next = log.map_or(0, |log| next_after(log, after));
            Candidate { epoch, after, next }
        });
        StreamCheck {
            target: target.to_owned(),
            selection: selection.clone(),
            start,
            begun,
            floor,
            is_hit,
            initial: matches!(start, Start::State { .. }).then(Vec::new),
            candidates: candidates.collect(),
            epochs: inner.write_log.now().epoch + 1,
            is_relisted: false,
            last_bookmark: 0,
            last_event: 0,
        }
    }

    /// Checks a frame, and returns its content; `None` if it cannot be read.
    pub(crate) fn frame(&self, stream: &mut StreamCheck, line: &[u8]) -> Option<Notice> {
        let mut inner = self.0.lock();
        let epochs = inner.write_log.now().epoch + 1;
        stream.follow(&inner, epochs);
        let notice = notice(line);
        // What is forwarded may be the garbage of a fault.
        if notice.is_none() && stream.is_hit {
            let text = String::from_utf8_lossy(line).into_owned();
            inner.violated("W1", format!("{}: not an event: {text}", stream.target));
        }
        let notice = notice?;
        match &notice {
            Notice::Put(_, bytes, revision) => match &mut stream.initial {
                Some(initial) => initial.push(bytes.to_vec()),
                None => stream.event(&mut inner, line, *revision),
            },
            Notice::Deleted(_, revision) => stream.event(&mut inner, line, *revision),
            Notice::Bookmark(revision, is_end) => stream.bookmark(&mut inner, *revision, *is_end),
            Notice::Error(_) => {}
        }
        Some(notice)
    }
}

impl StreamCheck {
    /// Returns the first epoch that it may show.
    pub(crate) fn first_epoch(&self) -> usize {
        self.candidates.first().map_or(0, |candidate| candidate.epoch)
    }

    /// Adds the epochs in which nothing is lost that the stream has shown.
    fn follow(&mut self, inner: &Inner, epochs: usize) {
        for number in self.epochs..epochs {
            let epoch = inner.write_log.epoch(number);
            let Some(of) = epoch.of else { continue };
            let goes_on =
                |candidate: &&Candidate| candidate.epoch + 1 == number && candidate.after <= of;
            let Some(after) = self.candidates.iter().find(goes_on).map(|before| before.after)
            else {
                continue;
            };
            let log = epoch.log(self.selection.resource);
            // What was shown before comes no more.
            let shown = after.max(self.last_event).max(self.last_bookmark).min(of);
            let next = log.map_or(0, |log| next_after(log, shown));
            self.candidates.push(Candidate { epoch: number, after, next });
        }
        self.epochs = epochs;
    }

    /// Whether the initial state is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.initial.is_none()
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn begun(&self) -> Moment {
        self.begun
    }

    fn event(&mut self, inner: &mut Inner, line: &[u8], revision: u64) {
        inner.checked("W1");
        if inner.may_relist(self.begun, self.start) {
            self.is_relisted = true;
        }
        self.start_is_kept(inner, revision);
        if self.is_relisted {
            return self.note(inner, revision);
        }
        // One report is enough for a stream.
        if self.candidates.is_empty() {
            return;
        }
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(line) else { return };
        let mut problems = Vec::new();
        if revision <= self.last_event {
            problems.push(format!("{revision} comes after {}", self.last_event));
        }
        self.last_event = revision;
        let selection = &self.selection;
        self.candidates.retain_mut(|candidate| {
            let epoch = inner.write_log.epoch(candidate.epoch);
            match candidate.check(epoch, selection, Some((&frame, revision)), revision) {
                Ok(()) => true,
                Err(problem) => {
                    problems.push(problem);
                    false
                }
            }
        });
        if self.candidates.is_empty() {
            self.violated(inner, "W1", &problems);
        }
        self.note(inner, revision);
    }

    /// W5: the deletions of a relist may be at the resourceVersion of the start, all other events
    /// come after it.
    fn start_is_kept(&self, inner: &mut Inner, revision: u64) {
        let Start::After(start) = self.start else { return };
        inner.checked("W5");
        if revision < start || (revision == start && !self.is_relisted) {
            self.violated(inner, "W5", &[format!("{revision} is not after {start}")]);
        }
    }

    fn bookmark(&mut self, inner: &mut Inner, revision: u64, is_end: bool) {
        inner.checked(if is_end { "W4" } else { "W7" });
        if is_end {
            return self.initial_state(inner, revision);
        }
        if self.initial.is_some() {
            self.violated(inner, "W7", &["a bookmark within the initial state".to_owned()]);
        }
        if revision < self.last_bookmark || revision < self.last_event {
            let (event, bookmark) = (self.last_event, self.last_bookmark);
            let what = format!("bookmark {revision} after event {event} and bookmark {bookmark}");
            self.violated(inner, "W7", &[what]);
        }
        self.last_bookmark = revision;
        if inner.may_relist(self.begun, self.start) || self.is_relisted {
            self.is_relisted = false;
            self.go_on_after(inner, revision);
            return self.note(inner, revision);
        }
        if self.candidates.is_empty() {
            return;
        }
        let mut problems = Vec::new();
        let selection = &self.selection;
        self.candidates.retain_mut(|candidate| {
            let epoch = inner.write_log.epoch(candidate.epoch);
            match candidate.check(epoch, selection, None, revision) {
                Ok(()) => true,
                Err(problem) => {
                    problems.push(problem);
                    false
                }
            }
        });
        if self.candidates.is_empty() {
            self.violated(inner, "W7", &problems);
        }
        self.note(inner, revision);
    }

    /// Lets the next event be the first one after what a bookmark claims.
    fn go_on_after(&mut self, inner: &Inner, revision: u64) {
        for candidate in &mut self.candidates {
            let log = inner.write_log.epoch(candidate.epoch).log(self.selection.resource);
            candidate.next = log.map_or(0, |log| next_after(log, revision));
        }
    }

    fn initial_state(&mut self, inner: &mut Inner, revision: u64) {
        let Some(initial) = self.initial.take() else {
            return self.violated(inner, "W4", &["two ends of the initial state".to_owned()]);
        };
        let mut problems = Vec::new();
        let (begun, selection) = (self.begun, &self.selection);
        let consistent = self.start == (Start::State { consistent: true });
        let floor = self.floor;
        self.candidates.retain_mut(|candidate| {
            let epoch = inner.write_log.epoch(candidate.epoch);
            let state = epoch.state(selection, revision);
            let is_same = state.len() == initial.len()
                && state.iter().zip(&initial).all(|(version, bytes)| *version.json == **bytes);
            if !is_same {
                let (found, wanted) = (initial.len(), state.len());
                problems.push(format!("{found} objects are not the {wanted} at {revision}"));
                return false;
            }
            let is_present = candidate.epoch == begun.epoch;
            if is_present && consistent && revision < begun.revision {
                problems.push(format!("{revision} is older than {}", begun.revision));
                return false;
            }
            if is_present && revision < floor {
                problems.push(format!("{revision} is older than {floor}, which was shown"));
                return false;
            }
            candidate.after = revision;
            candidate.next =
                epoch.log(selection.resource).map_or(0, |log| next_after(log, revision));
            true
        });
        if self.candidates.is_empty() {
            self.violated(inner, "W4", &problems);
        }
        self.last_bookmark = revision;
        self.note(inner, revision);
    }

    /// Notes what the cache has shown.
    fn note(&self, inner: &mut Inner, revision: u64) {
        if let [candidate] = self.candidates.as_slice()
            && self.is_hit
        {
            let cache = (&self.selection, Form::Json);
            inner.raise_floor(&self.target, cache, candidate.epoch, revision);
        }
    }

    fn violated(&self, inner: &mut Inner, guarantee: &'static str, problems: &[String]) {
        let path = self.selection.path("");
        let what =
            format!("{path} from {}, {:?}: {}", self.target, self.start, problems.join("; "));
        inner.violated(guarantee, what);
    }
}

impl Candidate {
    /// Checks that the selected writes up to a revision are this one event, or none.
    fn check(
        &mut self,
        epoch: &Epoch,
        selection: &Selection,
        mut frame: Option<(&Frame<'_>, u64)>,
        until: u64,
    ) -> Result<(), String> {
        let Some(log) = epoch.log(selection.resource) else { return Ok(()) };
        if until > epoch.revision {
            return Err(format!("{until} is in the future"));
        }
        while let Some(write) = log.writes.get(self.next).filter(|write| write.revision <= until) {
            let index = self.next;
            self.next += 1;
            if write.revision <= self.after {
                continue;
            }
            let Some(expected) = expected(log, index, selection) else { continue };
            match frame.take() {
                Some((frame, revision)) if revision == write.revision => expected.check(frame)?,
                _ => {
                    let (key, revision) = (&write.key, write.revision);
                    return Err(format!("{} of {key} at {revision} is missing", expected.r#type));
                }
            }
        }
        match frame {
            None => Ok(()),
            Some((frame, revision)) => {
                Err(format!("no write gives {} at {revision}", frame.r#type))
            }
        }
    }
}

/// The event of a write.
struct Expected<'a> {
    r#type: &'static str,
    object: ExpectedObject<'a>,
}

enum ExpectedObject<'a> {
    Bytes(&'a [u8]),
    /// An earlier state, with the resourceVersion of the write.
    At(&'a Version, u64),
}

impl Expected<'_> {
    fn check(&self, frame: &Frame<'_>) -> Result<(), String> {
        if frame.r#type != self.r#type {
            return Err(format!("{} instead of {}", frame.r#type, self.r#type));
        }
        let shown = frame.object.get();
        let is_same = match &self.object {
            ExpectedObject::Bytes(bytes) => shown.as_bytes() == *bytes,
            ExpectedObject::At(version, revision) => {
                let mut wanted: Value = serde_json::from_slice(&version.json).unwrap_or_default();
                wanted["metadata"]["resourceVersion"] = revision.to_string().into();
                serde_json::from_str::<Value>(shown).is_ok_and(|shown| shown == wanted)
            }
        };
        if is_same { Ok(()) } else { Err(format!("another object: {shown}")) }
    }
}

/// Returns the event that a write gives under a selection.
fn expected<'a>(log: &'a Log, index: usize, selection: &Selection) -> Option<Expected<'a>> {
    let write = log.writes.get(index)?;
    let before = log.before(index).filter(|before| selection.matches(before));
    let after = (!write.deleted && selection.matches(write)).then_some(write);
    let (r#type, object) = match (before, after) {
        (None, None) => return None,
        (None, Some(after)) => ("ADDED", ExpectedObject::Bytes(&after.json)),
        (Some(_), Some(after)) => ("MODIFIED", ExpectedObject::Bytes(&after.json)),
        (Some(_), None) if write.deleted => ("DELETED", ExpectedObject::Bytes(&write.json)),
        (Some(before), None) => ("DELETED", ExpectedObject::At(before, write.revision)),
    };
    Some(Expected { r#type, object })
}

fn next_after(log: &Log, revision: u64) -> usize {
    log.writes.partition_point(|write| write.revision <= revision)
}

/// Reads a frame.
fn notice(line: &[u8]) -> Option<Notice> {
    let frame: Frame<'_> = serde_json::from_slice(line).ok()?;
    let object: Value = serde_json::from_str(frame.object.get()).ok()?;
    if frame.r#type == "ERROR" {
        return Some(Notice::Error(object.pointer("/code")?.as_u64()?));
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let revision: u64 = text("/metadata/resourceVersion")?.parse().ok()?;
    if frame.r#type == "BOOKMARK" {
        let end = object.pointer("/metadata/annotations/k8s.io~1initial-events-end");
        return Some(Notice::Bookmark(revision, end.is_some()));
    }
    let key = format!("{}/{}", text("/metadata/namespace")?, text("/metadata/name")?);
    match frame.r#type.as_str() {
        "DELETED" => Some(Notice::Deleted(key, revision)),
        "ADDED" | "MODIFIED" => {
            Some(Notice::Put(key, frame.object.get().as_bytes().into(), revision))
        }
        _ => None,
    }
}
