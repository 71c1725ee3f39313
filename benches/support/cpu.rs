//! CPU time as the scheduler counts it, to which other work on the machine adds nothing (it still empties the processor's caches).

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Of a thread, or of all threads that a process has, by its directory in `/proc`. Zero for one that has just ended.
pub(crate) fn of(directory: &str) -> Duration {
    match fs::read_dir(Path::new(directory).join("task")) {
        Ok(threads) => threads.flatten().map(|thread| of_thread(&thread.path())).sum(),
        Err(_) => of_thread(Path::new(directory)),
    }
}

fn of_thread(directory: &Path) -> Duration {
    let text = fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
