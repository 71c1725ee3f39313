//! Tests of what 429s do.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn part(limit: &AdaptiveLimit, level: &str) -> Option<f64> {
    limit.refusals().part(level).map(|part| (part * 100.0).round() / 100.0)
}

#[test]
fn a_refused_level_gets_seven_tenths_and_grows_again() {
    let mut limit = AdaptiveLimit::new(Duration::ZERO, CEILING);
    let refused = |limit: &mut AdaptiveLimit, seconds: u32, in_use| {
        limit.refused(SECOND * seconds, Some((&"low".into(), in_use)), Some(2 * SECOND));
    };
    refused(&mut limit, 0, 0.5);
    assert_eq!(part(&limit, "low"), Some(0.7), "of its nominal seats at least");
    assert_eq!(part(&limit, "high"), None);
    assert_eq!(limit.limit(true), CEILING, "it says nothing about the others");
    refused(&mut limit, 1, 0.5);
    assert_eq!(part(&limit, "low"), Some(0.7), "within its Retry-After");
    limit.tick(SECOND);
    refused(&mut limit, 2, 0.5);
    assert_eq!(part(&limit, "low"), Some(0.51), "0.7 * 1.05 * 0.7");
    for second in 2..12 {
        limit.tick(SECOND * second);
    }
    assert_eq!(part(&limit, "low"), Some(0.84), "1.05 ^ 10");
    // Beyond all that it may borrow, it is not limited.
    for second in 12..80 {
        limit.tick(SECOND * second);
    }
    assert_eq!(part(&limit, "low"), None);
    assert_eq!(limit.refusals().levels().count(), 0);
}

#[test]
fn a_level_that_has_borrowed_begins_at_what_it_has() {
    let mut limit = AdaptiveLimit::new(Duration::ZERO, CEILING);
    limit.refused(Duration::ZERO, Some((&"low".into(), 3.0)), None);
    assert_eq!(part(&limit, "low"), Some(2.1));
}

#[test]
fn a_refusal_without_a_level_lowers_the_limit_of_the_server() {
    let mut limit = AdaptiveLimit::new(Duration::ZERO, CEILING);
    limit.take(Duration::ZERO, 200);
    limit.refused(Duration::ZERO, None, Some(SECOND));
    assert_eq!((limit.limit(true), limit.limit(false)), (140, 140));
    for second in 1..60 {
        limit.refused(SECOND * second, None, Some(SECOND));
    }
    assert_eq!(limit.limit(false), FLOOR);
    let recovered = (60..200).find(|second| {
        limit.tick(SECOND * *second);
        limit.limit(false) == CEILING
    });
    assert!(recovered.is_some());
}

proptest! {
    /// The limit stays between its floor and its ceiling, and the parts of levels are bounded in
    /// number and size.
    #[test]
    fn limits_stay_within_their_bounds(
        ceiling in 1_u64..1200,
        steps in proptest::collection::vec((0_u8..7, 0_u64..400, 0_u64..5000), 1..300),
    ) {
        let mut limit = AdaptiveLimit::new(Duration::ZERO, ceiling);
        let mut now = Duration::ZERO;
        for (step, number, millis) in steps {
            now += Duration::from_millis(millis);
            let retry_after = (number > 0).then(|| Duration::from_secs(number));
            match step {
                0 => limit.take(now, number),
                1 => limit.give(now, number),
                2 => (0..number).for_each(|_| limit.lost()),
                3 => limit.refused(now, None, retry_after),
                4 => limit.refused(now, Some((&number.to_string().into(), 2.0)), retry_after),
                _ => (0..number).for_each(|_| limit.answered(Answer {
                    class: Some(number % 300),
                    seats: 1,
                    latency: Duration::from_millis(millis),
                    is_error: step == 6,
                })),
            }
            limit.tick(now);
            for with_latency in [false, true] {
                let limit = limit.limit(with_latency);
                prop_assert!((FLOOR.min(ceiling)..=ceiling).contains(&limit), "{limit}");
            }
            let parts: Vec<f64> = limit.refusals().levels().map(|(_, part)| part).collect();
            prop_assert!(parts.len() <= 256 && parts.iter().all(|part| *part >= 0.1));
        }
    }
}
