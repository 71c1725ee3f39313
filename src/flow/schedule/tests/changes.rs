//! The invariants of runs in which seats and levels change while requests run and wait. The rules
//! are written here a second time, from the words of `docs/decisions/fair-queueing.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A scheduler, and what a caller of it knows.
pub(super) struct Run {
    pub(super) scheduler: Scheduler,
    ids: Vec<LevelId>,
    now: Duration,
    pub(super) running: Vec<(Ticket, Duration)>,
    waiting: BTreeMap<u64, (WaitingId, Arriving, Duration)>,
    taken_in: usize,
    ended: usize,
}

impl Run {
    pub(super) fn new(seats: u64, specs: &[LevelSpec]) -> Self {
        let mut scheduler = Scheduler::default();
        let ids = scheduler.configure(Duration::ZERO, seats, specs);
        Self {
            scheduler,
            ids,
            now: Duration::ZERO,
            running: Vec::new(),
            waiting: BTreeMap::new(),
            taken_in: 0,
            ended: 0,
        }
    }

    pub(super) fn arrive(&mut self, level: usize, request: Arriving, holds: Duration) {
        self.taken_in += 1;
        let before = self.in_use();
        match self.scheduler.arrive(self.now, self.ids[level], request, false) {
            Arrival::Started(ticket) => self.running.push((ticket, self.now + holds)),
            Arrival::Forced(_) => unreachable!("nothing is forced"),
            Arrival::Waits(id, _) => {
                let widest = self.scheduler.levels[id.level].widest();
                let request = Arriving { seats: request.seats.min(widest), ..request };
                assert!(self.waiting.insert(id.number, (id, request, holds)).is_none());
            }
            Arrival::Rejected(_) => self.ended += 1,
        }
        self.settle(&before);
    }

    /// Ends the requests that are due, one after the other.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(place) = self.next_due().filter(|place| self.running[*place].1 <= end) {
            let (ticket, until) = self.running.swap_remove(place);
            self.now = until.max(self.now);
            self.ended += 1;
            let before = self.in_use();
            self.scheduler.finish(self.now, ticket);
            self.settle(&before);
        }
        self.now = end;
    }

    fn next_due(&self) -> Option<usize> {
        (0..self.running.len()).min_by_key(|place| self.running[*place].1)
    }

    fn cancel(&mut self, at: usize) {
        let number = self.waiting.keys().nth(at % self.waiting.len().max(1)).copied();
        let Some((id, _, _)) = number.and_then(|number| self.waiting.remove(&number)) else {
            return;
        };
        let before = self.in_use();
        assert!(self.scheduler.cancel(self.now, id).is_some(), "it waits until it is cancelled");
        assert_eq!(self.scheduler.cancel(self.now, id), None, "and not twice");
        self.ended += 1;
        self.settle(&before);
    }

    /// Changes the scheduler by something that may start requests.
    fn change(&mut self, change: impl FnOnce(&mut Scheduler, Duration) -> Option<Vec<LevelId>>) {
        let before = self.in_use();
        if let Some(ids) = change(&mut self.scheduler, self.now) {
            self.ids = ids;
        }
        for (id, request, _) in self.waiting.values_mut() {
            request.seats = request.seats.min(self.scheduler.levels[id.level].widest());
        }
        self.settle(&before);
    }

    fn in_use(&self) -> Vec<u64> {
        let running = |level| self.running.iter().filter(move |(ticket, _)| ticket.level == level);
        (0..self.scheduler.levels.len())
            .map(|level| running(level).map(|(ticket, _)| ticket.seats).sum())
            .collect()
    }

    /// Collects what has started, and checks everything. `before` are the seats in use of each
    /// level before the last call, less those that it gave back.
    fn settle(&mut self, before: &[u64]) {
        for Outcome { id, result } in self.scheduler.take_outcomes() {
            let (_, _, holds) = self.waiting.remove(&id.number).expect("it waits, and ends once");
            match result {
                Ok(ticket) => self.running.push((ticket, self.now + holds)),
                Err(_) => self.ended += 1,
            }
        }
        assert_eq!(self.taken_in, self.ended + self.running.len() + self.waiting.len());
        self.check_seats(before);
        self.check_work_is_conserved();
    }

    fn is_exempt(&self, level: usize) -> bool {
        self.scheduler.levels[level].spec.manner == Manner::Exempt
    }

    /// Seats are counted, and what starts passes no limit.
    fn check_seats(&self, before: &[u64]) {
        let in_use = self.in_use();
        let levels = &self.scheduler.levels;
        let counted: Vec<u64> = levels.iter().map(|level| level.in_use).collect();
        assert_eq!(counted, in_use, "no seat is lost");
        let total: u64 = (0..)
            .zip(&in_use)
            .filter(|(level, _)| !self.is_exempt(*level))
            .map(|(_, seats)| seats)
            .sum();
        assert_eq!(total, self.scheduler.in_use);
        let without_least = levels.iter().filter(|level| level.limits.least == 0).count() as u64;
        let claimed: u64 = levels.iter().map(|level| level.sums().claimed).sum();
        for (place, seats) in in_use.iter().enumerate() {
            let has_started = *seats > before.get(place).copied().unwrap_or(0);
            if !has_started || self.is_exempt(place) {
                continue;
            }
            let Limits { least, most, .. } = levels[place].limits;
            assert!(total <= self.scheduler.seats, "{total} of {}", self.scheduler.seats);
            assert!(*seats <= most, "{seats} of {most}");
            let is_alone = *seats == 1 && least == 0;
            let is_left = claimed <= self.scheduler.seats + without_least;
            assert!(*seats <= least || is_left || is_alone, "nobody borrows what is claimed");
        }
    }

    /// No request waits that could start, unless seats are collected for a wider one, or its flow
    /// was given more than that one's by its work.
    fn check_work_is_conserved(&self) {
        let short = self.scheduler.passed.and_then(|(short, passed)| {
            let (_, request, _) = self.waiting.get(&short.number)?;
            Some((short, passed, request.work()))
        });
        if short.is_some_and(|(_, passed, work)| passed >= work) {
            return;
        }
        let has_more = |id: &WaitingId| {
            let level = &self.scheduler.levels[id.level];
            short.is_some_and(|(short, _, work)| {
                short.level == id.level && level.tag(id.flow) > level.tag(short.flow) + work
            })
        };
        let mut flows = BTreeSet::new();
        let heads: Vec<_> = (self.waiting.values())
            .filter(|(id, _, _)| flows.insert((id.level, id.flow)))
            .map(|(id, request, _)| (id, request))
            .collect();
        let order = |id: &WaitingId| (self.scheduler.levels[id.level].tag(id.flow), id.number);
        // A long or wide request does not pass another one of its level that waits for such ones
        // to end.
        let is_behind = |id: &WaitingId, request: &Arriving| {
            heads.iter().any(|(other, first)| {
                let is_before = other.level == id.level && order(other) < order(id);
                let is_held_long = is_long(request.guess)
                    && is_long(first.guess)
                    && !self.leaves_half(id.level, first.seats);
                let is_held_wide = request.seats > 1 && !self.keeps_to_wide(id.level, first.seats);
                is_before && (is_held_long || is_held_wide)
            })
        };
        for (id, request) in &heads {
            let is_held = has_more(id) || is_behind(id, request);
            assert!(is_held || !self.could_start(id, request), "{id:?} {request:?} waits");
        }
    }

    /// Whether long and wide requests leave to others what is theirs, if this one runs as well.
    fn leaves_room(&self, level: usize, request: &Arriving) -> bool {
        self.keeps_to_wide(level, request.seats)
            && (!is_long(request.guess) || self.leaves_half(level, request.seats))
    }

    /// Whether wide requests keep to their limit, if one of this level runs with these seats; or
    /// whether that is the only one of its level.
    pub(super) fn keeps_to_wide(&self, level: usize, seats: u64) -> bool {
        let limited = self.running.iter().filter(|(ticket, _)| !self.is_exempt(ticket.level));
        let wide = || limited.clone().map(|(ticket, _)| ticket).filter(|ticket| ticket.seats > 1);
        let all: u64 = wide().map(|ticket| ticket.seats).sum();
        let is_first = !wide().any(|ticket| ticket.level == level);
        let is_within = is_first || all + seats <= self.scheduler.wide_max;
        seats == 1 || self.is_exempt(level) || is_within
    }

    /// Whether long requests have at most half of what is lent, if another one of this level runs
    /// with these seats; or whether that is the only one of its level.
    pub(super) fn leaves_half(&self, level: usize, seats: u64) -> bool {
        let Scheduler { levels, seats: server_seats, .. } = &self.scheduler;
        let long_of = |level: usize| -> u64 {
            let running = self.running.iter().map(|(ticket, _)| ticket);
            running
                .filter(|request| request.level == level && is_long(request.guess))
                .map(|request| request.seats)
                .sum()
        };
        let (mut claimed, mut borrowed, mut borrowed_long) = (0, 0, 0);
        for (place, lender) in levels.iter().enumerate() {
            let Limits { nominal, least, .. } = lender.limits;
            if self.is_exempt(place) {
                claimed += least;
                continue;
            }
            let more = if place == level { seats } else { 0 };
            claimed += (lender.in_use + more).max(least);
            borrowed += (lender.in_use + more).saturating_sub(nominal);
            borrowed_long += (long_of(place) + more).saturating_sub(nominal);
        }
        let borrowed_by_level =
            (long_of(level) + seats).saturating_sub(levels[level].limits.nominal);
        let lent = (borrowed + server_seats).saturating_sub(claimed);
        borrowed_by_level == 0 || long_of(level) == 0 || 2 * borrowed_long <= lent
    }

    fn could_start(&self, id: &WaitingId, request: &Arriving) -> bool {
        let Scheduler { levels, seats: server_seats, in_use: all_in_use, .. } = &self.scheduler;
        let level = &levels[id.level];
        let Limits { nominal, least, most } = level.limits;
        let (in_use, seats) = (level.in_use, request.seats);
        let claims = |place: usize, in_use: u64| match &levels[place] {
            exempt if exempt.spec.manner == Manner::Exempt => exempt.limits.least,
            other => in_use.max(other.limits.least),
        };
        let others: u64 = (0..levels.len())
            .filter(|place| *place != id.level)
            .map(|place| claims(place, levels[place].in_use))
            .sum();
        let is_first = in_use == 0 && seats == 1;
        let is_allowed =
            in_use + seats <= least || others + in_use + seats <= *server_seats || is_first;
        if all_in_use + seats > *server_seats || in_use + seats > most || !is_allowed {
            return false;
        }
        // The seats that the level has now, of which a flow gets a part.
        let free = (server_seats - all_in_use).min(most - in_use);
        let lendable =
            server_seats.saturating_sub(others).saturating_sub(in_use).max(u64::from(in_use == 0));
        let unused_minimum = least.saturating_sub(in_use);
        let is_own = seats <= unused_minimum.min(server_seats - all_in_use);
        let present = if is_own { nominal } else { nominal.max(in_use + free.min(lendable)) };
        let seats_where = |is: &dyn Fn(&Ticket) -> bool| -> u64 {
            let running =
                self.running.iter().filter(|(ticket, _)| ticket.level == id.level && is(ticket));
            running.map(|(ticket, _)| ticket.seats).sum()
        };
        let of_flow = seats_where(&|ticket| ticket.flow == id.flow);
        let wide = seats_where(&|ticket| ticket.seats > 1);
        // Whether others of the level are or were active is the scheduler's: take the stricter.
        let has_enough = of_flow > 0 && of_flow + seats > (present * 80 / 100).max(1);
        let is_too_wide = seats > 1 && wide > 0 && wide + seats > (present * 75 / 100).max(1);
        !has_enough && !is_too_wide && self.leaves_room(id.level, request)
    }
}

fn is_long(guess: Duration) -> bool {
    guess > Duration::from_secs(1)
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { level: usize, flow: u64, seats: u64, holds: u32, guess: u32 },
    Pass(u32),
    Cancel(usize),
    Resize(u64),
    LimitWide(u64),
    Configure(Vec<(u32, u32, Option<u32>)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let level = (0_u32..50, 0_u32..=100, proptest::option::of(0_u32..200));
    let guess = prop_oneof![4 => 1_u32..50, 1 => Just(1_500)];
    let arrive = (0_usize..5, 0_u64..6, prop_oneof![Just(1), 1_u64..12], 1_u32..50, guess);
    let step = prop_oneof![
        12 => arrive.prop_map(|(level, flow, seats, holds, guess)| {
            Step::Arrive { level, flow, seats, holds, guess }
        }),
        5 => (0_u32..20).prop_map(Step::Pass),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Cancel(index.index(1000))),
        1 => proptest::collection::vec(level, 4).prop_map(Step::Configure),
        1 => (1_u64..60).prop_map(Step::Resize),
        1 => (1_u64..30).prop_map(Step::LimitWide),
    ];
    proptest::collection::vec(step, 1..250)
}

/// Four levels with queues, and an exempt one.
fn specs(levels: &[(u32, u32, Option<u32>)]) -> Vec<LevelSpec> {
    let numbered = levels.iter().enumerate();
    let limited = numbered
        .map(|(number, share)| level(&number.to_string(), shares(share.0, share.1, share.2)));
    let mut exempt = level("exempt", shares(3, 50, None));
    exempt.manner = Manner::Exempt;
    limited.chain([exempt]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Nothing that starts passes a limit, no seat is lost, no request that could start waits, and
    /// each request ends once: also where seats and levels change in mid-flight.
    #[test]
    fn limits_hold_while_seats_and_levels_change(steps in steps()) {
        let mut run = Run::new(20, &specs(&[(10, 50, None); 4]));
        for step in steps {
            match step {
                Step::Arrive { level, flow, seats, holds, guess } => {
                    run.arrive(level, request(flow, seats, guess), MS * holds);
                }
                Step::Pass(time) => run.pass(MS * time),
                Step::Cancel(at) => run.cancel(at),
                Step::Resize(seats) => run.change(|scheduler, now| {
                    scheduler.resize(now, seats);
                    None
                }),
                Step::LimitWide(seats) => run.change(|scheduler, now| {
                    scheduler.limit_wide(now, seats);
                    None
                }),
                Step::Configure(levels) => run.change(|scheduler, now| {
                    let seats = scheduler.seats;
                    Some(scheduler.configure(now, seats, &specs(&levels)))
                }),
            }
        }
        run.pass(Duration::from_secs(3600));
        prop_assert!(run.running.is_empty() && run.waiting.is_empty(), "everything ends");
        prop_assert_eq!((run.scheduler.in_use, run.scheduler.waiting), (0, 0));
        prop_assert!(run.scheduler.levels.iter().all(|level| level.is_empty() && level.in_use == 0));
    }
}
