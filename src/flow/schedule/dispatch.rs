//! Which request starts next, of those that wait.

use std::time::Duration;

use super::Scheduler;
use super::level::{Fit, Level, Waiting};
use super::request::{Arriving, Manner, Outcome, RejectReason, Rejected, Ticket, WaitingId};

impl Scheduler {
    pub(super) fn start(&mut self, now: Duration, place: usize, waiting: &Waiting) -> Ticket {
        let Arriving { flow, seats, guess, .. } = waiting.request();
        if let Some(level) = self.levels.get_mut(place) {
            let before = level.claimed();
            level.start(flow, seats, guess);
            level.note_flows(now);
            if level.spec.manner != Manner::Exempt {
                self.in_use += seats;
            }
            self.claimed = self.claimed - before + level.claimed();
        }
        Ticket { level: place, flow, seats, guess, started: now }
    }

    /// Whether a request may start, as far as seats go.
    pub(super) fn fit(&self, now: Duration, place: usize, flow: u64, seats: u64) -> Fit {
        let Some(level) = self.levels.get(place) else { return Fit::No };
        let free = self.seats.saturating_sub(self.in_use);
        if seats <= free && level.in_use + seats <= level.limits.least {
            return level.fit(now, flow, seats, level.limits.nominal);
        }
        let unclaimed = self.seats.saturating_sub(self.claimed);
        let lent = level.limits.least.saturating_sub(level.in_use);
        // A level without a claim of its own runs one request at a time at least, as in
        // kube-apiserver.
        let first = u64::from(level.in_use == 0);
        let room = (unclaimed + lent)
            .max(first)
            .min(free)
            .min(level.limits.most.saturating_sub(level.in_use));
        if seats > room {
            return Fit::No;
        }
        level.fit(now, flow, seats, level.limits.nominal.max(level.in_use + room))
    }

    /// Starts all that may start. The level with the least part of its nominal seats goes first.
    pub(super) fn dispatch(&mut self, now: Duration) {
        if let Some((id, _)) = self.passed
            && !self.levels.get(id.level).is_some_and(|level| level.has(id.flow, id.number))
        {
            self.passed = None;
        }
        let mut is_done = vec![false; if self.waiting > 0 { self.levels.len() } else { 0 }];
        while let Some(place) = self.next_level(&is_done) {
            let Some(number) = self.next_of(now, place) else {
                if let Some(done) = is_done.get_mut(place) {
                    *done = true;
                }
                continue;
            };
            let Some(waiting) = self.levels.get_mut(place).and_then(|it| it.pop(number)) else {
                continue;
            };
            self.waiting -= 1;
            let id = WaitingId { level: place, flow: waiting.request().flow, number };
            let ticket = self.start(now, place, &waiting);
            self.outcomes.push(Outcome { id, result: Ok(ticket) });
            match &mut self.passed {
                Some((short, _)) if *short == id => self.passed = None,
                Some((_, passed)) => *passed += waiting.request().work(),
                None => {}
            }
        }
    }

    fn next_level(&self, is_done: &[bool]) -> Option<usize> {
        let levels = self.levels.iter().zip(is_done).enumerate();
        let waiting = levels.filter(|(_, (level, done))| !**done && level.waiting() > 0);
        let key = |level: &Level| {
            let part = u128::from(level.in_use) << 32;
            (part / u128::from(level.limits.nominal.max(1)), level.oldest())
        };
        waiting.min_by_key(|(_, (level, _))| key(level)).map(|(place, _)| place)
    }

    /// Returns the number of the request of a level that starts now, if one may.
    fn next_of(&mut self, now: Duration, place: usize) -> Option<u64> {
        let level = self.levels.get(place)?;
        let mut is_first = true;
        for (flow, head) in level.heads() {
            let seats = head.request().seats;
            let id = WaitingId { level: place, flow, number: head.number() };
            // Others may pass it for as much work as it is itself.
            let is_held = self.passed.is_some_and(|(short, passed)| {
                short != id
                    && passed >= self.work_of(short)
                    && (short.level == place
                        || (level.in_use + seats > level.limits.least && self.is_due(short)))
            });
            match self.fit(now, place, flow, seats) {
                Fit::Yes if !is_held => return Some(head.number()),
                Fit::No if is_first && seats > 1 && self.passed.is_none() => {
                    self.passed = Some((id, 0));
                }
                Fit::Yes | Fit::No => {}
                Fit::FlowHasEnough => continue,
            }
            is_first = false;
        }
        None
    }

    /// Whether other levels leave seats to a request: its level stays within its nominal seats with
    /// it, or has nothing else.
    fn is_due(&self, id: WaitingId) -> bool {
        let level = self.levels.get(id.level);
        let seats = level.and_then(|level| Some(level.get(id.flow, id.number)?.request().seats));
        level.zip(seats).is_some_and(|(level, seats)| {
            level.in_use == 0 || level.in_use + seats <= level.limits.nominal
        })
    }

    fn work_of(&self, id: WaitingId) -> i128 {
        let waiting = self.levels.get(id.level).and_then(|level| level.get(id.flow, id.number));
        waiting.map_or(0, |waiting| waiting.request().work())
    }

    /// Rejects the newest request of the longest queue of a level, if that is longer than the one
    /// of `flow`.
    pub(super) fn drop_of_longest(&mut self, place: usize, flow: u64) -> bool {
        let Some(level) = self.levels.get_mut(place) else { return false };
        let Some(longest) = level.longest() else { return false };
        if level.waiting_of(longest) <= level.waiting_of(flow) + 1 {
            return false;
        }
        let Some(dropped) = level.pop_newest(longest) else { return false };
        let retry_after = level.expected_wait(&dropped.request());
        let id = WaitingId { level: place, flow: longest, number: dropped.number() };
        let rejected = Rejected { reason: RejectReason::QueueFull, retry_after };
        self.outcomes.push(Outcome { id, result: Err(rejected) });
        self.waiting -= 1;
        true
    }
}
