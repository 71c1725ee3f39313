//! Clients of a test, and their requests over time.

use std::hash::BuildHasher as _;
use std::time::Duration;

use crate::cost::Cost;
use crate::costs::{Batch, Costs, Origin, Text};
use crate::doctor::{Doctor, Rule, SECONDS_PER_BYTE, SECONDS_PER_REQUEST};
use crate::habit::{AskedForm, Habit, Start};
use weir_api::keyed_hash::BuildKeyedHash;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const GO: &str = "controller/v1.2 (linux/amd64) kubernetes/4f1e2d3";
pub(super) const PYTHON: &str = "inventory-OpenAPI-Generator/37.0.2/python";

/// Clients over ten minutes.
pub(super) struct World {
    pub(super) costs: Costs,
    pub(super) doctor: Doctor,
    pub(super) hasher: BuildKeyedHash,
    pub(super) now: Duration,
}

/// Requests of a client: `count` at equal intervals over ten minutes.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    pub(super) agent: &'static str,
    pub(super) verb: &'static str,
    pub(super) habit: Habit,
    pub(super) count: u32,
    pub(super) bytes: f64,
    pub(super) is_forwarded: bool,
    pub(super) resource: &'static str,
    /// Adds the sign of a habit to the cost of a request.
    pub(super) sign: fn(&mut Cost),
}

pub(super) const LIST: Requests = Requests {
    agent: PYTHON,
    verb: "list",
    habit: Habit {
        start: Start::Any,
        is_limited: false,
        form: AskedForm::Json,
        takes_gzip: true,
        is_repeated: false,
    },
    count: 100,
    bytes: 1000.0,
    is_forwarded: false,
    resource: "pods",
    sign: |_| {},
};
pub(super) const WATCH: Requests = Requests { verb: "watch", count: 1, ..LIST };

impl World {
    pub(super) fn new() -> Self {
        let costs = Costs::new(Duration::ZERO, false);
        let (doctor, hasher, now) = (Doctor::default(), BuildKeyedHash::default(), Duration::ZERO);
        Self { costs, doctor, hasher, now }
    }

    pub(super) fn run(&mut self, requests: &[Requests]) {
        for second in 0..600 {
            let mut batch = Batch::default();
            for group in requests {
                let due = |second: u32| u64::from(second) * u64::from(group.count) / 600;
                for _ in due(second)..due(second + 1) {
                    self.add(&mut batch, group);
                }
            }
            self.costs.add(self.now, &mut batch);
            self.now += SECOND;
        }
    }

    pub(super) fn add(&self, batch: &mut Batch, requests: &Requests) {
        self.add_of(batch, "", requests.resource, requests);
    }

    pub(super) fn add_of(
        &self,
        batch: &mut Batch,
        user: &str,
        resource: &str,
        requests: &Requests,
    ) {
        let text = |text: &str| Text::new(&self.hasher, text);
        let origin = Origin {
            user: text(user),
            agent: text(requests.agent),
            schema: None,
            flow: text(""),
            resource: text(resource),
            verb: requests.verb,
            habit: requests.habit,
        };
        let mut cost = Cost {
            requests: 1.0,
            forwarded: f64::from(u8::from(requests.is_forwarded)),
            bytes: requests.bytes,
            seat_seconds: 0.01,
            ..Cost::default()
        };
        cost.upstream_seconds =
            cost.forwarded * (SECONDS_PER_REQUEST + requests.bytes * SECONDS_PER_BYTE);
        (requests.sign)(&mut cost);
        let hash = self.hasher.hash_one((
            requests.agent,
            requests.verb,
            requests.resource,
            requests.habit,
        ));
        batch.add(hash, &cost, || origin);
    }

    /// Goes on for an hour.
    pub(super) fn run_hour(&mut self, requests: &[Requests]) {
        (0..6).for_each(|_| self.run(requests));
    }

    pub(super) fn rules(&mut self) -> Vec<Rule> {
        let findings = self.doctor.examine(self.now, &self.costs);
        let mut rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        rules
    }
}

pub(super) fn rules_found_for(requests: &[Requests]) -> Vec<Rule> {
    let mut world = World::new();
    world.run(requests);
    world.rules()
}

pub(super) fn with(change: impl Fn(&mut Habit)) -> Habit {
    let mut habit = LIST.habit;
    change(&mut habit);
    habit
}
