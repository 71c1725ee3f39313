//! Requests that are expected to hold their seats for long borrow half of what is lent at most, so
//! that a lender has the other half back within a second.

use super::changes::Run;
use super::*;

const SECONDS: u32 = 1000;

/// Two levels that lend all of their nominal seats.
fn lenders() -> [LevelSpec; 2] {
    [level("a", shares(50, 100, None)), level("b", shares(50, 100, None))]
}

#[test]
fn long_requests_leave_half_of_what_is_lent_to_short_ones() {
    let mut rig = Rig::new(40, &lenders());
    rig.crowd(0, 0..60, 20 * SECONDS);
    assert_eq!(rig.in_use(0), 30, "its own 20, and half of the other 20");
    (0..60)
        .for_each(|flow| assert_eq!(rig.arrive(0, request(100 + flow, 1, 10), 10 * MS), flow < 10));
    // The lender has what short ones borrowed as soon as they end, and all of it from then on.
    rig.crowd(1, 0..60, 10);
    rig.run_until(10 * MS);
    assert_eq!(rig.in_use(1), 10);
    rig.run_until(Duration::from_secs(1));
    assert_eq!(rig.in_use(0), 30);
}

#[test]
fn a_level_of_long_requests_has_all_of_its_own_seats() {
    let mut rig = Rig::new(40, &[level("a", shares(1, 50, None))]);
    rig.crowd(0, 0..60, 2 * SECONDS);
    assert_eq!(rig.in_use(0), 40);
}

#[test]
fn the_widest_long_request_starts_in_the_end() {
    let mut rig = Rig::new(40, &lenders());
    rig.crowd(0, 0..30, 2 * SECONDS);
    let widest = Arriving { wait_max: Duration::from_secs(600), ..request(100, 30, 1_100) };
    assert!(!rig.arrive(0, widest, 2 * SECONDS * MS));
    // Short ones pass it while it waits for long ones to end, and no long one does.
    rig.crowd(0, 200..205, 10);
    assert_eq!(rig.in_use(0), 35);
    assert!(!rig.arrive(0, request(101, 1, 1_100), 2 * SECONDS * MS));
    rig.run_until(Duration::from_secs(3));
    assert!(rig.running.iter().any(|(key, _, _)| key.flow == 100), "{:?}", rig.running);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// No long request starts beyond half of what is lent, but for the only one of its level.
    #[test]
    fn long_requests_borrow_half_of_what_is_lent_at_most(
        shares_of in proptest::collection::vec((1_u32..50, 0_u32..=100), 2..5),
        arrivals in proptest::collection::vec((0_usize..5, 1_u64..8, any::<bool>()), 1..150),
    ) {
        let specs: Vec<LevelSpec> = (shares_of.iter().enumerate())
            .map(|(number, share)| level(&number.to_string(), shares(share.0, share.1, None)))
            .collect();
        let mut run = Run::new(60, &specs);
        for (number, (place, seats, is_long)) in (0..).zip(arrivals) {
            let place = place % specs.len();
            let seats = seats.min(run.scheduler.levels[place].widest());
            let leaves_half = run.leaves_half(place, seats);
            let before = run.running.len();
            let guess = if is_long { 1_500 } else { 10 };
            run.arrive(place, request(number, seats, guess), Duration::from_secs(3600));
            let has_started = run.running.len() > before;
            prop_assert!(!has_started || !is_long || leaves_half);
        }
    }
}
