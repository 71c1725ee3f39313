//! Tests of what 429s do.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const CEILING: f64 = 600.0;
const FLOOR: f64 = 32.0;

fn part(refusals: &Refusals, level: &str) -> Option<f64> {
    refusals.part(level).map(|part| (part * 100.0).round() / 100.0)
}

#[test]
fn a_refused_level_gets_seven_tenths_and_grows_again() {
    let mut refusals = Refusals::default();
    let refused = |refusals: &mut Refusals, seconds: u32, in_use| {
        refusals.refused_level(SECOND * seconds, &"low".into(), in_use, Some(2 * SECOND));
    };
    refused(&mut refusals, 0, 0.5);
    assert_eq!(part(&refusals, "low"), Some(0.7), "of its nominal seats at least");
    assert_eq!(part(&refusals, "high"), None);
    assert_eq!(refusals.limit(), None, "it says nothing about the others");
    refused(&mut refusals, 1, 0.5);
    assert_eq!(part(&refusals, "low"), Some(0.7), "within its Retry-After");
    refusals.recover(SECOND, CEILING);
    refused(&mut refusals, 2, 0.5);
    assert_eq!(part(&refusals, "low"), Some(0.51), "0.7 * 1.05 * 0.7");
    for second in 2..12 {
        refusals.recover(SECOND * second, CEILING);
    }
    assert_eq!(part(&refusals, "low"), Some(0.84), "1.05 ^ 10");
    // Beyond all that it may borrow, it is not limited.
    for second in 12..80 {
        refusals.recover(SECOND * second, CEILING);
    }
    assert_eq!(part(&refusals, "low"), None);
    assert_eq!(refusals.levels().count(), 0);
}

#[test]
fn a_level_that_has_borrowed_begins_at_what_it_has() {
    let mut refusals = Refusals::default();
    refusals.refused_level(Duration::ZERO, &"low".into(), 3.0, None);
    assert_eq!(part(&refusals, "low"), Some(2.1));
}

#[test]
fn a_refusal_without_a_level_lowers_the_limit_of_the_server() {
    let mut refusals = Refusals::default();
    refusals.refused_all(Duration::ZERO, 200.0, FLOOR, Some(SECOND));
    assert_eq!(refusals.limit(), Some(140.0));
    for second in 1..60 {
        refusals.refused_all(SECOND * second, 200.0, FLOOR, Some(SECOND));
    }
    assert_eq!(refusals.limit(), Some(FLOOR));
    let recovered = (60..200).find(|second| {
        refusals.recover(SECOND * *second, CEILING);
        refusals.limit().is_none()
    });
    assert!(recovered.is_some());
}

proptest! {
    /// The limit never falls below its floor, and the parts of levels are bounded in number and
    /// size.
    #[test]
    fn limits_stay_within_their_bounds(
        steps in proptest::collection::vec((any::<bool>(), 0_u64..400, 0_u64..5000), 1..300),
    ) {
        let mut refusals = Refusals::default();
        let mut now = Duration::ZERO;
        for (is_of_level, number, millis) in steps {
            now += Duration::from_millis(millis);
            let retry_after = (number > 0).then(|| Duration::from_secs(number));
            if is_of_level {
                refusals.refused_level(now, &number.to_string().into(), 2.0, retry_after);
            } else {
                refusals.refused_all(now, number as f64, FLOOR, retry_after);
            }
            refusals.recover(now, CEILING);
            prop_assert!(refusals.limit().is_none_or(|limit| limit >= FLOOR));
            let parts: Vec<f64> = refusals.levels().map(|(_, part)| part).collect();
            prop_assert!(parts.len() <= 256 && parts.iter().all(|part| *part >= 0.1));
        }
    }
}
