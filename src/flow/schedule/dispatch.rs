//! Which request starts next, of those that wait.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::Scheduler;
use super::level::{AvailableSeats, Fit, Level};
use super::order::{Head, SearchStep, Width};
use super::request::{Arriving, Manner, Outcome, RejectReason, Rejected, Ticket, WaitingId};
use super::share::SeatSums;

impl Scheduler {
    /// Starts a request that has not waited.
    pub(super) fn start(&mut self, now: Duration, place: usize, request: &Arriving) -> Ticket {
        let before = self.levels.get_mut(place).map(|level| {
            let before = level.sums();
            level.start(request);
            before
        });
        self.note_start(now, place, request, before.unwrap_or_default())
    }

    fn start_waiting(&mut self, now: Duration, id: WaitingId) -> Option<(Ticket, Arriving)> {
        let level = self.levels.get_mut(id.level)?;
        let before = level.sums();
        let request = level.start_waiting(id.flow, id.number)?.request;
        self.waiting -= 1;
        Some((self.note_start(now, id.level, &request, before), request))
    }

    /// Notes in the sums that a level has given seats to a request. `before` is its part of them
    /// until then.
    fn note_start(
        &mut self,
        now: Duration,
        place: usize,
        request: &Arriving,
        before: SeatSums,
    ) -> Ticket {
        let Arriving { flow, seats, guess, .. } = *request;
        if let Some(level) = self.levels.get_mut(place) {
            level.note_flows(now);
            if level.spec.manner != Manner::Exempt {
                self.in_use += seats;
                self.wide_in_use += if seats > 1 { seats } else { 0 };
            }
            self.sums.replace(before, level.sums());
        }
        Ticket { level: place, flow, seats, guess, started: now }
    }

    /// Whether a request may start, as far as seats go.
    pub(super) fn fit(&self, now: Duration, place: usize, request: &Arriving) -> Fit {
        let Some(level) = self.levels.get(place) else { return Fit::No };
        if !self.has_room(level, request.width()) {
            return Fit::No;
        }
        level.fit(now, request.flow, request.seats, self.available(level))
    }

    /// Whether another request of this width leaves to others what is theirs, however many seats
    /// are free.
    fn has_room(&self, level: &Level, Width { seats, is_long }: Width) -> bool {
        self.has_room_for_wide(level, seats) && (!is_long || self.has_room_for_long(level, seats))
    }

    /// Whether wide requests keep to their limit with another one. Each level may always run one,
    /// so that none starves.
    pub(super) fn has_room_for_wide(&self, level: &Level, seats: u64) -> bool {
        let is_exempt = level.spec.manner == Manner::Exempt;
        let is_within = !level.has_wide() || self.wide_in_use + seats <= self.wide_max;
        seats == 1 || is_exempt || is_within
    }

    /// Whether another long request leaves half of what is lent to those that end soon. A level may
    /// always run one, so that the widest starts in the end.
    fn has_room_for_long(&self, level: &Level, seats: u64) -> bool {
        let after = level.sums_with(seats, seats);
        if after.borrowed_long == 0 || !level.has_long() {
            return true;
        }
        let mut sums = self.sums;
        sums.replace(level.sums(), after);
        // No start elsewhere adds to it: who has no room has none until a request ends.
        let lent = (sums.borrowed + self.seats).saturating_sub(sums.claimed);
        2 * sums.borrowed_long <= lent
    }

    fn available(&self, level: &Level) -> AvailableSeats {
        let free = self.seats.saturating_sub(self.in_use);
        let unclaimed = self.seats.saturating_sub(self.sums.claimed);
        let unused_minimum = level.limits.least.saturating_sub(level.in_use);
        // A level without a claim of its own runs one request at a time at least, as in
        // kube-apiserver.
        let first = u64::from(level.in_use == 0);
        let total = (unclaimed + unused_minimum)
            .max(first)
            .min(free)
            .min(level.limits.most.saturating_sub(level.in_use));
        AvailableSeats { total, minimum: unused_minimum.min(free) }
    }

    /// Starts all that may start. The level with the least part of its nominal seats goes first.
    pub(super) fn dispatch(&mut self, now: Duration) {
        if self.waiting == 0 {
            self.passed = None;
            return;
        }
        let is_gone = |id: WaitingId| {
            !self.levels.get(id.level).is_some_and(|level| level.has(id.flow, id.number))
        };
        if self.passed.is_some_and(|(id, _)| is_gone(id)) {
            self.passed = None;
        }
        let mut is_done: SmallVec<[bool; LEVELS_USUAL]> = smallvec![false; self.levels.len()];
        while let Some(place) = self.next_level(&is_done) {
            let next = self.next_of(now, place);
            let started = next.and_then(|id| Some((id, self.start_waiting(now, id)?)));
            let Some((id, (ticket, request))) = started else {
                if let Some(done) = is_done.get_mut(place) {
                    *done = true;
                }
                continue;
            };
            self.outcomes.push(Outcome { id, result: Ok(ticket) });
            match &mut self.passed {
                Some((short, _)) if *short == id => {
                    self.passed = None;
                    // Seats that were kept for it may be left.
                    is_done.fill(false);
                }
                Some((_, passed)) => *passed += request.work(),
                None => {}
            }
        }
    }

    fn next_level(&self, is_done: &[bool]) -> Option<usize> {
        let levels = self.levels.iter().zip(is_done).enumerate();
        let waiting = levels.filter(|(_, (level, done))| !**done && level.waiting() > 0);
        let key = |level: &Level| {
            let part = level.in_use.min(u64::from(u32::MAX)) << 32;
            (part / level.limits.nominal.max(1), level.oldest())
        };
        waiting.min_by_key(|(_, (level, _))| key(level)).map(|(place, _)| place)
    }

    /// Returns the request of a level that starts now, if one may.
    fn next_of(&mut self, now: Duration, place: usize) -> Option<WaitingId> {
        let level = self.levels.get(place)?;
        let available = self.available(level);
        // Others may pass it for as much work as it is itself.
        let passed = self.passed.map(|(short, passed)| {
            let is_enough = passed >= self.work_of(short);
            (short, is_enough && self.may_be_collected_for(short))
        });
        let (mut tag_max, mut is_held_by_other) = (None, false);
        if let Some((short, is_collecting)) = passed {
            if short.level != place {
                is_held_by_other = is_collecting && self.is_due(short);
            } else if is_collecting {
                return self.next_while_collecting(now, level, short);
            } else {
                // A flow that is ahead of its flow by this work does not pass.
                tag_max = Some(level.tag(short.flow) + self.work_of(short));
            }
        }
        let id_of = |head: &Head| WaitingId { level: place, flow: head.flow, number: head.number };
        let (mut is_first, mut does_not_fit) = (true, None);
        let (mut is_long_held, mut is_wide_held) = (false, false);
        let search = level.order().search(|Width { seats, is_long }, head| {
            // No seats are collected for a long or wide request that would leave too few to
            // others, since they would be idle for long. But no other one passes it.
            is_long_held |= is_long && !self.has_room_for_long(level, seats);
            is_wide_held |= !self.has_room_for_wide(level, seats);
            if is_long && is_long_held || seats > 1 && is_wide_held {
                return SearchStep::OtherWidth;
            }
            let is_held = is_held_by_other && level.in_use + seats > level.limits.least
                || tag_max.is_some_and(|tag_max| head.tag > tag_max);
            let step = match level.fit(now, head.flow, seats, available) {
                Fit::FlowHasEnough => return SearchStep::OtherFlow,
                Fit::Yes if !is_held => SearchStep::Take,
                Fit::Yes | Fit::No => SearchStep::OtherWidth,
            };
            if is_first && step == SearchStep::OtherWidth && seats > 1 && passed.is_none() {
                let id = id_of(head);
                does_not_fit = Some(id);
                tag_max = Some(head.tag + self.work_of(id));
            }
            is_first = false;
            step
        });
        if let Some(id) = does_not_fit {
            self.passed = Some((id, 0));
        }
        search.as_ref().map(id_of)
    }

    /// Returns the request that starts next while seats are collected for one: that one, or one of
    /// a flow that was given less. Such a flow had its part when the collecting began; its requests
    /// would else be passed by each wide one of the others.
    fn next_while_collecting(
        &self,
        now: Duration,
        level: &Level,
        short: WaitingId,
    ) -> Option<WaitingId> {
        let request = level.get(short.flow, short.number)?.request;
        let (tag, available) = (level.tag(short.flow), self.available(level));
        let given_less = level.order().search(|width, head| {
            if head.tag >= tag || !self.has_room(level, width) {
                return SearchStep::OtherWidth;
            }
            match level.fit(now, head.flow, width.seats, available) {
                Fit::FlowHasEnough => SearchStep::OtherFlow,
                Fit::Yes => SearchStep::Take,
                Fit::No => SearchStep::OtherWidth,
            }
        });
        if let Some(Head { number, flow, .. }) = given_less {
            return Some(WaitingId { flow, number, ..short });
        }
        (self.fit(now, short.level, &request) == Fit::Yes).then_some(short)
    }

    /// Whether seats may be collected for a request: not while long or wide ones have their part.
    fn may_be_collected_for(&self, id: WaitingId) -> bool {
        let level = self.levels.get(id.level);
        let request = level.and_then(|level| Some(level.get(id.flow, id.number)?.request));
        level.zip(request).is_some_and(|(level, request)| self.has_room(level, request.width()))
    }

    /// Whether other levels leave seats to a request: its level stays within its nominal seats with
    /// it, or has nothing else.
    fn is_due(&self, id: WaitingId) -> bool {
        let level = self.levels.get(id.level);
        let seats = level.and_then(|level| Some(level.get(id.flow, id.number)?.request.seats));
        level.zip(seats).is_some_and(|(level, seats)| {
            level.in_use == 0 || level.in_use + seats <= level.limits.nominal
        })
    }

    fn work_of(&self, id: WaitingId) -> i128 {
        let waiting = self.levels.get(id.level).and_then(|level| level.get(id.flow, id.number));
        waiting.map_or(0, |waiting| waiting.request.work())
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
        let retry_after = level.expected_wait(&dropped.request);
        let id = WaitingId { level: place, flow: longest, number: dropped.number };
        let rejected = Rejected { reason: RejectReason::QueueFull, retry_after };
        self.outcomes.push(Outcome { id, result: Err(rejected) });
        self.waiting -= 1;
        true
    }
}

/// kube-apiserver has eight levels, and Weir one of its own. A decision among more levels
/// allocates memory.
const LEVELS_USUAL: usize = 16;
