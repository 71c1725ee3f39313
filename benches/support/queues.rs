//! The queues of forwarded requests by themselves.

use std::collections::VecDeque;
use std::time::Duration;

use weir::flow::schedule::Scheduler;
use weir::flow::schedule::request::{Arrival, Arriving, LevelId, LevelSpec, Manner, Ticket};
use weir::flow::schedule::share::LevelShare;

/// The queues, with requests that run and that wait.
pub(crate) struct Queues {
    scheduler: Scheduler,
    level: LevelId,
    now: Duration,
    running: VecDeque<Ticket>,
    flows: u64,
    /// The most seats of a request.
    widest: u64,
    sent: u64,
}

impl Queues {
    /// Begins with as many levels as kube-apiserver has, and 540 seats.
    pub(crate) fn new(flows: u64, widest: u64) -> Self {
        let manner = Manner::Queue { flow_max: 300, level_max: 20_000 };
        let share =
            LevelShare::Shares { shares: 30, lendable_percent: 50, borrowing_percent: None };
        let spec = |number: u32| LevelSpec { name: number.to_string().into(), manner, share };
        let specs: Vec<LevelSpec> = (0..8).map(spec).collect();
        let mut scheduler = Scheduler::default();
        let level = scheduler.configure(Duration::ZERO, 540, &specs).pop().expect("a level");
        let (now, running) = (Duration::ZERO, VecDeque::new());
        Self { scheduler, level, now, running, flows, widest, sent: 0 }
    }

    /// Lets requests arrive until `waiting` of them wait.
    pub(crate) fn fill(&mut self, waiting: u64) {
        while self.scheduler.load(self.level).waiting < waiting {
            self.arrive();
        }
    }

    /// A request arrives, and ends.
    pub(crate) fn pass(&mut self) {
        self.arrive();
        self.finish();
    }

    /// The oldest request ends, others start in its place, and as many arrive. Returns how many
    /// started.
    pub(crate) fn dispatch(&mut self) -> usize {
        let before = self.running.len() - 1;
        self.finish();
        let started = self.running.len() - before;
        (0..started).for_each(|_| self.arrive());
        started
    }

    fn arrive(&mut self) {
        self.sent += 1;
        // Spread, as hashes are.
        let flow = (self.sent.wrapping_mul(SPREAD) % self.flows).wrapping_mul(SPREAD);
        let request = Arriving {
            flow,
            seats: 1 + self.sent % self.widest,
            guess: Duration::from_millis(3),
            wait_max: Duration::from_secs(600),
            is_short_read: false,
        };
        match self.scheduler.arrive(self.now, self.level, request, false) {
            Arrival::Started(ticket) | Arrival::Forced(ticket) => self.running.push_back(ticket),
            Arrival::Waits(..) => {}
            Arrival::Rejected(rejected) => unreachable!("{rejected:?}"),
        }
        self.collect();
    }

    fn finish(&mut self) {
        self.now += Duration::from_micros(10);
        let ticket = self.running.pop_front().expect("one runs");
        self.scheduler.finish(self.now, ticket);
        self.collect();
    }

    fn collect(&mut self) {
        let outcomes = self.scheduler.take_outcomes();
        self.running.extend(outcomes.into_iter().filter_map(|outcome| outcome.result.ok()));
    }
}

const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
