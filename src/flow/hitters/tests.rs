//! The bounds of a summary against exact sums, with streams that try to break them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn cost(seconds: f64) -> Cost {
    Cost { requests: 1.0, cpu_seconds: seconds, ..Cost::default() }
}

/// Adds a stream, and checks every bound against exact sums.
fn check(stream: &[(u64, f64)]) {
    let mut summary = Summary::default();
    let mut exact: HashMap<u64, Cost> = HashMap::new();
    let mut total = 0.0;
    for &(key, seconds) in stream {
        let cost = cost(seconds);
        summary.add(key, &cost, || key);
        exact.entry(key).or_default().add(&cost);
        total += cost.weight();
    }
    // Sums of floating-point numbers in another order.
    let rounding = 1e-9 * total;
    let counters = summary.heaviest();
    assert!(counters.len() <= KEYS_MAX);
    assert!((summary.total() - total).abs() <= rounding);
    let sum: f64 = counters.iter().map(|counter| counter.weight).sum();
    assert!(sum <= total + rounding, "the weights add up to the total");
    for counter in &counters {
        let actual = exact[&counter.key];
        assert!(counter.weight + rounding >= actual.weight(), "never too low");
        assert!(counter.weight - counter.error <= actual.weight() + rounding, "error is a bound");
        assert!(counter.error <= total / KEYS_MAX as f64 + rounding);
        assert!(counter.cost.requests <= actual.requests + rounding, "costs are never too high");
        assert!(counter.cost.weight() + counter.error + rounding >= actual.weight());
    }
    for (key, actual) in exact {
        let is_kept = counters.iter().any(|counter| counter.key == key);
        assert!(is_kept || actual.weight() <= total / KEYS_MAX as f64 + rounding, "{key} is heavy");
    }
}

#[test]
fn the_bounds_hold_for_adversarial_streams() {
    let keys = KEYS_MAX as u64;
    // Always the key that was just replaced: round robin over one more key than fits.
    let round_robin: Vec<_> = (0..20_000).map(|number| (number % (keys + 1), 1.0)).collect();
    check(&round_robin);
    // One heavy key between many that come once.
    let hidden: Vec<_> =
        (0..20_000).map(|number| if number % 50 == 0 { (0, 1.0) } else { (number, 1.0) }).collect();
    check(&hidden);
    // Heavy keys first, then a flood of new ones that tries to drive them out.
    let mut flood: Vec<_> = (0..keys).map(|key| (key, 10.0)).collect();
    flood.extend((0..20_000).map(|number| (1_000 + number, 0.5)));
    check(&flood);
    // Weights that grow, so that each new key is the heaviest.
    let growing: Vec<_> = (0..5_000).map(|number| (number, number as f64)).collect();
    check(&growing);
}

#[test]
fn a_summary_has_as_many_keys_as_it_is_to_have() {
    let mut summary = Summary::new(3);
    for key in 0..10_u64 {
        assert_eq!(summary.add(key, &cost(1.0), || key), Some(&mut { key }));
    }
    assert_eq!((summary.heaviest().len(), summary.replaced()), (3, 7));
    assert_eq!(Summary::new(0).add(1, &cost(1.0), || 1), Some(&mut 1), "it has one at least");
}

#[test]
fn decay_scales_everything() {
    let mut summary = Summary::default();
    summary.add(1, &cost(8.0), || ());
    summary.add(2, &cost(2.0), || ());
    summary.decay(0.5);
    summary.add(1, &cost(1.0), || ());
    let heaviest = summary.heaviest();
    assert!((heaviest[0].cost.cpu_seconds - 5.0).abs() < 1e-9);
    assert!((heaviest[1].cost.cpu_seconds - 1.0).abs() < 1e-9);
    assert!((heaviest[0].cost.requests - 1.5).abs() < 1e-9);
    assert!((summary.total() - heaviest[0].weight - heaviest[1].weight).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_bounds_hold_for_any_stream(
        keys in prop::sample::select(vec![10_u64, 199, 201, 400, 5_000]),
        skew in 1_u32..6,
        stream in prop::collection::vec((any::<u32>(), 0.0..4.0_f64), 1..3_000),
    ) {
        let pick = |random: u32| {
            let unit = f64::from(random) / f64::from(u32::MAX);
            (unit.powi(skew as i32) * keys as f64) as u64
        };
        let stream: Vec<_> = stream.into_iter().map(|(random, seconds)| (pick(random), seconds)).collect();
        check(&stream);
    }
}
