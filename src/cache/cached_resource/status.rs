//! The state of a cache's reflector for operators: its name, its begin, the states before, and the
//! last failure.
//!
//! Lock order: each lock alone.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

/// The state of a cache's reflector.
#[derive(Debug)]
pub(crate) struct ReflectorStatus {
    /// The names of the last states, and since when, at least one. The present one is last.
    states: Mutex<VecDeque<Transition>>,
    failure: Mutex<Option<LastFailure>>,
}

/// The last failure of a reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// When it happened.
    pub at: SystemTime,
    /// Its cause. May contain the upstream's own text.
    pub cause: Box<str>,
}

/// The name of a state, and when it was entered.
pub(crate) type Transition = (&'static str, SystemTime);

impl ReflectorStatus {
    /// Enters a state.
    pub(crate) fn enter(&self, name: &'static str) {
        let mut states = self.states.lock();
        if states.back().is_some_and(|(last, _)| *last == name) {
            return;
        }
        if states.len() >= TRANSITIONS_MAX {
            states.pop_front();
        }
        states.push_back((name, SystemTime::now()));
    }

    /// Notes a failure.
    pub(crate) fn failed(&self, cause: &str) {
        let cause = cause.get(..cause.floor_char_boundary(CAUSE_BYTES_MAX)).unwrap_or_default();
        *self.failure.lock() = Some(LastFailure { at: SystemTime::now(), cause: cause.into() });
    }

    /// Returns the name of the state, and since when the reflector is in it.
    pub(crate) fn state(&self) -> Transition {
        self.states.lock().back().copied().unwrap_or(("starting", SystemTime::UNIX_EPOCH))
    }

    /// Returns the last states, the present one last.
    pub(crate) fn transitions(&self) -> Vec<Transition> {
        self.states.lock().iter().copied().collect()
    }

    pub(crate) fn failure(&self) -> Option<LastFailure> {
        self.failure.lock().clone()
    }
}

impl Default for ReflectorStatus {
    fn default() -> Self {
        let states = VecDeque::from([("starting", SystemTime::now())]);
        Self { states: Mutex::new(states), failure: Mutex::default() }
    }
}

/// A sentence with the cause of a failure.
const CAUSE_BYTES_MAX: usize = 400;
/// Some failures with what led to them.
const TRANSITIONS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_its_time_while_it_lasts() {
        let status = ReflectorStatus::default();
        status.enter("watching");
        let since = status.state();
        status.enter("watching");
        assert_eq!(status.state(), since);
        status.enter("backing-off");
        assert_eq!(status.state().0, "backing-off");
        let names: Vec<_> = status.transitions().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["starting", "watching", "backing-off"]);
        for _ in 0..30 {
            status.enter("watching");
            status.enter("resuming");
        }
        assert_eq!((status.transitions().len(), status.state().0), (TRANSITIONS_MAX, "resuming"));
        assert_eq!(status.failure(), None);
        status.failed(&"é".repeat(300));
        assert_eq!(status.failure().unwrap().cause.len(), CAUSE_BYTES_MAX);
    }
}
