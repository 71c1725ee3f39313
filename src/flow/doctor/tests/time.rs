//! Findings over time: when they come, that they stay, and when they go.

use super::world::{LIST, Requests, SECOND, WATCH, World, with};
use crate::costs::Batch;
use crate::doctor::Rule;
use crate::habit::Start;

#[test]
fn a_watch_counts_for_as_long_as_it_may_be_open() {
    let mut world = World::new();
    world.run(&[WATCH]);
    world.run_hour(&[Requests { count: 10, ..LIST }]);
    assert_eq!(world.rules(), [], "it began an hour ago");
    world.run_hour(&[Requests { count: 10, ..LIST }]);
    assert_eq!(world.rules(), [Rule::PollList], "the API server has ended it");
}

#[test]
fn polling_is_found_at_each_interval_and_without_a_pause() {
    for count in [1, 2, 4, 8, 16, 600] {
        let poll = Requests { count, ..LIST };
        let mut world = World::new();
        (0..4).for_each(|_| world.run_hour(&[poll]));
        if count == 1 {
            assert_eq!(world.rules(), [], "every ten minutes is less than the bound");
            continue;
        }
        for second in 0..1_200 {
            let mut batch = Batch::default();
            if second * u64::from(count) / 600 != (second + 1) * u64::from(count) / 600 {
                world.add(&mut batch, &poll);
            }
            world.costs.add(world.now, &mut batch);
            if u64::is_multiple_of(second, 10) {
                assert_eq!(world.rules(), [Rule::PollList], "{count} in ten minutes: {second}");
            }
            world.now += SECOND;
        }
        world.run_hour(&[]);
        assert_eq!(world.rules(), [], "it has ended");
    }
}

#[test]
fn a_program_that_crashes_again_and_again_is_found() {
    let mut world = World::new();
    let start = Requests { count: 2, ..LIST };
    let watch = Requests { habit: with(|habit| habit.start = Start::Version), count: 2, ..WATCH };
    world.run_hour(&[start, watch]);
    assert_eq!(world.rules(), [Rule::RelistLoop]);
    let evidence = &world.doctor.examine(world.now, &world.costs)[0].evidence;
    assert!(evidence.contains("the program may crash, or is a job"), "{evidence}");
    // It is mended.
    (0..3).for_each(|_| world.run_hour(&[Requests { count: 1, ..watch }]));
    assert_eq!(world.rules(), []);
}

#[test]
fn a_roll_out_is_no_crash() {
    let watch = Requests { habit: with(|habit| habit.start = Start::Version), ..WATCH };
    // Twelve replicas, all begun within ten minutes. Each begins a new watch every seven minutes.
    let mut world = World::new();
    world.run(&[Requests { count: 12, ..LIST }, Requests { count: 12, ..watch }]);
    assert_eq!(world.rules(), []);
    for _ in 0..6 {
        world.run(&[Requests { count: 17, ..watch }]);
        assert_eq!(world.rules(), []);
    }
    // A replica more each five minutes.
    let mut world = World::new();
    for replicas in (2..20).step_by(2) {
        world.run(&[Requests { count: 2, ..LIST }, Requests { count: 2 + replicas, ..watch }]);
        assert_eq!(world.rules(), [], "{replicas}");
    }
    // Five hundred nodes, one after another.
    let mut world = World::new();
    world.run(&[Requests { count: 700, ..watch }]);
    for _ in 0..6 {
        world.run(&[Requests { count: 20, ..LIST }, Requests { count: 720, ..watch }]);
        assert_eq!(world.rules(), []);
    }
}

#[test]
fn a_finding_goes_when_the_habit_goes_but_not_at_once() {
    let mut world = World::new();
    let consistent = Requests {
        habit: with(|habit| habit.start = Start::Unset),
        is_forwarded: true,
        count: 12,
        ..LIST
    };
    world.run(&[consistent, WATCH]);
    assert_eq!(world.rules(), [Rule::UnsetList]);
    world.run(&[WATCH]);
    world.run(&[WATCH]);
    assert_eq!(world.rules(), [Rule::UnsetList], "more than half of the bound is left");
    for _ in 0..3 {
        world.run(&[WATCH]);
    }
    assert_eq!(world.rules(), []);
}
