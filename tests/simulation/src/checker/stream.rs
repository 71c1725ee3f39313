//! Watches: W1 (each event, in order, none missing), W4 (the initial state), W5 (nothing old), W7
//! (bookmarks), W9 (the bookmark after a relist), FM.
//!
//! A stream is compared with the writes of each epoch that it may show, until only one fits.

mod candidate;
mod frame;

use std::time::Duration;

use tokio::time::Instant;

use self::candidate::{Candidate, next_after};
use self::frame::{Frame, ShownObject};
use super::{Checker, Form, Inner};
use crate::caller::Frames;
use crate::resources::Selection;
use crate::write_log::Moment;

pub(crate) use self::frame::Notice;

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The events after a resourceVersion.
    After(u64),
    /// The state, whose end a bookmark marks. It is the latest, or not older than `least`.
    State { consistent: bool, least: u64 },
    /// The events to come, after the cache's place or the latest revision.
    Now { consistent: bool },
}

/// The check of one stream.
pub(crate) struct StreamCheck {
    target: String,
    selection: Selection,
    form: Form,
    start: Start,
    begun: Moment,
    floor: u64,
    is_hit: bool,
    /// The initial state, until its end.
    initial: Option<Vec<(String, ShownObject)>>,
    candidates: Vec<Candidate>,
    /// The number of epochs that were looked at for `candidates`.
    epochs: usize,
    /// Events since the last bookmark may be the difference of two states.
    is_relisted: bool,
    last_bookmark: u64,
    last_event: u64,
    /// Since when a bookmark is owed for an event that surely is: no write gives it.
    difference_at: Option<Instant>,
}

/// The time at which a request was sent, and the floor at that time.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) begun: Moment,
    /// The highest resourceVersion that the caches which may answer had shown.
    floor: u64,
}

impl Checker {
    /// Notes the time and the floor when the request of a stream is sent.
    pub(crate) fn send(&self, target: &str, selection: &Selection, form: Form) -> Sent {
        Sent { begun: self.now(), floor: self.floor(target, selection, form) }
    }

    /// Begins to check a stream.
    pub(crate) fn stream(
        &self,
        target: &str,
        (selection, form): (&Selection, Form),
        start: Start,
        Sent { begun, floor }: Sent,
        frames: &Frames,
    ) -> StreamCheck {
        let is_hit = frames.is_hit();
        // A forwarded watch may reach an API server whose cache lags.
        let floor = if is_hit { floor } else { 0 };
        let mut inner = self.0.lock();
        let now = inner.write_log.now();
        let after = match start {
            Start::After(revision) => revision,
            Start::State { .. } => 0,
            Start::Now { consistent: true } => begun.revision,
            Start::Now { consistent: false } => floor,
        };
        let candidates = inner.write_log.candidates(begun).map(|epoch| {
            let after = match start {
                Start::Now { .. } if epoch != begun.epoch => 0,
                _ => after,
            };
            let log = inner.write_log.epoch(epoch).log(selection.resource);
            let mut candidate = Candidate::new(epoch, log, after);
            if matches!(start, Start::Now { .. }) {
                candidate.skips_to = now.revision;
            }
            candidate
        });
        let stream = StreamCheck {
            target: target.to_owned(),
            selection: selection.clone(),
            form,
            start,
            begun,
            floor,
            is_hit,
            initial: matches!(start, Start::State { .. }).then(Vec::new),
            candidates: candidates.collect(),
            epochs: now.epoch + 1,
            is_relisted: false,
            last_bookmark: 0,
            last_event: 0,
            difference_at: None,
        };
        inner.checked("FM");
        if let Some(problem) = form.type_problem(&frames.content_type, true) {
            stream.violated(&mut inner, "FM", &[problem]);
        }
        stream
    }

    /// W9: a client that has the difference of two states must soon be able to resume after it.
    pub(crate) fn overdue(&self, stream: &mut StreamCheck) {
        if stream.owes_bookmark() {
            stream.difference_at = None;
            let what =
                format!("no bookmark {BOOKMARKED_WITHIN:?} after the difference of two states");
            stream.violated(&mut self.0.lock(), "W9", &[what]);
        }
    }

    /// Checks a frame, and returns its content; `None` if it cannot be read.
    pub(crate) fn frame(&self, stream: &mut StreamCheck, line: &[u8]) -> Option<Notice> {
        let mut inner = self.0.lock();
        let epochs = inner.write_log.now().epoch + 1;
        stream.follow(&inner, epochs);
        let frame = frame::read(stream.form, stream.selection.resource, line);
        // A forwarded frame may be the garbage of a fault.
        if frame.is_none() && stream.is_hit {
            let (text, form) = (String::from_utf8_lossy(line), stream.form);
            let what = format!("{}: not an event in {form:?}: {text}", stream.target);
            inner.violated("FM", what);
        }
        let frame = frame?;
        match (&frame.notice, &mut stream.initial) {
            (Notice::Put { .. }, Some(initial)) => initial.push((frame.r#type, frame.object)),
            (Notice::Put { revision, .. } | Notice::Deleted { revision, .. }, _) => {
                stream.event(&mut inner, &frame, *revision);
            }
            (Notice::Bookmark(revision, is_end), _) => {
                stream.bookmark(&mut inner, *revision, *is_end);
            }
            (Notice::Error(_), _) => {}
        }
        Some(frame.notice)
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
            let Some(restored_revision) = epoch.restored_revision else { continue };
            let goes_on = |candidate: &&Candidate| {
                candidate.epoch + 1 == number && candidate.after <= restored_revision
            };
            let Some(after) = self.candidates.iter().find(goes_on).map(|before| before.after)
            else {
                continue;
            };
            let log = epoch.log(self.selection.resource);
            // Events that were shown before come no more.
            let newest_shown =
                after.max(self.last_event).max(self.last_bookmark).min(restored_revision);
            let next = log.map_or(0, |log| next_after(log, newest_shown));
            self.candidates.push(Candidate { epoch: number, after, next, skips_to: 0 });
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

    fn event(&mut self, inner: &mut Inner, frame: &Frame, revision: u64) {
        inner.checked("W1");
        if inner.may_relist(self.begun, self.start) {
            self.is_relisted = true;
        }
        self.start_is_kept(inner, revision);
        if self.is_relisted {
            self.note_difference(inner, frame, revision);
            return self.note(inner, revision);
        }
        // One report is enough for a stream.
        if self.candidates.is_empty() {
            return;
        }
        let mut problems = Vec::new();
        if revision <= self.last_event {
            problems.push(format!("{revision} comes after {}", self.last_event));
        }
        self.last_event = revision;
        let selection = &self.selection;
        self.candidates.retain_mut(|candidate| {
            let epoch = inner.write_log.epoch(candidate.epoch);
            match candidate.check(epoch, selection, Some((frame, revision)), revision) {
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

    /// Notes whether an event that may be the difference of two states surely is: no write gives
    /// it. A bookmark must follow then, if an earlier one shows that the client gets them. An event
    /// that is missing before it proves nothing: a difference has no event for an object that came
    /// and left between the states.
    ///
    /// A write that was made while the list was on its way may follow the difference in the same
    /// piece. A client resumes well after its event, so that no bookmark is owed.
    fn note_difference(&mut self, inner: &Inner, frame: &Frame, revision: u64) {
        let (mut differs, mut written) = (true, None);
        self.add_later_epochs(inner, revision);
        for candidate in &mut self.candidates {
            let (epoch, mut next) = (inner.write_log.epoch(candidate.epoch), candidate.clone());
            let earlier = epoch.log(self.selection.resource);
            next.next =
                next.next.max(earlier.map_or(0, |log| next_after(log, revision.saturating_sub(1))));
            if next.check(epoch, &self.selection, Some((frame, revision)), revision).is_ok() {
                let write = earlier.and_then(|log| log.writes.get(next.next.checked_sub(1)?));
                (differs, written) = (false, write.map(|write| write.written));
                *candidate = next;
            }
        }
        if differs && self.last_bookmark > 0 {
            self.difference_at.get_or_insert_with(Instant::now);
        }
        let follows = |at: &Instant| {
            at.elapsed() < PIECE_WITHIN
                && written.is_some_and(|written| written + LISTED_WITHIN > *at)
        };
        if self.difference_at.as_ref().is_some_and(follows) {
            self.difference_at = None;
        }
    }

    /// Adds the epochs that have reached a revision which none of the present ones has. After a
    /// restore that lost what was shown, a stream goes on there with the first write that it
    /// selects, if the difference of the two states is empty under its selection.
    fn add_later_epochs(&mut self, inner: &Inner, revision: u64) {
        let reaches = |number: usize| revision <= inner.write_log.epoch(number).revision;
        let is_reached = self.candidates.iter().any(|candidate| reaches(candidate.epoch));
        if is_reached || self.candidates.is_empty() {
            return;
        }
        let later = (self.first_epoch()..self.epochs).filter(|number| reaches(*number));
        let added = later.map(|number| {
            let log = inner.write_log.epoch(number).log(self.selection.resource);
            Candidate::new(number, log, revision.saturating_sub(1))
        });
        self.candidates.extend(added.collect::<Vec<_>>());
    }

    pub(crate) fn owes_bookmark(&self) -> bool {
        self.difference_at.is_some_and(|at| at.elapsed() > BOOKMARKED_WITHIN)
    }

    /// W5: the deletions of a relist may be at the resourceVersion of the start, all other events
    /// come after it.
    fn start_is_kept(&self, inner: &mut Inner, revision: u64) {
        let start = match self.start {
            Start::After(start) => start,
            Start::Now { .. } if self.is_relisted => return,
            Start::Now { consistent } if self.begun.epoch + 1 == self.epochs => {
                if consistent {
                    self.begun.revision
                } else {
                    self.floor
                }
            }
            Start::State { .. } | Start::Now { .. } => return,
        };
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
        if self.difference_at.take().is_some() {
            inner.checked("W9");
        }
        if inner.may_relist(self.begun, self.start) || self.is_relisted {
            self.is_relisted = false;
            self.go_on_after(inner, revision);
            if self.candidates.is_empty() {
                self.violated(inner, "W7", &[format!("there was no state at {revision}")]);
            }
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

    /// Lets the next event be the first one after the state that a bookmark claims after a
    /// difference. That state replaces the one before, also in an epoch in which some of it is
    /// lost.
    ///
    /// A Weir that has not noticed a restore yet claims a state of an epoch before. A stream may go
    /// on from there into the later epochs: it gets no event of the difference if that is empty
    /// under its selection.
    fn go_on_after(&mut self, inner: &Inner, revision: u64) {
        let epochs = (self.first_epoch()..self.epochs)
            .map(|number| (number, inner.write_log.epoch(number)))
            .skip_while(|(_, epoch)| !(epoch.began_at..=epoch.revision).contains(&revision))
            .filter(|(_, epoch)| revision <= epoch.revision);
        let candidates = epochs.map(|(number, epoch)| {
            Candidate::new(number, epoch.log(self.selection.resource), revision)
        });
        self.candidates = candidates.collect();
    }

    fn initial_state(&mut self, inner: &mut Inner, revision: u64) {
        let Some(initial) = self.initial.take() else {
            return self.violated(inner, "W4", &["two ends of the initial state".to_owned()]);
        };
        let mut problems = Vec::new();
        let (begun, selection) = (self.begun, &self.selection);
        let (consistent, least) = match self.start {
            Start::State { consistent, least } => (consistent, least),
            _ => (false, 0),
        };
        let floor = self.floor;
        self.candidates.retain_mut(|candidate| {
            let epoch = inner.write_log.epoch(candidate.epoch);
            let state = epoch.state(selection, revision);
            let is_same = state.len() == initial.len()
                && state.iter().zip(&initial).all(|(version, (r#type, object))| {
                    r#type == "ADDED" && object.is(selection.resource, version, version.revision)
                });
            if !is_same {
                let (actual, wanted) = (initial.len(), state.len());
                problems.push(format!("{actual} objects are not the {wanted} at {revision}"));
                return false;
            }
            let is_present = candidate.epoch == begun.epoch;
            if is_present && consistent && revision < begun.revision {
                problems.push(format!("{revision} is older than {}", begun.revision));
                return false;
            }
            if is_present && revision < least {
                problems.push(format!("{revision} is older than {least}, which was asked for"));
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
            let cache = (&self.selection, self.form);
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

/// How soon after the last event of a relist a bookmark comes. It is due as soon as its watch has
/// caught up.
const BOOKMARKED_WITHIN: Duration = Duration::from_secs(3);
/// How soon after the first event of a piece its last one is read.
const PIECE_WITHIN: Duration = Duration::from_millis(100);
/// How long a list is on its way from an API server: a crowd has it wait for up to 400 ms.
const LISTED_WITHIN: Duration = Duration::from_secs(1);
