//! The stages of Weir's own overload (`docs/decisions/own-overload.md`).
//!
//! Each stage is entered at one value of a signal and left at a lower one, so that it does not
//! change with each measurement. Memory and file descriptors that run out lead to their stage at
//! once. Lateness of the runtime raises the stage step by step, and only if this process itself
//! uses its CPU, or if it lasts: a noisy neighbour alone sheds nothing. Stages are left one by one.
//!
//! Pure: no clock and no I/O.

use std::time::Duration;

/// The stage of overload, which decides about refusals. A higher stage does all that a lower one
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is refused.
    #[default]
    Calm,
    /// Nothing is done that is not necessary: no compression for a single response.
    Saving,
    /// Large lists of the lower priority levels are refused.
    LargeLists,
    /// Large lists, and watches that begin with a state, are refused.
    InitialStates,
    /// Only requests that keep nodes and leases alive are answered, and GETs from the cache.
    VitalOnly,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// The lateness of timers, the 90th percentile of the last second.
    pub lateness: Duration,
    /// The part of the CPU that this process may use and has used in the last second.
    pub cpu: f64,
    /// The part of the memory limit that is used; 0 without a limit.
    pub memory: f64,
    /// The part of the file descriptors that is used.
    pub descriptors: f64,
}

/// The present stage, and what decides about the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageMachine {
    stage: Stage,
    changed: Duration,
    /// The time since which the lateness is so high that it counts without the CPU.
    very_late_since: Option<Duration>,
}

impl Stage {
    /// All stages, the lowest first.
    pub const ALL: [Self; 5] =
        [Self::Calm, Self::Saving, Self::LargeLists, Self::InitialStates, Self::VitalOnly];

    /// Returns the stage with this number; the highest for a number that is too high.
    pub fn numbered(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::VitalOnly)
    }
}

impl Signals {
    /// Returns the signals of what runs out, without those of the CPU.
    pub fn space_only(&self) -> Self {
        Self { lateness: Duration::ZERO, cpu: 0.0, ..*self }
    }

    /// Returns the signal of memory alone.
    pub fn memory_only(&self) -> Self {
        Self { descriptors: 0.0, ..self.space_only() }
    }

    /// Returns the highest stage that is reached, if each entry is multiplied by its part.
    fn stage(&self, lateness: Duration, part: &Parts) -> Stage {
        let reached = |value: f64, entries: &[f64; 4], part: f64| {
            entries.iter().filter(|entry| value >= **entry * part).count()
        };
        let late = reached(lateness.as_secs_f64(), &LATENESS, part.lateness);
        let memory = reached(self.memory, &MEMORY, part.space);
        let descriptors = reached(self.descriptors, &DESCRIPTORS, part.space);
        let highest = late.max(memory).max(descriptors);
        Stage::ALL.get(highest).copied().unwrap_or(Stage::VitalOnly)
    }
}

impl StageMachine {
    /// Returns the stage after a measurement at `now`, a time since any fixed instant.
    pub fn observe(&mut self, now: Duration, signals: &Signals) -> Stage {
        let lateness = self.counted_lateness(now, signals);
        let is_settled = now.saturating_sub(self.changed) >= SETTLED_AFTER;
        let full = signals.stage(Duration::ZERO, &ENTRY);
        let next = if full > self.stage {
            full
        } else if signals.stage(lateness, &ENTRY) > self.stage && is_settled {
            Stage::numbered(self.stage as u8 + 1)
        } else if signals.stage(lateness, &EXIT) < self.stage && is_settled {
            Stage::numbered((self.stage as u8).saturating_sub(1))
        } else {
            self.stage
        };
        if next != self.stage {
            (self.stage, self.changed) = (next, now);
        }
        next
    }

    /// Returns the lateness, if it is this process's own or lasts.
    fn counted_lateness(&mut self, now: Duration, signals: &Signals) -> Duration {
        let is_very_late = signals.lateness >= VERY_LATE;
        self.very_late_since = is_very_late.then(|| self.very_late_since.unwrap_or(now));
        let lasts = |since| now.saturating_sub(since) >= SETTLED_AFTER;
        let counts = signals.cpu >= CPU_BUSY || self.very_late_since.is_some_and(lasts);
        if counts { signals.lateness } else { Duration::ZERO }
    }
}

struct Parts {
    lateness: f64,
    /// The part of memory and file descriptors.
    space: f64,
}

/// A stage is entered at its entries.
const ENTRY: Parts = Parts { lateness: 1.0, space: 1.0 };
/// A stage is left below these parts of them. Lateness varies more than memory does.
const EXIT: Parts = Parts { lateness: 0.5, space: 0.95 };
/// The entries of the stages, in seconds of lateness.
const LATENESS: [f64; 4] = [0.020, 0.050, 0.100, 0.250];
/// The entries of the stages, in parts of the memory limit.
const MEMORY: [f64; 4] = [0.80, 0.86, 0.91, 0.95];
/// The entries of the stages, in parts of the limit of file descriptors.
const DESCRIPTORS: [f64; 4] = [0.70, 0.80, 0.88, 0.95];
/// From this part of its CPU on the process is late because of its own work.
const CPU_BUSY: f64 = 0.85;
/// This much lateness counts whatever the reason, if it lasts for [`SETTLED_AFTER`].
const VERY_LATE: Duration = Duration::from_millis(200);
/// The time between two changes of the stage, except where memory or descriptors run out.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
