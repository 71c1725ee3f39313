//! The tests that take too long to run always: the truth under fire for ten minutes, and figures of
//! failures and of hostile loads. Figures are printed, and nothing is asserted but that the load
//! ran.
//!
//! Run one with `cargo test --test real -- --ignored NAME`, with `$WEIR_BINARY` set to an optimized
//! build of Weir.

mod components;
mod doctor;
mod fair;
mod older_watchers;
mod shadow;
mod starvation;
pub(crate) mod tokens;
mod verification;

use libtest_mimic::Trial;

use crate::{fire, nodes, wire};

/// Returns all of them, as ignored tests.
pub(crate) fn trials() -> Vec<Trial> {
    let figures: [(&str, fn()); 17] = [
        ("figures_older_watchers", older_watchers::after_a_restart),
        ("figures_fair_queueing", fair::fair_queueing),
        ("figures_runaway_lists", fair::runaway_lists),
        ("figures_two_flows", starvation::two_flows),
        ("figures_verification", verification::cost),
        ("the_truth_holds_behind_a_balancer", fire::behind_a_balancer),
        ("the_truth_holds_with_a_list", fire::in_a_list),
        ("ten_minutes_behind_a_balancer", fire::ten_minutes_behind_a_balancer),
        ("ten_minutes_with_a_list", fire::ten_minutes_in_a_list),
        ("figures_doctor", doctor::ten_minutes),
        ("figures_nodes", nodes::rehearsal),
        ("figures_failover", fire::figures::failover),
        ("figures_away", fire::figures::away),
        ("shadow_mode_finds_no_difference_in_the_corpus", crate::shadow::corpus),
        ("ten_minutes_in_shadow", shadow::ten_minutes),
        ("many_raw_requests", wire::many_requests),
        ("many_raw_websockets", wire::many_sockets),
    ];
    let ignored = |(name, run): (&str, fn())| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(true)
    };
    figures.into_iter().map(ignored).collect()
}
