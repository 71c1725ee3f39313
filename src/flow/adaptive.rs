//! The limit of one API server: how many seats forwarded requests may take there at once.
//!
//! Two signals lower it, each with a limit of its own:
//!
//! * *Latency.* Reads of a class ([`classes`]) that take twice as long as in the best minute of the
//!   last ten, in three windows in a row, say that requests wait inside the server. Then the seats
//!   in use, divided by how much longer reads take, are what the server works on (Little's law),
//!   and the limit goes there in steps. Only reads vote: the time of a write includes its webhooks.
//! * *Refusals* ([`refusals`]). A 429 of the server's filters lowers the limit, or the part of one
//!   priority level.
//!
//! A server may be slow without a queue: its disk, its network. Then fewer requests at once are
//! only fewer answers. So each cut is checked: if the answers fall with the seats, it is taken
//! back, and the new latency is the usual one from then on. Where there are too few answers for
//! that, the limit leaves its floor after a minute.
//!
//! Pure: no I/O, no clock, no task. Time is an argument, and may not go back.
//!
//! The design is that of `docs/decisions/adaptive-limits.md`.

mod classes;
pub mod refusals;
mod window;

use std::sync::Arc;
use std::time::Duration;

use self::classes::{Classes, Latencies};
use self::refusals::Refusals;
use self::window::{Cut, Outcomes, Seen, Window};

/// The limit of one API server.
#[derive(Debug)]
pub struct AdaptiveLimit {
    ceiling: u64,
    /// The limit by latency; at most the ceiling.
    by_latency: f64,
    /// Whether latency has lowered the limit, and it has not come back yet.
    is_lowered: bool,
    /// Windows in a row in which reads took twice as long as usual...
    slow_windows: u32,
    /// ...and in which they took longer than they do at the knee.
    queued_windows: u32,
    /// Windows in a row in which the limit grew.
    calm_windows: u32,
    /// The seats that the server works on, while requests wait there.
    knee: Option<f64>,
    /// The state before the limit was lowered.
    cut: Option<Cut>,
    /// The time since which the limit is at its floor, with the answers and the errors since then.
    at_floor: Option<(Duration, Outcomes)>,
    /// The time since which nothing was slow, and few seats were in use.
    idle_since: Option<Duration>,
    /// The mean latency of the last window.
    latency: Duration,
    classes: Classes,
    refusals: Refusals,
    window: Window,
    in_use: u64,
}

/// An answer of the server.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The class of a read, as a hash; `None` for a request that does not vote.
    pub class: Option<u64>,
    /// The seats that it takes.
    pub seats: u64,
    /// The time from the request to the head of the response.
    pub latency: Duration,
    /// Whether its status is 5xx.
    pub is_error: bool,
}

impl AdaptiveLimit {
    /// Begins at the ceiling: a Weir that has just started throttles nobody.
    pub fn new(now: Duration, ceiling: u64) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            ceiling,
            by_latency: ceiling as f64,
            is_lowered: false,
            slow_windows: 0,
            queued_windows: 0,
            calm_windows: 0,
            knee: None,
            cut: None,
            at_floor: None,
            idle_since: None,
            latency: Duration::ZERO,
            classes: Classes::new(now),
            refusals: Refusals::default(),
            window: Window::new(now, 0),
            in_use: 0,
        }
    }

    /// Sets the ceiling. A limit that was not lowered follows it.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        let ceiling = ceiling.max(1);
        let was_full = self.by_latency >= self.ceiling as f64;
        self.ceiling = ceiling;
        let limit = if was_full { ceiling as f64 } else { self.by_latency };
        self.by_latency = limit.min(ceiling as f64);
    }

    /// Returns the most seats.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Returns the limit in seats; with what latency says, or by refusals alone.
    pub fn limit(&self, with_latency: bool) -> u64 {
        let by_latency = if with_latency { self.by_latency } else { self.ceiling as f64 };
        let limit = self.refusals.limit().map_or(by_latency, |limit| limit.min(by_latency));
        (limit as u64).clamp(self.floor(), self.ceiling)
    }

    /// Returns the seats in use.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Returns the parts of priority levels that the server has refused.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Counts seats that a request takes.
    pub fn take(&mut self, now: Duration, seats: u64) {
        self.window.count(now, self.in_use);
        self.in_use += seats;
        self.window.peak = self.window.peak.max(self.in_use);
    }

    /// Counts the seats of a request that has ended.
    pub fn give(&mut self, now: Duration, seats: u64) {
        self.window.count(now, self.in_use);
        self.in_use = self.in_use.saturating_sub(seats);
    }

    /// Notes an answer.
    pub fn answered(&mut self, answer: Answer) {
        let Outcomes { answers, seats, errors, .. } = &mut self.window.outcomes;
        *answers = answers.saturating_add(1);
        *seats = seats.saturating_add(answer.seats);
        *errors = errors.saturating_add(u32::from(answer.is_error));
        // An error may be quicker than the answer would have been.
        if let Some(class) = answer.class.filter(|_| !answer.is_error) {
            self.classes.add(class, answer.latency);
        }
    }

    /// Notes that a request has lost its connection, or its client after a long wait for the head.
    pub fn lost(&mut self) {
        let lost = &mut self.window.outcomes.lost;
        *lost = lost.saturating_add(1);
    }

    /// Notes a 429 of the server's filters. `level` is the priority level that it refuses, and how
    /// many times its nominal seats that level has in use.
    pub fn refused(
        &mut self,
        now: Duration,
        level: Option<(&Arc<str>, f64)>,
        retry_after: Option<Duration>,
    ) {
        match level {
            Some((name, part)) => self.refusals.refused_level(now, name, part, retry_after),
            None => {
                let (in_use, floor) = (self.in_use as f64, self.floor() as f64);
                self.refusals.refused_all(now, in_use, floor, retry_after);
            }
        }
    }

    /// Evaluates what was seen, if it is time. To be called about every second.
    pub fn tick(&mut self, now: Duration) {
        self.refusals.recover(now, self.ceiling as f64);
        self.window.count(now, self.in_use);
        let age = now.saturating_sub(self.window.began);
        let is_full = self.classes.votes() >= VOTES_WANTED;
        // The answers of a window should be to requests of the window.
        let least = self.latency.clamp(WINDOW_MIN, WINDOW_LONG);
        if age < least || (!is_full && age < WINDOW_MAX) {
            return;
        }
        let window = std::mem::replace(&mut self.window, Window::new(now, self.in_use));
        let seconds = age.as_secs_f64();
        let seen = Seen {
            in_use: window.seat_seconds / seconds,
            peak: window.peak as f64,
            answers: window.outcomes.answers,
            rate: window.outcomes.seats as f64 / seconds,
        };
        // The latency of reads under a limit that binds is not their usual one.
        let latencies = self.classes.end_window(now, self.is_lowered && self.binds(seen));
        if let Some(latencies) = &latencies {
            self.latency = Duration::try_from_secs_f64(latencies.latency).unwrap_or(WINDOW_LONG);
        }
        self.evaluate(now, seen, latencies, window.outcomes);
        self.leave_floor(now, window.outcomes);
    }

    fn evaluate(
        &mut self,
        now: Duration,
        seen: Seen,
        latencies: Option<Latencies>,
        outcomes: Outcomes,
    ) {
        let Outcomes { answers, lost, .. } = outcomes;
        let outcomes_total = answers.saturating_add(lost);
        if outcomes_total >= OUTCOMES_MIN && lost.saturating_mul(LOST_PART) > outcomes_total {
            self.lower(self.by_latency.min(seen.peak) * AFTER_LOSSES);
            return;
        }
        let Some(latencies) = latencies else {
            // Nothing says that the server is slow.
            if lost == 0 && answers >= OUTCOMES_MIN {
                self.grow(seen);
            }
            return;
        };
        let ratio = latencies.ratio;
        let is_busy = seen.in_use >= self.floor() as f64;
        let counted = |count: u32, is: bool| if is { count.saturating_add(1) } else { 0 };
        self.slow_windows = counted(self.slow_windows, ratio >= SLOW && is_busy);
        self.queued_windows = counted(self.queued_windows, ratio > QUEUED);
        let acts = self.is_lowered || self.slow_windows >= SLOW_WINDOWS;
        if ratio <= CALM && self.return_answers(now, seen) {
            return;
        }
        match (acts, ratio) {
            (true, _) if self.queued_windows >= SLOW_WINDOWS => {
                self.shrink(now, seen, latencies.excess);
            }
            (true, ratio) if ratio > CALM => self.calm_windows = 0,
            (false, ratio) if ratio >= SLOW => self.calm_windows = 0,
            _ => self.grow(seen),
        }
        self.forget_when_idle(now, seen, ratio);
    }

    /// Goes towards the knee, unless the last steps have shown that there is none.
    fn shrink(&mut self, now: Duration, seen: Seen, excess: f64) {
        if let Some(cut) = self.cut.filter(|cut| cut.is_recent(now))
            && self.binds(seen)
            && cut.took_answers(&seen)
        {
            self.classes.rebase();
            self.by_latency = cut.limit.min(self.ceiling as f64);
            self.forget();
            return;
        }
        // Little's law: the rate of answers times their excess latency is the number that waits.
        let knee = (seen.in_use - seen.rate * excess).max(0.0);
        let knee = self.knee.map_or(knee, |before| (before + knee) / 2.0);
        self.knee = Some(knee);
        let step = self.by_latency.min(seen.peak) * STEP;
        let target = (knee * ABOVE_KNEE).max(step);
        if target >= self.by_latency {
            return;
        }
        if !self.cut.is_some_and(|cut| cut.is_recent(now)) {
            self.cut = Some(Cut { at: now, limit: self.by_latency, seen });
        }
        self.lower(target);
    }

    /// Raises a limit that was lowered too far: nothing waits in the server now, and it answered
    /// more before. Answers are in proportion to seats then.
    fn return_answers(&mut self, now: Duration, seen: Seen) -> bool {
        let Some(cut) = self.cut.filter(|cut| cut.is_recent(now)) else { return false };
        let Some(gain) = cut.gain(&seen).filter(|_| self.binds(seen)) else { return false };
        self.by_latency = (seen.in_use * gain).min(cut.limit).max(self.by_latency);
        true
    }

    fn lower(&mut self, limit: f64) {
        self.calm_windows = 0;
        let limit = limit.max(self.floor() as f64);
        if limit < self.by_latency {
            self.by_latency = limit;
            self.is_lowered = true;
        }
    }

    /// Only a limit that is used says something about a higher one.
    fn grow(&mut self, seen: Seen) {
        if seen.peak * 2.0 < self.by_latency {
            return;
        }
        self.calm_windows = self.calm_windows.saturating_add(1);
        let growth = (GROWTH * f64::from(self.calm_windows)).min(GROWTH_MAX);
        self.by_latency = (self.by_latency * (1.0 + growth)).min(self.ceiling as f64);
        if self.by_latency >= self.ceiling as f64 {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.is_lowered = false;
        self.slow_windows = 0;
        self.queued_windows = 0;
        self.calm_windows = 0;
        self.knee = None;
        self.cut = None;
        self.idle_since = None;
    }

    /// After a minute in which nothing was slow and few seats were in use, latencies are learned
    /// again.
    fn forget_when_idle(&mut self, now: Duration, seen: Seen, ratio: f64) {
        if ratio > QUEUED || seen.peak * 2.0 >= self.by_latency {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if self.is_lowered && now.saturating_sub(since) >= IDLE_FOR {
            self.forget();
        }
    }

    /// A server that answers well at the floor, and is slow all the same, is not slow for what Weir
    /// sends.
    fn leave_floor(&mut self, now: Duration, outcomes: Outcomes) {
        if !self.is_lowered || self.by_latency > self.floor() as f64 {
            self.at_floor = None;
            return;
        }
        let (since, sums) = self.at_floor.get_or_insert((now, Outcomes::default()));
        sums.answers = sums.answers.saturating_add(outcomes.answers);
        sums.errors = sums.errors.saturating_add(outcomes.errors).saturating_add(outcomes.lost);
        if now.saturating_sub(*since) < FLOOR_FOR {
            return;
        }
        let is_well = sums.answers > 0 && sums.errors.saturating_mul(ERRORS_PART) < sums.answers;
        self.at_floor = None;
        if is_well {
            self.classes.rebase();
            self.by_latency = (self.ceiling / 2).max(self.floor()) as f64;
            self.forget();
        }
    }

    fn binds(&self, seen: Seen) -> bool {
        seen.in_use >= BINDS * self.by_latency
    }

    fn floor(&self) -> u64 {
        FLOOR.min(self.ceiling)
    }
}

/// The least limit, in seats: what one busy controller needs.
pub const FLOOR: u64 = 32;
/// The least time between two evaluations...
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// ...and the most, if there are fewer votes than this.
const WINDOW_MAX: Duration = Duration::from_secs(3);
/// The least time if answers take longer.
const WINDOW_LONG: Duration = Duration::from_secs(5);
const VOTES_WANTED: u32 = 30;
/// A server is slow if its reads take this many times as long as usual.
const SLOW: f64 = 2.0;
/// One slow window, and a second one in which the server makes up for it, may be a pause.
const SLOW_WINDOWS: u32 = 3;
/// While the limit is lowered, it falls as long as reads take more than this, and grows if they
/// take less than [`CALM`]: between them is the knee.
const QUEUED: f64 = 1.2;
const CALM: f64 = 1.1;
/// A few requests may wait in the server, so that it always has one to work on.
const ABOVE_KNEE: f64 = 1.05;
/// The limit falls to this part of itself, or of the seats in use, in one window.
const STEP: f64 = 0.6;
/// The growth of a first calm window, of each one after it, and the most: near the knee small steps
/// do, and a server that has recovered is soon used.
const GROWTH: f64 = 0.01;
const GROWTH_MAX: f64 = 0.10;
/// If more than one request of this number has no answer...
const LOST_PART: u32 = 20;
/// ...in a window with at least this number, the limit falls to this part.
const OUTCOMES_MIN: u32 = 10;
const AFTER_LOSSES: f64 = 0.9;
/// The part of a limit that is in use if it binds.
const BINDS: f64 = 0.85;
const FLOOR_FOR: Duration = Duration::from_secs(60);
/// A server answers well if less than one answer of this number is an error.
const ERRORS_PART: u32 = 100;
const IDLE_FOR: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
