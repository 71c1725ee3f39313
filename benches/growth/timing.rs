//! Measures the cost of an operation in this process, as CPU time of its thread.

use std::time::Duration;

use crate::cpu;

/// The total time of all rounds, within [`ROUNDS_MIN`] and [`ROUNDS_MAX`].
const TIME: Duration = Duration::from_millis(300);
const ROUNDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 200;

/// Returns the CPU time per operation in microseconds. `round` prepares its data, runs its
/// operations in the timer and returns their number. The result is the lower quartile of all
/// rounds, since other work on the machine only adds time.
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

/// The sum of the timed parts of a round.
pub(crate) struct Timer(Duration);

impl Timer {
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let before = thread_time();
        let value = run();
        self.0 += thread_time().saturating_sub(before);
        value
    }
}

fn thread_time() -> Duration {
    // The scheduler updates the exact time of a thread when the thread gives up the processor.
    std::thread::park_timeout(Duration::from_micros(1));
    cpu::time_of("/proc/thread-self")
}
