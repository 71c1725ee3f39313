//! Fair queueing of forwarded requests: which of them starts next.
//!
//! The API server's time is counted in seats, as in API Priority and Fairness. Each priority level
//! has a share of them ([`share`]). A level takes what others do not claim, and gets its own back
//! as soon as somebody ends: kube-apiserver moves seats between levels every 10 s. Within a level
//! each flow has a queue of its own ([`level`]), so that no two flows collide, and the flow that
//! was given least is next (start-time fair queueing, SFQ(D)).
//!
//! Pure: no I/O, no clock, no task. Time is an argument. The caller collects an [`Outcome`] of each
//! request that waits, after each call.
//!
//! Invariants, which the tests hold against a model:
//!
//! 1. The seats of all levels but exempt ones are at most all seats, unless requests were forced.
//! 2. The sum over all levels of the greater of their seats in use and their least seats is at most
//!    all seats, and one more for each level that has no least seats. So a request within its
//!    level's least seats waits for the end of one other at most.
//! 3. A request waits only while it does not fit, while its flow has its part, while seats are
//!    collected for a wider one, or, if it is long or wide, while those have their part.
//! 4. Each request ends exactly once: started, or rejected, or cancelled.
//! 5. A request of several seats starts if all such together have at most
//!    [`Scheduler::limit_wide`], or if its level has no other one.
//!
//! 6. Of the seats that levels lend, long requests take half at most, but for one of each level. So
//!    the other half comes back within a second.
//!
//! The design is that of `docs/decisions/fair-queueing.md`.

mod dispatch;
mod flow;
mod level;
mod order;
pub mod request;
pub mod share;

use std::time::Duration;

use self::flow::Waiting;
use self::level::{Fit, Level};
use self::request::{
    Arrival, Arriving, LevelId, LevelSpec, Load, Manner, Outcome, RejectReason, Rejected, Ticket,
    WaitingId, WideLoad, work,
};
use self::share::{LevelShare, Limits, SeatSums, divide};

/// The seats in use and the requests that wait, of all levels.
#[derive(Debug)]
pub struct Scheduler {
    /// All seats but those of exempt levels.
    seats: u64,
    levels: Vec<Level>,
    in_use: u64,
    /// The part of `in_use` that requests of several seats hold...
    wide_in_use: u64,
    /// ...and the most of it. One request of each level may always run.
    wide_max: u64,
    sums: SeatSums,
    waiting: usize,
    next: u64,
    /// A request that does not fit although it is next, and the work that passed it since, in
    /// seats times nanoseconds.
    passed: Option<(WaitingId, i128)>,
    outcomes: Vec<Outcome>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            seats: 0,
            levels: Vec::new(),
            in_use: 0,
            wide_in_use: 0,
            wide_max: u64::MAX,
            sums: SeatSums::default(),
            waiting: 0,
            next: 0,
            passed: None,
            outcomes: Vec::new(),
        }
    }
}

impl Scheduler {
    /// Replaces the levels and the number of seats. A level that is gone takes no new requests, and
    /// keeps its share until it is empty. Returns the names of the levels given, in their order.
    pub fn configure(&mut self, now: Duration, seats: u64, specs: &[LevelSpec]) -> Vec<LevelId> {
        self.levels.iter_mut().for_each(|level| level.is_gone = true);
        let mut ids = Vec::with_capacity(specs.len());
        for spec in specs {
            let same = self.levels.iter().position(|level| level.spec.name == spec.name);
            let free = || self.levels.iter().position(|level| level.is_gone && level.is_empty());
            let place = same.or_else(free).unwrap_or(self.levels.len());
            match self.levels.get_mut(place) {
                Some(level) => {
                    level.is_gone = false;
                    level.spec = spec.clone();
                }
                None => self.levels.push(Level::new(spec.clone())),
            }
            ids.push(LevelId(place));
        }
        self.resize(now, seats);
        ids
    }

    /// Sets the number of seats, and the levels that may have a percentage of their nominal seats
    /// at most. Seats in use stay.
    pub fn limit(&mut self, now: Duration, seats: u64, caps: &[(LevelId, u64)]) {
        self.levels.iter_mut().for_each(|level| level.percent_max = None);
        for (LevelId(place), percent) in caps {
            if let Some(level) = self.levels.get_mut(*place) {
                level.percent_max = Some(*percent);
            }
        }
        self.resize(now, seats);
    }

    /// Sets the most seats that requests of several seats have together. Those in use stay.
    pub fn limit_wide(&mut self, now: Duration, seats_max: u64) {
        self.wide_max = seats_max;
        self.dispatch(now);
    }

    /// Returns the load of requests of several seats.
    pub fn wide_load(&self) -> WideLoad {
        let has_room = |level: &Level| {
            level.order().widths().all(|width| self.has_room_for_wide(level, width.seats))
        };
        WideLoad {
            seats: self.wide_in_use,
            seats_max: self.wide_max,
            is_limited: !self.levels.iter().all(has_room),
        }
    }

    /// Sets the number of seats. Those in use stay.
    pub fn resize(&mut self, now: Duration, seats: u64) {
        self.seats = seats.max(1);
        let shares: Vec<LevelShare> = self.levels.iter().map(Level::share).collect();
        let divided = divide(self.seats, &shares).into_iter();
        let limits: Vec<Limits> = (divided.zip(&self.levels))
            .map(|(limits, level)| level.percent_max.map_or(limits, |max| limits.capped(max)))
            .collect();
        let least: u64 = limits.iter().map(|limit| limit.least).sum();
        for (level, limits) in self.levels.iter_mut().zip(limits) {
            // A wider request could never start.
            let rest = self.seats - (least - limits.least);
            let most = limits.most.min(rest).max(1);
            level.limits = Limits { most, ..limits };
            level.clamp_waiting();
        }
        self.sums = SeatSums::default();
        self.levels.iter().for_each(|level| self.sums.add(level.sums()));
        self.dispatch(now);
    }

    /// Takes a request in. `force` starts it in any case, for modes that only watch.
    pub fn arrive(
        &mut self,
        now: Duration,
        LevelId(place): LevelId,
        request: Arriving,
        force: bool,
    ) -> Arrival {
        let Some(level) = self.levels.get(place) else {
            let (reason, retry_after) = (RejectReason::Concurrency, Duration::ZERO);
            return Arrival::Rejected(Rejected { reason, retry_after });
        };
        let seats = request.seats.clamp(1, level.widest());
        let request = Arriving { seats, ..request };
        let manner = level.spec.manner;
        let starts = self.would_start(now, place, &request);
        if force || starts {
            let ticket = self.start(now, place, &request);
            return if starts { Arrival::Started(ticket) } else { Arrival::Forced(ticket) };
        }
        let Manner::Queue { flow_max, level_max } = manner else {
            let retry_after = level.expected_wait(&request);
            return Arrival::Rejected(Rejected { reason: RejectReason::Concurrency, retry_after });
        };
        let wait_max = level.wait_max(now, &request);
        let expected = level.expected_wait(&request);
        let reject = |reason| Arrival::Rejected(Rejected { reason, retry_after: expected });
        if expected > wait_max {
            return reject(RejectReason::TimeOut);
        }
        if level.waiting_of(request.flow) >= flow_max || self.waiting >= WAITING_MAX {
            return reject(RejectReason::QueueFull);
        }
        let is_full = level.waiting() >= level_max;
        if is_full && !self.drop_of_longest(place, request.flow) {
            return reject(RejectReason::QueueFull);
        }
        self.next += 1;
        let id = WaitingId { level: place, flow: request.flow, number: self.next };
        self.waiting += 1;
        let mut is_behind = false;
        if let Some(level) = self.levels.get_mut(place) {
            is_behind = level.waiting_of(request.flow) > 0 && level.has_several_flows();
            level.push(Waiting { number: self.next, arrived: now, request });
            level.note_flows(now);
        }
        // Behind another of its flow it changes nothing for those that wait.
        if is_behind {
            return Arrival::Waits(id, wait_max);
        }
        self.dispatch(now);
        match self.outcomes.iter().position(|outcome| outcome.id == id) {
            None => Arrival::Waits(id, wait_max),
            Some(place) => match self.outcomes.swap_remove(place).result {
                Ok(ticket) => Arrival::Started(ticket),
                Err(rejected) => Arrival::Rejected(rejected),
            },
        }
    }

    fn would_start(&self, now: Duration, place: usize, request: &Arriving) -> bool {
        self.levels.get(place).is_some_and(|level| {
            let is_exempt = level.spec.manner == Manner::Exempt;
            // Its least seats are never kept for a request of another level.
            let is_own = level.in_use + request.seats <= level.limits.least;
            let is_alone = level.waiting() == 0 && (is_own || self.passed.is_none());
            is_exempt || (is_alone && self.fit(now, place, request) == Fit::Yes)
        })
    }

    /// Takes back a request that waits: its client is gone, or its time is over. Returns how long
    /// another one would wait; `None` if it no longer waits, so that its outcome counts.
    pub fn cancel(&mut self, now: Duration, id: WaitingId) -> Option<Duration> {
        let level = self.levels.get_mut(id.level)?;
        let cancelled = level.remove(id.flow, id.number)?;
        let expected = level.expected_wait(&cancelled.request);
        self.waiting -= 1;
        self.dispatch(now);
        Some(expected)
    }

    /// Gives all seats but one back, of a request that goes on: it takes little of the API server
    /// from now on.
    pub fn narrow(&mut self, now: Duration, ticket: &mut Ticket) {
        let rest = ticket.seats.saturating_sub(1);
        let Some(level) = self.levels.get_mut(ticket.level).filter(|_| rest > 0) else { return };
        let held = now.saturating_sub(ticket.started);
        let before = level.sums();
        level.narrow(ticket, work(rest, ticket.guess, held));
        let after = level.sums();
        if level.spec.manner != Manner::Exempt {
            self.in_use -= rest;
            self.wide_in_use -= ticket.seats;
        }
        self.sums.replace(before, after);
        ticket.seats = 1;
        self.dispatch(now);
    }

    /// Returns how many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Gives seats back.
    pub fn finish(&mut self, now: Duration, ticket: Ticket) {
        let Some(level) = self.levels.get_mut(ticket.level) else { return };
        let held = now.saturating_sub(ticket.started);
        let before = level.sums();
        level.finish(&ticket, work(ticket.seats, ticket.guess, held));
        let after = level.sums();
        if level.spec.manner != Manner::Exempt {
            self.in_use -= ticket.seats;
            self.wide_in_use -= if ticket.seats > 1 { ticket.seats } else { 0 };
        }
        self.sums.replace(before, after);
        self.dispatch(now);
    }

    /// Returns what became of requests that waited, since the last call.
    pub fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Returns the load of a level.
    pub fn load(&self, LevelId(place): LevelId) -> Load {
        self.levels.get(place).map_or(Load::default(), |level| Load {
            seats: level.in_use,
            waiting: level.waiting() as u64,
            nominal: level.limits.nominal,
            least: level.limits.least,
        })
    }
}

/// Requests of all levels that wait.
const WAITING_MAX: usize = 20_000;

#[cfg(test)]
mod tests;
