//! The notable events of a Weir: what changed.
//!
//! One call logs an event, counts it, and keeps it among the last ones, so that the three never
//! differ in what counts as notable. The lines of one kind are limited; the counter and the ring
//! have all events, the ring folded. An event names resources, files and API servers, but no user
//! and no object.
//!
//! Memory: [`EVENTS_MAX`] events, each of at most [`SUBJECT_BYTES_MAX`] and [`TEXT_BYTES_MAX`].
//!
//! Lock order: the state, with no other lock. No line is logged under it.

mod kind;
mod line_limit;
mod ring;

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, Registry};
use tokio::time::Instant;

pub use crate::telemetry::events::kind::EventKind;
use crate::telemetry::events::line_limit::LineLimit;
use crate::telemetry::events::ring::Ring;
pub use crate::telemetry::events::ring::{EVENTS_MAX, NotableEvent};
use crate::telemetry::metrics::counters_of;

/// The last notable events. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Events {
    state: Arc<Mutex<State>>,
    counts: Option<IntCounterVec>,
}

#[derive(Debug, Default)]
struct State {
    ring: Ring,
    /// The limits of the kinds' lines, by number.
    limits: [LineLimit; EventKind::ALL.len()],
    /// The states that have not ended and whose beginning was logged, by kind and subject; at most
    /// [`STATES_MAX`].
    logged_states: HashSet<(u8, Box<str>)>,
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
        Ok(Self { counts: Some(counts), ..Self::default() })
    }

    /// Notes an event that happens now. `line` logs it, unless its kind had too many lines, with
    /// the number of those that were left out, if there are any. Returns whether it was called.
    /// Long texts are cut.
    pub(crate) fn notable(
        &self,
        kind: EventKind,
        subject: impl Display,
        text: impl Display,
        line: impl FnOnce(Option<u64>),
    ) -> bool {
        self.add(kind, Moment::Single, [&subject, &text], line)
    }

    /// Notes the beginning of a state of `subject`.
    pub(crate) fn notable_begin(
        &self,
        kind: EventKind,
        subject: impl Display,
        text: impl Display,
        line: impl FnOnce(Option<u64>),
    ) {
        self.add(kind, Moment::Begin, [&subject, &text], line);
    }

    /// Notes the end of a state of `subject`. The log shows it if and only if it showed the
    /// beginning, so that no state seems to last.
    pub(crate) fn notable_end(
        &self,
        kind: EventKind,
        subject: impl Display,
        text: impl Display,
        line: impl FnOnce(Option<u64>),
    ) {
        self.add(kind, Moment::End, [&subject, &text], line);
    }

    /// Returns the events with a number above `since`, the latest first.
    pub fn since(&self, since: u64) -> Vec<NotableEvent> {
        self.state.lock().ring.since(since)
    }

    fn add(
        &self,
        kind: EventKind,
        moment: Moment,
        [subject, text]: [&dyn Display; 2],
        line: impl FnOnce(Option<u64>),
    ) -> bool {
        if let Some(counts) = &self.counts {
            counts.with_label_values(&[kind.as_str()]).inc();
        }
        let subject = cut(&subject.to_string(), SUBJECT_BYTES_MAX);
        let text = cut(&text.to_string(), TEXT_BYTES_MAX);
        let left_out = {
            let mut state = self.state.lock();
            state.ring.add(SystemTime::now(), kind, subject.clone(), text);
            state.take_line(kind, moment, subject)
        };
        left_out.inspect(|left_out| line(Some(*left_out).filter(|count| *count > 0))).is_some()
    }
}

impl State {
    /// Decides whether an event is logged. If so, returns how many lines were left out before.
    fn take_line(&mut self, kind: EventKind, moment: Moment, subject: Box<str>) -> Option<u64> {
        let key = (kind as u8, subject);
        let is_end_of_shown = moment == Moment::End && self.logged_states.remove(&key);
        if moment == Moment::End && !is_end_of_shown {
            return None;
        }
        let limit = self.limits.get_mut(kind as usize)?;
        let left_out = limit.take(Instant::now(), is_end_of_shown)?;
        if moment == Moment::Begin && self.logged_states.len() < STATES_MAX {
            self.logged_states.insert(key);
        }
        Some(left_out)
    }
}

/// The place of an event in a state of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The event is about no state.
    Single,
    Begin,
    End,
}

fn cut(text: &str, bytes_max: usize) -> Box<str> {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().into()
}

/// A resource with its namespace fits.
const SUBJECT_BYTES_MAX: usize = 200;
/// The states that last at the same time, as far as the log shows their end: more than caches.
const STATES_MAX: usize = 4096;
/// A sentence with the cause of a failure.
const TEXT_BYTES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_counted_and_kept_and_some_are_logged() {
        let events = Events::register(&Registry::new()).unwrap();
        let count = |kind: &str| events.counts.as_ref().unwrap().with_label_values(&[kind]).get();
        let mut lines = Vec::new();
        for number in 0..300 {
            events.notable(EventKind::Relist, format!("v1/r{number}"), "expired", |left_out| {
                lines.push(left_out);
            });
        }
        assert_eq!((lines.len(), count("relist")), (10, 300));
        let events_kept = events.since(0);
        assert_eq!(
            (events_kept.len(), events_kept[0].count, events_kept[0].has_others),
            (1, 300, true)
        );
        // The lines of other kinds have a limit of their own.
        assert!(events.notable(EventKind::Rewind, "", "rewound", |left_out| {
            assert_eq!(left_out, None);
        }));
        assert_eq!((count("rewind"), count("stop")), (1, 0));
    }

    #[test]
    fn the_end_of_a_state_is_logged_if_its_begin_was() {
        let events = Events::default();
        let mut lines = Vec::new();
        let begin = |subject: &str, lines: &mut Vec<String>| {
            events.notable_begin(EventKind::Quarantine, subject, "wrong", |_| {
                lines.push(format!("{subject} begins"));
            });
        };
        for number in 0..12 {
            begin(&number.to_string(), &mut lines);
        }
        for number in 0..12 {
            events.notable_end(EventKind::Quarantine, number.to_string(), "right", |_| {
                lines.push(format!("{number} ends"));
            });
        }
        let lines_of =
            |what: &str| (0..10).map(|number| format!("{number} {what}")).collect::<Vec<_>>();
        assert_eq!(lines, [lines_of("begins"), lines_of("ends")].concat());
        let events_kept = events.since(0);
        assert_eq!(events_kept.iter().map(|event| event.count).sum::<u64>(), 24, "{events_kept:?}");
    }

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn each_kind_is_counted_from_zero_on() {
        let registry = Registry::new();
        let events = Events::register(&registry).unwrap();
        events.notable(EventKind::Quarantine, "v1/pods", "wrong", |_| {});
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for (kind, count) in [("quarantine", 1), ("relist", 0), ("stop", 0)] {
            let line = format!("weir_notable_events_total{{kind=\"{kind}\"}} {count}\n");
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
        assert_eq!(
            text.lines().filter(|line| !line.starts_with('#')).count(),
            EventKind::ALL.len()
        );
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let events = Events::default();
        events.notable(EventKind::BackOff, "é".repeat(500), "x".repeat(5000), |_| {});
        let event = &events.since(0)[0];
        assert_eq!((event.subject.len(), event.text.len()), (200, TEXT_BYTES_MAX));
        events.notable(EventKind::BackOff, format!("x{}", "é".repeat(500)), "", |_| {});
        assert_eq!(events.since(1)[0].subject.len(), 199);
    }
}
