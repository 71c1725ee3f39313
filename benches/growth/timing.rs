//! What something costs in this process: the CPU time of the thread that does it.

use std::time::Duration;

use crate::cpu;

/// As many rounds as take so long, at least so many and at most so many.
const TIME: Duration = Duration::from_millis(300);
const ROUNDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 200;

/// In microseconds of CPU time: what one of the things that a round does costs. A round makes what it needs, has the rest timed, and tells how
/// many it did. Of all rounds the lower quartile, since other work on the machine only adds.
pub(crate) fn cost(mut round: impl FnMut(&mut Timer) -> usize) -> f64 {
    let (mut costs, mut total) = (Vec::new(), Duration::ZERO);
    while costs.len() < ROUNDS_MIN || (total < TIME && costs.len() < ROUNDS_MAX) {
        let mut timer = Timer(Duration::ZERO);
        let count = round(&mut timer);
        costs.push(timer.0.as_secs_f64() * 1e6 / count as f64);
        total += timer.0;
    }
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 4).copied().unwrap_or(f64::NAN)
}

/// Times a part of a round.
pub(crate) struct Timer(Duration);

impl Timer {
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let before = used();
        let value = run();
        self.0 += used().saturating_sub(before);
        value
    }
}

fn used() -> Duration {
    // The scheduler counts exactly only for who gives up the processor.
    std::thread::park_timeout(Duration::from_micros(1));
    cpu::of("/proc/thread-self")
}
