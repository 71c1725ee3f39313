//! The last notable events of a Weir, for people: what changed, beside the log.
//!
//! A component notes an event where it logs it. Equal events are folded: the ring keeps the last
//! one, with a count. An event names resources, files and API servers, but no user and no object.
//!
//! Memory: [`EVENTS_MAX`] events, each of at most [`SUBJECT_BYTES_MAX`] and [`TEXT_BYTES_MAX`].
//!
//! Lock order: the ring, with no other lock.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, Registry};

use crate::telemetry::metrics::counters_of;

/// The kind of a notable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The reflector of a cache lists again.
    Relist,
    /// The reflector of a cache failed, and waits.
    BackOff,
    /// A cache stopped, or was refused.
    CacheStopped,
    /// A cache exceeds a byte budget, or fits again.
    Budget,
    /// A cache was quarantined, or answers again.
    Quarantine,
    /// The definition of a resource changed.
    Definition,
    /// The upstream's history was rewound.
    Rewind,
    /// The upstream went away, or came back.
    Upstream,
    /// The version of the upstream changed.
    Version,
    /// The configuration was read again, or could not be.
    Reload,
    /// The stage of Weir's own overload changed.
    Overload,
    /// Weir's own identity lacks a permission, or has it again.
    Rights,
    /// A certificate expires soon, or was renewed.
    Certificate,
    /// The upstream refuses Weir's credentials, or accepts them again.
    Credentials,
    /// Weir stops.
    Stop,
}

impl EventKind {
    /// All kinds.
    const ALL: [Self; 15] = [
        Self::Relist,
        Self::BackOff,
        Self::CacheStopped,
        Self::Budget,
        Self::Quarantine,
        Self::Definition,
        Self::Rewind,
        Self::Upstream,
        Self::Version,
        Self::Reload,
        Self::Overload,
        Self::Rights,
        Self::Certificate,
        Self::Credentials,
        Self::Stop,
    ];

    /// Returns the value of the `kind` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relist => "relist",
            Self::BackOff => "back-off",
            Self::CacheStopped => "cache-stopped",
            Self::Budget => "budget",
            Self::Quarantine => "quarantine",
            Self::Definition => "definition",
            Self::Rewind => "rewind",
            Self::Upstream => "upstream",
            Self::Version => "version",
            Self::Reload => "reload",
            Self::Overload => "overload",
            Self::Rights => "rights",
            Self::Certificate => "certificate",
            Self::Credentials => "credentials",
            Self::Stop => "stop",
        }
    }
}

/// A notable event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotableEvent {
    /// Larger for each later event, also for a repetition.
    pub number: u64,
    /// When it happened first.
    pub first: SystemTime,
    /// When it happened last.
    pub last: SystemTime,
    /// How often it happened.
    pub count: u64,
    /// Its kind.
    pub kind: EventKind,
    /// Its subject, such as a resource; empty for Weir itself.
    pub subject: Box<str>,
    /// One sentence.
    pub text: Box<str>,
}

/// The last notable events. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Events {
    ring: Arc<Mutex<Ring>>,
    counts: Option<IntCounterVec>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The latest is last.
    events: VecDeque<NotableEvent>,
    last_number: u64,
}

impl Events {
    /// Creates an empty ring, and registers the counter of its events.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counts = counters_of(
            registry,
            "weir_notable_events_total",
            "Notable events, such as relists and reloads, by kind. The admin listener shows the last ones at /api/events.",
            ("kind", &EventKind::ALL.map(EventKind::as_str)),
        )?;
        // From 0 on, so that the first event is an increase, for an alert.
        for kind in EventKind::ALL {
            let _created = counts.with_label_values(&[kind.as_str()]);
        }
        Ok(Self { counts: Some(counts), ..Self::default() })
    }

    /// Notes an event that happens now. Long texts are cut.
    pub fn note(&self, kind: EventKind, subject: impl Display, text: impl Display) {
        if let Some(counts) = &self.counts {
            counts.with_label_values(&[kind.as_str()]).inc();
        }
        let subject = cut(&subject.to_string(), SUBJECT_BYTES_MAX);
        let text = cut(&text.to_string(), TEXT_BYTES_MAX);
        self.ring.lock().add(SystemTime::now(), kind, subject, text);
    }

    /// Returns the events with a number above `since`, the latest first.
    pub fn since(&self, since: u64) -> Vec<NotableEvent> {
        let ring = self.ring.lock();
        ring.events.iter().rev().take_while(|event| event.number > since).cloned().collect()
    }
}

impl Ring {
    fn add(&mut self, now: SystemTime, kind: EventKind, subject: Box<str>, text: Box<str>) {
        self.last_number += 1;
        let is_equal = |event: &NotableEvent| {
            event.kind == kind && event.subject == subject && event.text == text
        };
        let equal = self.events.iter().rposition(is_equal);
        let before = equal.and_then(|place| self.events.remove(place));
        let (first, count) = before.map_or((now, 0), |event| (event.first, event.count));
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        let (number, count) = (self.last_number, count.saturating_add(1));
        self.events.push_back(NotableEvent {
            number,
            first,
            last: now,
            count,
            kind,
            subject,
            text,
        });
    }
}

fn cut(text: &str, bytes_max: usize) -> Box<str> {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().into()
}

/// A person reads no more.
pub const EVENTS_MAX: usize = 200;
/// A resource with its namespace fits.
const SUBJECT_BYTES_MAX: usize = 200;
/// A sentence with the cause of a failure.
const TEXT_BYTES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_from_the_start() {
        let known = EventKind::ALL.map(|kind| kind as usize);
        assert_eq!(known.to_vec(), (0..=EventKind::Stop as usize).collect::<Vec<_>>());
        let registry = Registry::new();
        let _events = Events::register(&registry).unwrap();
        let families = registry.gather();
        assert_eq!(families.first().unwrap().get_metric().len(), EventKind::ALL.len());
    }

    #[test]
    fn the_latest_events_are_kept_and_equal_ones_are_folded() {
        let events = Events::register(&Registry::new()).unwrap();
        for number in 0..EVENTS_MAX + 10 {
            events.note(EventKind::Relist, format!("v1/r{number}"), "expired");
        }
        for _ in 0..3 {
            events.note(EventKind::Relist, "v1/r205", "expired");
        }
        let all = events.since(0);
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!((&*all[0].subject, all[0].count), ("v1/r205", 4));
        assert_eq!((&*all[1].subject, all[1].count), ("v1/r209", 1));
        assert!(all.windows(2).all(|two| two[0].number > two[1].number));
        assert_eq!(events.since(all[2].number), all[..2]);
        assert_eq!(events.since(u64::MAX), []);
        let count = events.counts.unwrap().with_label_values(&["relist"]).get();
        assert_eq!(count, EVENTS_MAX as u64 + 13);
    }

    #[test]
    fn each_kind_is_counted_from_zero_on() {
        let registry = Registry::new();
        let events = Events::register(&registry).unwrap();
        events.note(EventKind::Quarantine, "v1/pods", "wrong");
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for (kind, count) in [("quarantine", 1), ("relist", 0), ("stop", 0)] {
            let line = format!("weir_notable_events_total{{kind=\"{kind}\"}} {count}\n");
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 15);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let events = Events::default();
        events.note(EventKind::BackOff, "é".repeat(500), "x".repeat(5000));
        let event = &events.since(0)[0];
        assert_eq!((event.subject.len(), event.text.len()), (200, TEXT_BYTES_MAX));
        events.note(EventKind::BackOff, format!("x{}", "é".repeat(500)), "");
        assert_eq!(events.since(1)[0].subject.len(), 199);
    }
}
