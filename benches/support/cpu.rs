//! CPU time, user and system, by the scheduler's clock: other work on the machine adds nothing (it still empties the processor's caches).
//!
//! A process' is the kernel's own sum of it. The sum over the threads that it has would lose those that ended, and with them all that they
//! did; a pool's threads do end.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// A tick of `/proc/PID/stat`, for all programs, whatever the kernel counts in: what is measured so should take a hundred of them.
const TICK: Duration = Duration::from_millis(10);

/// By its directory in `/proc`, of a thread in nanoseconds, of a process with all threads that it ever had in ticks.
pub(crate) fn of(directory: &str) -> Duration {
    let directory = Path::new(directory);
    if directory.join("task").exists() { of_process(directory) } else { of_thread(directory) }
}

fn of_process(directory: &Path) -> Duration {
    let stat = fs::read_to_string(directory.join("stat")).expect("the process runs");
    // The name, which is the second field, may have spaces in its brackets.
    let (_, rest) = stat.rsplit_once(") ").expect("a stat");
    let field =
        |number: usize| rest.split(' ').nth(number - 3).and_then(|it| it.parse::<u32>().ok());
    let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
    TICK * ticks.expect("user and system time")
}

fn of_thread(directory: &Path) -> Duration {
    let text = fs::read_to_string(directory.join("schedstat")).expect("the scheduler's figures");
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}
