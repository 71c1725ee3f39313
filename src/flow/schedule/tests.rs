//! Tests against a model of the API server: requests that hold seats for a time, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::share::LevelShare;
use super::*;

mod bounds;
mod changes;
mod fairness;
mod long;
mod wide;

const MS: Duration = Duration::from_millis(1);

fn shares(shares: u32, lendable_percent: u32, borrowing_percent: Option<u32>) -> LevelShare {
    LevelShare::Shares { shares, lendable_percent, borrowing_percent }
}

fn level(name: &str, share: LevelShare) -> LevelSpec {
    let manner = Manner::Queue { flow_max: 300, level_max: 3200 };
    LevelSpec { name: name.into(), manner, share }
}

fn request(flow: u64, seats: u64, guess_ms: u32) -> Arriving {
    let wait_max = Duration::from_secs(5);
    Arriving { flow, seats, guess: MS * guess_ms, wait_max, is_short_read: false }
}

/// The objects that a test drives: a scheduler, and all requests that it holds.
struct Rig {
    scheduler: Scheduler,
    ids: Vec<LevelId>,
    now: Duration,
    running: Vec<(WaitingKey, Ticket, Duration)>,
    waiting: HashMap<WaitingId, WaitingKey>,
    /// Requests that ended, by how.
    rejected: Vec<WaitingKey>,
}

/// A request of a test: its level, and for how long it holds its seats.
#[derive(Clone, Copy, Debug)]
struct WaitingKey {
    level: usize,
    flow: u64,
    holds: Duration,
}

impl Rig {
    fn new(seats: u64, specs: &[LevelSpec]) -> Self {
        let mut scheduler = Scheduler::default();
        let ids = scheduler.configure(Duration::ZERO, seats, specs);
        let (running, waiting, rejected) = (Vec::new(), HashMap::new(), Vec::new());
        Self { scheduler, ids, now: Duration::ZERO, running, waiting, rejected }
    }

    /// Lets requests of one seat arrive, of these flows.
    fn crowd(&mut self, level: usize, flows: impl Iterator<Item = u64>, milliseconds: u32) {
        for flow in flows {
            self.arrive(level, request(flow, 1, milliseconds), MS * milliseconds);
        }
    }

    fn arrive(&mut self, level: usize, request: Arriving, holds: Duration) -> bool {
        let key = WaitingKey { level, flow: request.flow, holds };
        let began = match self.scheduler.arrive(self.now, self.ids[level], request, false) {
            Arrival::Started(ticket) => {
                self.running.push((key, ticket, self.now + holds));
                true
            }
            Arrival::Forced(_) => unreachable!("nothing is forced"),
            Arrival::Waits(id, _) => {
                self.waiting.insert(id, key);
                false
            }
            Arrival::Rejected(_) => {
                self.rejected.push(key);
                false
            }
        };
        self.collect();
        began
    }

    /// Lets time pass; requests end when they are due.
    fn run_until(&mut self, end: Duration) {
        loop {
            let due = self.running.iter().map(|(_, _, until)| *until).enumerate();
            match due.min_by_key(|(_, until)| *until).filter(|(_, until)| *until <= end) {
                None => break,
                Some((place, until)) => {
                    let (_, ticket, _) = self.running.swap_remove(place);
                    self.now = until;
                    self.scheduler.finish(until, ticket);
                    self.collect();
                }
            }
        }
        self.now = end;
    }

    fn collect(&mut self) {
        for Outcome { id, result } in self.scheduler.take_outcomes() {
            let key = self.waiting.remove(&id).expect("an outcome is of a request that waits");
            match result {
                Ok(ticket) => self.running.push((key, ticket, self.now + key.holds)),
                Err(_) => self.rejected.push(key),
            }
        }
        self.check();
    }

    fn in_use(&self, level: usize) -> u64 {
        let running = self.running.iter().filter(|(key, _, _)| key.level == level);
        running.map(|(_, ticket, _)| ticket.seats).sum()
    }

    /// Holds the invariants of the module against what runs.
    fn check(&self) {
        let loads: Vec<Load> = self.ids.iter().map(|id| self.scheduler.load(*id)).collect();
        let in_use: u64 = loads.iter().map(|load| load.seats).sum();
        let running: u64 = self.running.iter().map(|(_, ticket, _)| ticket.seats).sum();
        assert_eq!(in_use, running, "seats are counted");
        assert!(in_use <= self.scheduler.seats, "{in_use} of {}", self.scheduler.seats);
        let waiting: u64 = loads.iter().map(|load| load.waiting).sum();
        assert_eq!(waiting, self.waiting.len() as u64, "each request ends once");
        for level in &self.scheduler.levels {
            assert!(
                level.in_use <= level.limits.most,
                "{}: no more than the most",
                level.spec.name
            );
        }
        let mut sums = SeatSums::default();
        self.scheduler.levels.iter().for_each(|level| sums.add(level.sums()));
        assert_eq!(sums, self.scheduler.sums);
        let claimed = sums.claimed;
        let without = self.scheduler.levels.iter().filter(|level| level.limits.least == 0).count();
        let most = self.scheduler.seats + without as u64;
        assert!(claimed <= most, "nobody borrows what is claimed");
    }
}

#[test]
fn a_level_takes_what_others_do_not_claim_and_gives_it_back_within_one_service_time() {
    let specs = [level("a", shares(50, 50, None)), level("b", shares(50, 0, None))];
    let mut rig = Rig::new(40, &specs);
    // The level b claims all its seats: it lends nothing.
    rig.crowd(0, 0..60, 10);
    assert_eq!(rig.in_use(0), 20);
    rig.run_until(Duration::from_secs(1));
    // Half of a's seats are lent.
    rig.crowd(1, 0..60, 10);
    assert_eq!(rig.in_use(1), 30);
    (0..10).for_each(|flow| assert!(rig.arrive(0, request(flow, 1, 10), 10 * MS), "its least"));
    assert!(!rig.arrive(0, request(99, 1, 10), 10 * MS), "the rest is lent");
    rig.run_until(rig.now + 10 * MS);
    assert_eq!(rig.waiting.values().filter(|key| key.level == 0).count(), 0, "it came back");
}

#[test]
fn a_level_without_queues_rejects_and_says_when() {
    let mut spec = level("a", shares(1, 0, None));
    spec.manner = Manner::Reject;
    let mut scheduler = Scheduler::default();
    let ids = scheduler.configure(Duration::ZERO, 1, &[spec]);
    let mut arrive = || scheduler.arrive(Duration::ZERO, ids[0], request(1, 1, 2000), false);
    assert!(matches!(arrive(), Arrival::Started(_)));
    let Arrival::Rejected(Rejected { reason, retry_after }) = arrive() else {
        panic!("it is rejected");
    };
    assert_eq!((reason, retry_after), (RejectReason::Concurrency, Duration::from_secs(2)));
}

#[test]
fn an_exempt_level_never_waits() {
    let mut exempt = level("exempt", shares(0, 0, None));
    exempt.manner = Manner::Exempt;
    let mut scheduler = Scheduler::default();
    let ids = scheduler.configure(Duration::ZERO, 2, &[exempt, level("a", shares(1, 0, None))]);
    let mut start = |id| scheduler.arrive(Duration::ZERO, id, request(1, 1, 1), false);
    assert!((0..100).all(|_| matches!(start(ids[0]), Arrival::Started(_))));
    assert!(matches!(start(ids[1]), Arrival::Started(_)), "it takes no other level's seats");
}

#[test]
fn what_would_wait_too_long_is_rejected_at_once() {
    let mut rig = Rig::new(1, &[level("a", shares(1, 0, None))]);
    rig.crowd(0, std::iter::repeat_n(1, 20), 1000);
    assert_eq!((rig.running.len(), rig.waiting.len(), rig.rejected.len()), (1, 5, 14));
}

#[test]
fn a_full_level_drops_the_newest_of_the_longest_queue() {
    let mut spec = level("a", shares(1, 0, None));
    spec.manner = Manner::Queue { flow_max: 10, level_max: 10 };
    let mut rig = Rig::new(1, &[spec]);
    rig.crowd(0, std::iter::repeat_n(1, 11), 1);
    assert_eq!((rig.waiting.len(), rig.rejected.len()), (10, 0));
    assert!(!rig.arrive(0, request(2, 1, 1), MS));
    assert_eq!(rig.rejected.iter().map(|key| key.flow).collect::<Vec<_>>(), [1]);
    assert!(rig.waiting.values().any(|key| key.flow == 2), "another flow comes in");
    assert!(!rig.arrive(0, request(1, 1, 1), MS));
    assert_eq!(rig.rejected.len(), 2, "and the long one does not");
}

#[test]
fn a_request_for_many_seats_starts_although_small_ones_never_end() {
    let mut rig = Rig::new(10, &[level("a", shares(1, 0, None))]);
    rig.crowd(0, 0..10, 10);
    rig.run_until(5 * MS);
    assert!(!rig.arrive(0, request(100, 10, 10), 10 * MS));
    for step in 0_u32..2000 {
        rig.run_until(5 * MS + step * MS);
        rig.crowd(0, 0..3, 10);
        if rig.running.iter().any(|(key, _, _)| key.flow == 100) {
            assert!(step < 100, "after {step} ms");
            return;
        }
    }
    panic!("it never starts");
}

#[test]
fn a_request_whose_client_does_not_read_gives_its_seats_to_others() {
    let mut rig = Rig::new(10, &[level("a", shares(1, 0, None))]);
    assert!(rig.arrive(0, request(1, 10, 10), Duration::from_secs(60)));
    assert!(!rig.arrive(0, request(2, 7, 10), MS));
    rig.run_until(Duration::from_secs(1));
    let (_, ticket, _) = &mut rig.running[0];
    rig.scheduler.narrow(Duration::from_secs(1), ticket);
    rig.scheduler.narrow(Duration::from_secs(1), ticket);
    rig.collect();
    assert_eq!((rig.in_use(0), rig.waiting.len()), (8, 0));
    rig.run_until(Duration::from_secs(90));
    assert_eq!(rig.in_use(0), 0);
}

#[test]
fn exempt_requests_take_nothing_from_others_when_the_seats_change() {
    let mut exempt = level("exempt", shares(0, 0, None));
    exempt.manner = Manner::Exempt;
    let mut scheduler = Scheduler::default();
    let ids = scheduler.configure(Duration::ZERO, 10, &[exempt, level("a", shares(1, 0, None))]);
    let Arrival::Started(ticket) =
        scheduler.arrive(Duration::ZERO, ids[0], request(1, 8, 1), false)
    else {
        panic!("it starts");
    };
    scheduler.resize(MS, 12);
    scheduler.finish(2 * MS, ticket);
    let mut start = |flow| scheduler.arrive(3 * MS, ids[1], request(flow, 1, 1), false);
    assert!((0..12).all(|flow| matches!(start(flow), Arrival::Started(_))));
}

#[test]
fn a_wide_request_that_waits_fits_into_fewer_seats() {
    let mut rig = Rig::new(20, &[level("a", shares(1, 0, None))]);
    rig.crowd(0, 0..20, 10);
    assert!(!rig.arrive(0, request(100, 20, 10), 10 * MS));
    rig.run_until(5 * MS);
    rig.scheduler.resize(rig.now, 4);
    while rig.in_use(0) > 4 {
        let (_, ticket, _) = rig.running.swap_remove(0);
        rig.scheduler.finish(rig.now, ticket);
    }
    rig.collect();
    rig.run_until(100 * MS);
    assert!(rig.waiting.is_empty() && rig.running.is_empty());
}

#[test]
fn a_level_that_is_gone_ends_what_it_has_and_takes_nothing_new() {
    let specs = [level("a", shares(1, 0, None)), level("b", shares(1, 0, None))];
    let mut rig = Rig::new(2, &specs);
    rig.crowd(0, std::iter::repeat_n(1, 3), 1);
    let ids = rig.scheduler.configure(rig.now, 2, &specs[1..]);
    assert_eq!(ids, [rig.ids[1]]);
    rig.run_until(10 * MS);
    assert!(rig.waiting.is_empty() && rig.running.is_empty());
    rig.scheduler.configure(rig.now, 2, &specs[1..]);
    rig.ids = vec![ids[0]];
    assert!(rig.arrive(0, request(1, 1, 1), MS) && rig.arrive(0, request(1, 1, 1), MS));
}

/// A step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Arrive { level: usize, flow: u64, seats: u64, holds: u32 },
    Pass(u32),
    Cancel(usize),
    Narrow(usize),
    Resize(u64),
    Configure(Vec<(u32, u32, Option<u32>)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let level = (0_u32..50, 0_u32..=100, proptest::option::of(0_u32..200));
    let step = prop_oneof![
        8 => (0_usize..4, 0_u64..6, 1_u64..12, 1_u32..50)
            .prop_map(|(level, flow, seats, holds)| Step::Arrive { level, flow, seats, holds }),
        4 => (0_u32..30).prop_map(Step::Pass),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Cancel(index.index(1000))),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Narrow(index.index(1000))),
        1 => proptest::collection::vec(level, 4).prop_map(Step::Configure),
        1 => (1_u64..60).prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// In any run, seats are counted, limits hold where they are not lowered meanwhile, and in the
    /// end everything has ended.
    #[test]
    fn every_request_ends_once_and_no_seat_is_lost(steps in steps()) {
        let specs: Vec<LevelSpec> =
            (0..4).map(|number| level(&number.to_string(), shares(10, 50, None))).collect();
        let mut rig = Rig::new(20, &specs);
        let mut is_lowered = false;
        for step in steps {
            match step {
                Step::Arrive { level, flow, seats, holds } if !is_lowered => {
                    rig.arrive(level, request(flow, seats, holds), MS * holds);
                }
                Step::Arrive { .. } => {}
                Step::Pass(time) if !is_lowered => rig.run_until(rig.now + MS * time),
                Step::Pass(_) => {}
                Step::Cancel(at) => {
                    let ids: Vec<WaitingId> = rig.waiting.keys().copied().collect();
                    if let Some(id) = ids.get(at % ids.len().max(1)) {
                        prop_assert!(rig.scheduler.cancel(rig.now, *id).is_some());
                        rig.waiting.remove(id);
                        if !is_lowered {
                            rig.collect();
                        }
                    }
                }
                Step::Narrow(at) => {
                    let place = at % rig.running.len().max(1);
                    if let Some((_, ticket, _)) = rig.running.get_mut(place) {
                        rig.scheduler.narrow(rig.now, ticket);
                        prop_assert_eq!(ticket.seats, 1);
                        if !is_lowered {
                            rig.collect();
                        }
                    }
                }
                // Seats in use may be more than the new limits until they end.
                Step::Resize(seats) => {
                    drain(&mut rig);
                    rig.scheduler.resize(rig.now, seats);
                    is_lowered = false;
                }
                Step::Configure(levels) => {
                    drain(&mut rig);
                    let specs: Vec<LevelSpec> = (0..).zip(levels).map(|(number, share): (u32, _)| {
                        level(&number.to_string(), shares(share.0, share.1, share.2))
                    }).collect();
                    rig.ids = rig.scheduler.configure(rig.now, rig.scheduler.seats, &specs);
                }
            }
        }
        drain(&mut rig);
        prop_assert_eq!(rig.scheduler.in_use, 0);
        prop_assert_eq!(rig.scheduler.waiting, 0);
        prop_assert!(rig.scheduler.levels.iter().all(Level::is_empty));
    }
}

fn drain(rig: &mut Rig) {
    rig.run_until(rig.now + Duration::from_secs(3600));
    assert!(rig.waiting.is_empty() && rig.running.is_empty(), "everything starts and ends");
}

#[test]
fn a_level_that_is_capped_gets_no_more_and_others_get_the_rest() {
    let specs = [level("a", shares(10, 50, None)), level("b", shares(10, 50, None))];
    let mut rig = Rig::new(20, &specs);
    rig.scheduler.limit(rig.now, 20, &[(rig.ids[0], 70)]);
    rig.crowd(0, 0..15, 1000);
    assert_eq!(rig.scheduler.load(rig.ids[0]).seats, 7, "seven tenths of ten");
    rig.crowd(1, 0..15, 1000);
    assert_eq!(rig.scheduler.load(rig.ids[1]).seats, 13);
    // Running requests keep their seats, and waiting ones start once there is room again.
    rig.scheduler.limit(rig.now, 20, &[]);
    rig.collect();
    assert_eq!(rig.scheduler.load(rig.ids[0]).seats, 7);
    rig.scheduler.limit(rig.now, 30, &[]);
    rig.collect();
    assert_eq!(rig.scheduler.load(rig.ids[0]).seats, 15);
}
