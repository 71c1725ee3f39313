//! Tests of the slots against a model of answers that ask again and again, and in random runs.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);

/// Answers that each ask again as soon as their part is done, on as many processors as there are
/// slots.
struct Load {
    lanes: Lanes,
    now: Duration,
    /// The time of a part, by flow.
    part: HashMap<u64, Duration>,
    running: Vec<(Duration, SlotId, u64)>,
    flows: HashMap<SlotId, u64>,
    served: HashMap<u64, Duration>,
}

impl Load {
    fn new(slots: usize, flows: &[(u64, usize, Duration)]) -> Self {
        let mut load = Self {
            lanes: Lanes::new(slots),
            now: Duration::ZERO,
            part: HashMap::new(),
            running: Vec::new(),
            flows: HashMap::new(),
            served: HashMap::new(),
        };
        for (flow, answers, part) in flows {
            load.part.insert(*flow, *part);
            (0..*answers).for_each(|_| load.ask(*flow));
        }
        load
    }

    fn ask(&mut self, flow: u64) {
        let id = self.lanes.ask(self.now, flow, 1 << 20);
        self.flows.insert(id, flow);
        self.take_all();
    }

    fn take_all(&mut self) {
        for id in self.lanes.take_granted() {
            let flow = self.flows[&id];
            self.lanes.take(self.now, id);
            self.running.push((self.now + self.part[&flow], id, flow));
        }
    }

    fn run(&mut self, until: Duration) {
        while self.now < until {
            self.running.sort_by_key(|(end, ..)| std::cmp::Reverse(*end));
            let (end, id, flow) = self.running.pop().unwrap();
            self.now = end;
            *self.served.entry(flow).or_default() += self.part[&flow];
            // A task asks for its next slot before it returns the last one.
            self.ask(flow);
            self.lanes.sent(256 << 10);
            self.lanes.end(self.now, id);
            self.take_all();
        }
    }

    fn part_of(&self, flow: u64) -> f64 {
        let total: Duration = self.served.values().sum();
        self.served[&flow].as_secs_f64() / total.as_secs_f64()
    }
}

#[test]
fn a_slot_is_granted_at_once_while_nobody_waits() {
    let mut lanes = Lanes::new(2);
    let [one, two] = [lanes.ask(MILLI, 1, 9), lanes.ask(MILLI, 1, 9)];
    assert_eq!(lanes.take_granted(), [one, two]);
    let three = lanes.ask(MILLI, 1, 9);
    assert_eq!((lanes.state(three), lanes.waiting()), (Some(SlotState::Waits), 1));
    lanes.take(MILLI, one);
    lanes.end(2 * MILLI, one);
    assert_eq!((lanes.take_granted(), lanes.state(one)), (vec![three], None));
}

#[test]
fn one_answer_gets_as_much_as_two_hundred_of_another_flow() {
    let mut load = Load::new(4, &[(1, 1, MILLI), (2, 200, MILLI)]);
    load.run(Duration::from_secs(1));
    // One answer cannot use more than one of four slots at once.
    assert!(load.part_of(1) > 0.24, "{}", load.part_of(1));
    let mut load = Load::new(2, &[(1, 4, MILLI), (2, 200, MILLI)]);
    load.run(Duration::from_secs(1));
    assert!((0.48..0.52).contains(&load.part_of(1)), "{}", load.part_of(1));
}

#[test]
fn time_counts_and_not_the_number_of_parts() {
    let mut load = Load::new(2, &[(1, 9, MILLI), (2, 9, 25 * MILLI), (3, 9, 4 * MILLI)]);
    load.run(Duration::from_secs(10));
    for flow in [1, 2, 3] {
        assert!((0.30..0.37).contains(&load.part_of(flow)), "{flow}: {}", load.part_of(flow));
    }
}

#[test]
fn a_flow_that_was_idle_gets_no_credit() {
    let mut load = Load::new(1, &[(1, 2, MILLI)]);
    load.run(Duration::from_secs(5));
    load.part.insert(2, MILLI);
    (0..5).for_each(|_| load.ask(2));
    load.served.clear();
    load.run(Duration::from_secs(6));
    assert!((0.48..0.52).contains(&load.part_of(1)), "{}", load.part_of(1));
}

#[test]
fn a_slot_that_is_not_taken_is_withdrawn() {
    let mut lanes = Lanes::new(1);
    let absent = lanes.ask(Duration::ZERO, 1, 9);
    let next = lanes.ask(Duration::ZERO, 2, 9);
    lanes.withdraw(19 * MILLI);
    assert_eq!(lanes.state(next), Some(SlotState::Waits));
    lanes.withdraw(20 * MILLI);
    assert_eq!((lanes.state(absent), lanes.state(next)), (None, Some(SlotState::Granted)));
    lanes.take(21 * MILLI, next);
    lanes.withdraw(99 * MILLI);
    assert_eq!(lanes.state(next), Some(SlotState::InUse(21 * MILLI)), "it works");
}

#[test]
fn a_wait_is_expected_by_the_pace_and_the_part_of_the_flow() {
    // A part of 256 KiB takes a millisecond on each of two slots: 512 MiB a second.
    let mut load = Load::new(2, &[(1, 8, MILLI), (2, 1, MILLI)]);
    assert_eq!(load.lanes.expected(1), None, "nothing is known yet");
    load.run(Duration::from_secs(2));
    assert_eq!(load.lanes.expected(3), None, "nothing of it waits");
    let expected = load.lanes.expected(1).unwrap();
    // Some 7 MiB wait.
    assert!((5 * MILLI..60 * MILLI).contains(&expected), "{expected:?}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Request(u64),
    Take(prop::sample::Index),
    End(prop::sample::Index),
    Withdraw,
    Resize(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..4).prop_map(Step::Request),
        3 => any::<prop::sample::Index>().prop_map(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => Just(Step::Withdraw),
        1 => (1_usize..5).prop_map(Step::Resize),
        3 => (0_u64..30).prop_map(Step::Pass),
    ]
}

proptest! {
    /// However requests come and go: no slot is lost, none is granted twice, all are used while
    /// something waits, and nothing is left at the end.
    #[test]
    fn slots_are_counted(steps in prop::collection::vec(step(), 1..200)) {
        let mut lanes = Lanes::new(2);
        let (mut slots, mut now, mut open) = (2, Duration::ZERO, Vec::new());
        for step in steps {
            match step {
                Step::Request(flow) => open.push(lanes.ask(now, flow, 100)),
                Step::Take(index) if !open.is_empty() => lanes.take(now, *index.get(&open)),
                Step::End(index) if !open.is_empty() => {
                    lanes.end(now, open.remove(index.index(open.len())));
                }
                Step::Withdraw => lanes.withdraw(now),
                Step::Resize(to) => {
                    slots = to;
                    lanes.resize(now, slots);
                }
                Step::Pass(millis) => now += Duration::from_millis(millis),
                Step::Take(_) | Step::End(_) => {}
            }
            open.retain(|id| lanes.state(*id).is_some());
            let waits = |id: &&SlotId| lanes.state(**id) == Some(SlotState::Waits);
            let waiting = open.iter().filter(waits).count();
            prop_assert_eq!(waiting, lanes.waiting());
            prop_assert_eq!(open.len() - waiting, lanes.held);
            prop_assert!(waiting == 0 || lanes.held >= slots);
            let bytes: u64 = lanes.flows.values().map(|flow| flow.bytes).sum();
            prop_assert_eq!(bytes, 100 * waiting as u64);
        }
        open.into_iter().for_each(|id| lanes.end(now, id));
        lanes.withdraw(now + Duration::from_secs(1));
        prop_assert!(lanes.flows.is_empty() && lanes.queue.is_empty() && lanes.held == 0);
        prop_assert!(lanes.requests.is_empty() && lanes.granted.is_empty());
    }
}
