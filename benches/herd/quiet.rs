//! Reviews while nothing happens but checks of open watches.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::testbed::Testbed;

/// Counts the reviews of each second.
pub(crate) async fn run(testbed: &mut Testbed) {
    let seconds = testbed.args.quiet;
    let reviews = |testbed: &Testbed| testbed.reviews().into_iter().sum::<u64>();
    let mut due = interval(Duration::from_secs(1));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    due.tick().await;
    let first = reviews(testbed);
    let (mut last, mut most, mut since) = (first, 0, Instant::now());
    for _ in 0..seconds {
        due.tick().await;
        let (now, second) = (reviews(testbed), since.elapsed().as_secs_f64());
        // A second of this process may be a little longer than one.
        most = most.max(((now - last) as f64 / second.max(1.0)).round() as u64);
        (last, since) = (now, Instant::now());
    }
    if seconds == 0 {
        return;
    }
    println!(
        "\nquiet for {seconds} s: {} tokens and {} permissions",
        testbed.args.tokens,
        testbed.permissions()
    );
    println!("  API server: {} reviews, at most {most} in a second", last - first);
    testbed.print_metrics().await;
    // Two more may arrive in a second: 51 may begin in it, and one before it may arrive late.
    if most > REVIEWS_MAX + 2 {
        testbed.fail(format!("reviews in a second: {most}, bound {REVIEWS_MAX}"));
    }
}

/// The default of `authorization.watchReviewsPerSecond`.
const REVIEWS_MAX: u64 = 50;
