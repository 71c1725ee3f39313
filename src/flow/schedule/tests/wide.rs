//! Requests of several seats have a limit of their own, beside which those of one seat go on.

use super::changes::Run;
use super::*;

#[test]
fn one_wide_request_of_a_level_runs_at_a_time_and_short_ones_pass() {
    let mut rig = Rig::new(60, &[level("a", shares(1, 0, None)), level("b", shares(1, 50, None))]);
    rig.scheduler.limit_wide(Duration::ZERO, 1);
    assert!(rig.arrive(0, request(1, 8, 100), 100 * MS), "one may always run");
    assert!(!rig.scheduler.wide_load().is_limited);
    assert!(!rig.arrive(0, request(1, 8, 100), 100 * MS));
    assert!(rig.arrive(1, request(2, 2, 100), 100 * MS), "no level starves another one");
    let load = WideLoad { seats: 10, seats_max: 1, is_limited: true };
    assert_eq!(rig.scheduler.wide_load(), load);
    for flow in 10..20 {
        assert!(rig.arrive(0, request(flow, 1, 10), 10 * MS), "no seats are collected");
    }
    assert!(!rig.arrive(0, request(3, 8, 100), 100 * MS));
    rig.run_until(50 * MS);
    assert_eq!((rig.in_use(0), rig.in_use(1)), (8, 2));
    rig.scheduler.limit_wide(rig.now, 20);
    rig.collect();
    assert_eq!((rig.in_use(0), rig.in_use(1)), (16, 2));
    rig.run_until(500 * MS);
    assert!(rig.waiting.is_empty() && rig.running.is_empty());
}

#[test]
fn the_widest_request_of_a_small_server_leaves_seats_to_short_ones() {
    let mut rig = Rig::new(8, &[level("a", shares(1, 0, None))]);
    assert!(rig.arrive(0, request(1, 100, 100), 100 * MS));
    assert_eq!(rig.in_use(0), 6);
    assert!(rig.arrive(0, request(2, 1, 10), 10 * MS));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Wide requests have their limit at most, or one runs; all end.
    #[test]
    fn wide_requests_keep_to_their_limit(
        wide_max in 1_u64..30,
        arrivals in proptest::collection::vec((0_usize..3, 0_u64..4, 1_u64..9, 1_u32..50), 1..150),
    ) {
        let specs = ["a", "b", "c"].map(|name| level(name, shares(10, 50, None)));
        let mut run = Run::new(40, &specs);
        run.scheduler.limit_wide(Duration::ZERO, wide_max);
        for (place, flow, seats, holds) in arrivals {
            let seats = seats.min(run.scheduler.levels[place].widest());
            let (keeps, before) = (run.keeps_to_wide(place, seats), run.running.len());
            run.arrive(place, request(flow, seats, holds), Duration::from_secs(3600));
            prop_assert!(keeps || run.running.len() == before, "{:?}", run.running);
        }
    }
}
