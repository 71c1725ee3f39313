//! The last notable events. No kind takes the place of another: each has [`KIND_MAX`] events at
//! most, and a full ring forgets the oldest event of the kind that has the most.
//!
//! Equal events are folded. So are those of one kind and text with more than [`SUBJECTS_MAX`]
//! subjects within [`FOLD_WITHIN`], as after an outage, when each cache lists again.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use crate::telemetry::events::EventKind;

/// A notable event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotableEvent {
    /// Larger for each later event, also for a repetition.
    pub number: u64,
    /// The time at which it happened first.
    pub first: SystemTime,
    /// The time at which it happened last.
    pub last: SystemTime,
    /// The number of times that it happened.
    pub count: u64,
    /// Its kind.
    pub kind: EventKind,
    /// Its subject, such as a resource; empty for Weir itself.
    pub subject: Box<str>,
    /// Whether it happened to other subjects too; `subject` is the last one.
    pub has_others: bool,
    /// One sentence.
    pub text: Box<str>,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// The latest is last.
    events: VecDeque<NotableEvent>,
    last_number: u64,
}

impl Ring {
    /// Returns the events with a number above `since`, the latest first.
    pub(super) fn since(&self, since: u64) -> Vec<NotableEvent> {
        self.events.iter().rev().take_while(|event| event.number > since).cloned().collect()
    }

    pub(super) fn add(
        &mut self,
        now: SystemTime,
        kind: EventKind,
        subject: Box<str>,
        text: Box<str>,
    ) {
        self.last_number += 1;
        let number = self.last_number;
        let (first, count, has_others) = self.take_like(now, kind, &subject, &text);
        let of_kind = self.events.iter().filter(|event| event.kind == kind).count();
        if of_kind >= KIND_MAX {
            self.forget_oldest(kind);
        } else if self.events.len() >= EVENTS_MAX {
            self.forget_oldest(self.most_frequent());
        }
        self.events.push_back(NotableEvent {
            number,
            first,
            last: now,
            count: count.saturating_add(1),
            kind,
            subject,
            has_others,
            text,
        });
    }

    /// Takes out the events that a new one is folded with. Returns when the first of them happened,
    /// how often they happened, and whether that was to several subjects.
    fn take_like(
        &mut self,
        now: SystemTime,
        kind: EventKind,
        subject: &str,
        text: &str,
    ) -> (SystemTime, u64, bool) {
        let is_recent =
            |event: &NotableEvent| now.duration_since(event.last).unwrap_or_default() < FOLD_WITHIN;
        let is_like = |event: &NotableEvent| event.kind == kind && *event.text == *text;
        let is_folded =
            |event: &NotableEvent| is_like(event) && event.has_others && is_recent(event);
        let is_single = |event: &NotableEvent| is_like(event) && !event.has_others;
        let is_equal = |event: &NotableEvent| is_single(event) && *event.subject == *subject;
        let has_equal = self.events.iter().any(is_equal);
        let recent = self.events.iter().filter(|event| is_single(event) && is_recent(event));
        let folds =
            self.events.iter().any(is_folded) || (!has_equal && recent.count() >= SUBJECTS_MAX);
        let (mut first, mut count) = (now, 0_u64);
        self.events.retain(|event| {
            let is_taken = match folds {
                true => is_folded(event) || (is_single(event) && is_recent(event)),
                false => is_equal(event),
            };
            // An event of long before had another cause.
            let is_counted = !folds
                || now.duration_since(event.first).unwrap_or_default() < FOLD_WITHIN
                || event.has_others;
            if is_taken && is_counted {
                (first, count) = (first.min(event.first), count.saturating_add(event.count));
            } else if is_taken {
                (first, count) = (first.min(event.last), count.saturating_add(1));
            }
            !is_taken
        });
        (first, count, folds)
    }

    fn forget_oldest(&mut self, kind: EventKind) {
        if let Some(place) = self.events.iter().position(|event| event.kind == kind) {
            self.events.remove(place);
        }
    }

    /// Returns the kind that has the most events.
    fn most_frequent(&self) -> EventKind {
        let count =
            |kind: &EventKind| self.events.iter().filter(|event| event.kind == *kind).count();
        EventKind::ALL.into_iter().max_by_key(count).unwrap_or(EventKind::Relist)
    }
}

/// A person reads no more.
pub const EVENTS_MAX: usize = 200;
/// The most events of one kind.
pub(super) const KIND_MAX: usize = 40;
/// The most subjects that a person looks at one by one.
pub(super) const SUBJECTS_MAX: usize = 5;
/// The longest time between events that are folded: a later one has another cause.
pub(super) const FOLD_WITHIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn add(ring: &mut Ring, seconds: u64, kind: EventKind, subject: &str, text: &str) {
        ring.add(at(seconds), kind, subject.into(), text.into());
    }

    #[test]
    fn the_latest_events_of_a_kind_are_kept_and_equal_ones_are_folded() {
        let mut ring = Ring::default();
        for number in 0..KIND_MAX + 10 {
            add(&mut ring, 0, EventKind::BackOff, "v1/pods", &format!("error {number}"));
        }
        for _ in 0..3 {
            add(&mut ring, 1, EventKind::BackOff, "v1/pods", "error 45");
        }
        let lines = ring.since(0);
        assert_eq!(lines.len(), KIND_MAX);
        assert_eq!((&*lines[0].text, lines[0].count, lines[0].first), ("error 45", 4, at(0)));
        assert_eq!((&*lines[1].text, lines[1].count), ("error 49", 1));
        assert!(lines.windows(2).all(|two| two[0].number > two[1].number));
        assert_eq!(ring.since(lines[2].number), lines[..2]);
        assert_eq!(ring.since(u64::MAX), []);
    }

    #[test]
    fn a_noisy_kind_takes_no_place_of_others() {
        let mut ring = Ring::default();
        add(&mut ring, 0, EventKind::Rewind, "", "The history was rewound.");
        for number in 0..1_000 {
            for kind in [EventKind::Relist, EventKind::BackOff, EventKind::CacheStopped] {
                add(&mut ring, 1, kind, &format!("v1/r{number}"), &format!("text {number}"));
            }
        }
        assert_eq!(ring.events.front().map(|event| event.kind), Some(EventKind::Rewind));
        assert_eq!(ring.events.len(), 3 * KIND_MAX + 1);
        // Also not if all kinds are noisy.
        for number in 0..KIND_MAX {
            for kind in EventKind::ALL.into_iter().filter(|kind| *kind != EventKind::Rewind) {
                add(&mut ring, 2, kind, "", &format!("more {number}"));
            }
        }
        assert_eq!(ring.events.front().map(|event| event.kind), Some(EventKind::Rewind));
        assert_eq!(ring.events.len(), EVENTS_MAX);
    }

    #[test]
    fn one_text_for_many_subjects_is_one_event() {
        let mut ring = Ring::default();
        for number in 0..SUBJECTS_MAX {
            add(&mut ring, 10, EventKind::Relist, &format!("v1/r{number}"), "Lists again.");
        }
        add(&mut ring, 11, EventKind::Relist, "v1/r0", "Lists again.");
        assert_eq!(ring.since(0).len(), SUBJECTS_MAX, "each of a few has its own");
        for number in 0..300 {
            add(&mut ring, 12, EventKind::Relist, &format!("v1/r{number}"), "Lists again.");
        }
        let lines = ring.since(0);
        let first = &lines[0];
        assert_eq!((lines.len(), first.count, first.has_others), (1, 306, true));
        assert_eq!((&*first.subject, first.first, first.last), ("v1/r299", at(10), at(12)));
        // A day later something else happened.
        add(&mut ring, 86_400, EventKind::Relist, "v1/r0", "Lists again.");
        let lines = ring.since(0);
        assert_eq!((lines.len(), lines[0].count, lines[0].has_others), (2, 1, false));
    }
}
