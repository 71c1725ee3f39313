//! The limits that follow from the 429s of one API server.
//!
//! A 429 of its priority and fairness is a sign about one priority level there. The level's seats
//! at this server fall to 0.7 of what it has in use, and grow by a twentieth each second, until
//! they are more than it could take. A 429 without a level is a sign about the server as a whole.
//! One 429 counts within its `Retry-After`.
//!
//! Pure: no I/O, no clock, no task. Time is an argument, and may not go back.
//!
//! The design is that of `docs/decisions/adaptive-limits.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The refusals of one API server.
#[derive(Debug, Default)]
pub struct Refusals {
    levels: HashMap<Arc<str>, Cap>,
    server: Option<Cap>,
    recovered: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Cap {
    /// For a level, in parts of its nominal seats at this server; for all, in seats.
    most: f64,
    /// It never falls below this, so that it can grow again.
    least: f64,
    /// The time until which further 429s do not count.
    heeded_until: Duration,
}

impl Refusals {
    /// Returns the limit of all requests, in seats.
    pub fn limit(&self) -> Option<f64> {
        self.server.map(|cap| cap.most)
    }

    /// Returns the seats that a level may take, in parts of its nominal ones; `None` for no limit.
    pub fn part(&self, level: &str) -> Option<f64> {
        self.levels.get(level).map(|cap| cap.most)
    }

    /// Returns the limited levels, and the seats that they may take, in parts of their nominal
    /// ones.
    pub fn levels(&self) -> impl Iterator<Item = (&Arc<str>, f64)> {
        self.levels.iter().map(|(level, cap)| (level, cap.most))
    }

    /// Notes a refusal of a level that has `part` times its nominal seats in use.
    pub fn refused_level(
        &mut self,
        now: Duration,
        level: &Arc<str>,
        part: f64,
        retry_after: Option<Duration>,
    ) {
        if let Some(cap) = self.levels.get_mut(level) {
            cap.lower(now, retry_after);
        } else if self.levels.len() < LEVELS_MAX {
            let cap = Cap::new(now, part.max(1.0), PART_MIN, retry_after);
            self.levels.insert(Arc::clone(level), cap);
        }
    }

    /// Notes a refusal that is of no level, while `in_use` seats are in use. The limit never falls
    /// below `floor`.
    pub fn refused_all(
        &mut self,
        now: Duration,
        in_use: f64,
        floor: f64,
        retry_after: Option<Duration>,
    ) {
        match &mut self.server {
            Some(cap) => cap.lower(now, retry_after),
            None => self.server = Some(Cap::new(now, in_use.max(floor), floor, retry_after)),
        }
    }

    /// Lets the limits grow with the time since the last call. `ceiling` is the most seats.
    pub fn recover(&mut self, now: Duration, ceiling: f64) {
        let passed = now.saturating_sub(self.recovered).as_secs_f64();
        self.recovered = self.recovered.max(now);
        let grown = GROWTH.powf(passed);
        let is_over = |cap: &mut Cap, end: f64| {
            cap.most *= grown;
            cap.most >= end && now >= cap.heeded_until
        };
        self.levels.retain(|_, cap| !is_over(cap, PART_MAX));
        if self.server.as_mut().is_some_and(|cap| is_over(cap, ceiling)) {
            self.server = None;
        }
    }
}

impl Cap {
    fn new(now: Duration, most: f64, least: f64, retry_after: Option<Duration>) -> Self {
        let mut cap = Self { most, least, heeded_until: now };
        cap.lower(now, retry_after);
        cap
    }

    fn lower(&mut self, now: Duration, retry_after: Option<Duration>) {
        if now >= self.heeded_until {
            let heeded = retry_after.unwrap_or(HEEDED_MIN).clamp(HEEDED_MIN, HEEDED_MAX);
            self.heeded_until = now + heeded;
            self.most = (self.most * LOWERED).max(self.least);
        }
    }
}

/// A refusal lowers the limit to this part.
const LOWERED: f64 = 0.7;
/// The growth of a second.
const GROWTH: f64 = 1.05;
/// A level's part of its nominal seats from which on it is not limited: few borrow more.
const PART_MAX: f64 = 8.0;
/// The least part of its nominal seats.
const PART_MIN: f64 = 0.1;
const HEEDED_MIN: Duration = Duration::from_secs(1);
/// kube-apiserver's largest `Retry-After` is 32 s.
const HEEDED_MAX: Duration = Duration::from_secs(32);
/// Levels of one API server that are kept.
const LEVELS_MAX: usize = 256;

#[cfg(test)]
mod tests;
