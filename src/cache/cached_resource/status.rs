//! The state of a cache's reflector for operators: its name, its begin, and the last failure.
//!
//! Lock order: each lock alone.

use std::time::SystemTime;

use parking_lot::Mutex;

/// The state of a cache's reflector.
#[derive(Debug)]
pub(crate) struct ReflectorStatus {
    /// The name of the state, and since when.
    state: Mutex<(&'static str, SystemTime)>,
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

impl ReflectorStatus {
    /// Enters a state.
    pub(crate) fn enter(&self, name: &'static str) {
        let mut state = self.state.lock();
        if state.0 != name {
            *state = (name, SystemTime::now());
        }
    }

    /// Notes a failure.
    pub(crate) fn failed(&self, cause: &str) {
        let cause = cause.get(..cause.floor_char_boundary(CAUSE_BYTES_MAX)).unwrap_or_default();
        *self.failure.lock() = Some(LastFailure { at: SystemTime::now(), cause: cause.into() });
    }

    /// Returns the name of the state, and since when the reflector is in it.
    pub(crate) fn state(&self) -> (&'static str, SystemTime) {
        *self.state.lock()
    }

    /// Returns the last failure.
    pub(crate) fn failure(&self) -> Option<LastFailure> {
        self.failure.lock().clone()
    }
}

impl Default for ReflectorStatus {
    fn default() -> Self {
        Self { state: Mutex::new(("starting", SystemTime::now())), failure: Mutex::default() }
    }
}

/// A sentence with the cause of a failure.
const CAUSE_BYTES_MAX: usize = 400;

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
        assert_eq!(status.failure(), None);
        status.failed(&"é".repeat(300));
        assert_eq!(status.failure().unwrap().cause.len(), CAUSE_BYTES_MAX);
    }
}
