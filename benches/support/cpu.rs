//! CPU time (user and system), measured by the scheduler. Other work on the machine does not count,
//! but it still evicts data from the processor's caches.
//!
//! The time of a process is the kernel's total. A sum over the existing threads would lose the time
//! of threads that have ended, such as idle threads of a pool.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The unit of `/proc/PID/stat`, independent of the kernel's own tick rate. A measurement with it
/// should take at least a hundred ticks.
const TICK: Duration = Duration::from_millis(10);

/// Returns the CPU time of the process or thread with this directory in `/proc`. The resolution is
/// a nanosecond for a thread and a [`TICK`] for a process, which includes its ended threads.
pub(crate) fn time_of(directory: &str) -> Duration {
    let directory = Path::new(directory);
    if directory.join("task").exists() { process_time(directory) } else { thread_time(directory) }
}

fn process_time(directory: &Path) -> Duration {
    let stat = fs::read_to_string(directory.join("stat")).expect("the process runs");
    // The second field is the name in parentheses, which may contain spaces.
    let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
    let field = |number: usize| {
        rest.split(' ').nth(number - 3).and_then(|number| number.parse::<u32>().ok())
    };
    let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
    TICK * ticks.expect("user and system time")
}

fn thread_time(directory: &Path) -> Duration {
    let text = fs::read_to_string(directory.join("schedstat")).expect("schedstat is readable");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}
