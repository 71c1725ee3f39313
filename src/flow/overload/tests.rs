//! Tests of the stages, by hand and in random runs.

use proptest::prelude::*;

use super::*;

const BUSY: Signals = Signals { lateness: Duration::ZERO, cpu: 1.0, memory: 0.0, descriptors: 0.0 };

fn late(millis: u64, cpu: f64) -> Signals {
    Signals { lateness: Duration::from_millis(millis), cpu, ..BUSY }
}

/// Returns the stages of one measurement every 100 ms.
fn stages(machine: &mut StageMachine, from: u64, count: u64, signals: &Signals) -> Vec<Stage> {
    let at = |tenth: u64| Duration::from_millis((from + tenth) * 100);
    (0..count).map(|tenth| machine.observe(at(tenth), signals)).collect()
}

#[test]
fn lateness_raises_the_stage_every_two_seconds() {
    let mut machine = StageMachine::default();
    let seen = stages(&mut machine, 20, 81, &late(300, 0.9));
    let at = |second: usize| seen.get(second * 10).copied().unwrap();
    use Stage::*;
    assert_eq!([0, 2, 4, 6, 8].map(at), [Saving, LargeLists, InitialStates, VitalOnly, VitalOnly]);
}

#[test]
fn a_noisy_neighbour_raises_nothing() {
    let mut machine = StageMachine::default();
    assert!(
        stages(&mut machine, 20, 200, &late(150, 0.3)).iter().all(|stage| *stage == Stage::Calm)
    );
    // A lateness that lasts counts anyway.
    let seen = stages(&mut machine, 220, 40, &late(250, 0.3));
    assert_eq!(seen.first(), Some(&Stage::Calm));
    assert_eq!(seen.last(), Some(&Stage::Saving));
}

#[test]
fn memory_that_runs_out_leads_to_its_stage_at_once() {
    let mut machine = StageMachine::default();
    let full = |memory| Signals { memory, ..Signals::default() };
    assert_eq!(machine.observe(Duration::ZERO, &full(0.92)), Stage::InitialStates);
    assert_eq!(machine.observe(Duration::from_millis(100), &full(0.96)), Stage::VitalOnly);
    // It is left step by step, and only below the entry.
    let seen = stages(&mut machine, 1, 100, &full(0.91));
    assert_eq!(seen.last(), Some(&Stage::VitalOnly), "95 % of the entry is not reached");
    let seen = stages(&mut machine, 101, 21, &full(0.80));
    assert_eq!(seen.first(), Some(&Stage::InitialStates));
    assert_eq!(seen.last(), Some(&Stage::LargeLists));
    let seen = stages(&mut machine, 122, 100, &full(0.5));
    assert_eq!(seen.last(), Some(&Stage::Calm));
}

#[test]
fn descriptors_count_as_memory_does() {
    let mut machine = StageMachine::default();
    let used = Signals { descriptors: 0.9, ..Signals::default() };
    assert_eq!(machine.observe(Duration::ZERO, &used), Stage::InitialStates);
}

proptest! {
    /// A stage is held for two seconds unless memory or descriptors lead to a higher one, and never
    /// changes by more than one step downwards.
    #[test]
    fn stages_change_slowly(
        measured in prop::collection::vec((0_u64..400, 0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64), 1..300),
    ) {
        let mut machine = StageMachine::default();
        let (mut before, mut changed) = (Stage::Calm, Duration::ZERO);
        for (number, (millis, cpu, memory, descriptors)) in measured.into_iter().enumerate() {
            let now = Duration::from_millis(100 * number as u64);
            let signals = Signals { memory, descriptors, ..late(millis, cpu) };
            let stage = machine.observe(now, &signals);
            let full = signals.stage(Duration::ZERO, &ENTRY);
            prop_assert!(stage >= full, "{stage:?} {full:?}");
            if stage != before {
                prop_assert!(stage == full || now - changed >= Duration::from_secs(2));
                prop_assert!(stage == full || (stage as i8 - before as i8).abs() == 1);
                (before, changed) = (stage, now);
            }
        }
    }

    /// Calm measurements lead to calm within 10 s, from any stage.
    #[test]
    fn calm_follows_within_ten_seconds(memory in 0.0..1.0_f64, millis in 0_u64..400) {
        let mut machine = StageMachine::default();
        stages(&mut machine, 0, 100, &Signals { memory, ..late(millis, 1.0) });
        let after = stages(&mut machine, 100, 100, &Signals::default());
        prop_assert_eq!(after.last(), Some(&Stage::Calm));
    }
}
