//! A profile of this process's CPU time, in pprof's format: which functions the time goes to.
//!
//! The crate `pprof` takes the samples: a timer of the process interrupts whichever thread runs,
//! and the handler of the signal notes the addresses of its stack. They are encoded here, not
//! there, so that a binary without symbols has a profile too: `docs/decisions/cpu-profiles.md`.
//!
//! One profile at a time, since a process has one such timer.

#[cfg(target_os = "linux")]
mod encode;
#[cfg(target_os = "linux")]
mod mappings;
#[cfg(target_os = "linux")]
mod sampler;
#[cfg(target_os = "linux")]
mod samples;

use std::time::Duration;

use bytes::Bytes;
#[cfg(target_os = "linux")]
use tokio::sync::Semaphore;

#[cfg(target_os = "linux")]
use self::sampler::Sampler;
#[cfg(target_os = "linux")]
use crate::tasks::blocking::spawn_blocking;

/// Why there is no profile.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// One is being recorded.
    #[error("a profile is being recorded; try again when it has ended")]
    Busy,
    /// The operating system is not Linux.
    #[error("CPU profiles need Linux")]
    Unsupported,
    /// The system refuses the timer, the signal or a temporary file.
    #[error("the profile cannot be recorded: {0}")]
    Failed(String),
}

/// Records for `length`, `frequency` samples for each second of CPU time. Returns a gzip member
/// with a message of pprof's `profile.proto`. If the future is dropped, the recording ends.
#[cfg(target_os = "linux")]
pub async fn record(length: Duration, frequency: u32) -> Result<Bytes, ProfileError> {
    let _turn = TURN.try_acquire().map_err(|_| ProfileError::Busy)?;
    let sampler = spawn_blocking(move || Sampler::start(frequency)).await.map_err(failed)?;
    let sampler = sampler.map_err(|error| match error {
        pprof::Error::Running => ProfileError::Busy,
        error => failed(error),
    })?;
    tokio::time::sleep(length).await;
    let ending = spawn_blocking(move || {
        let samples = sampler.finish().map_err(failed)?;
        encode::gzip(&samples).map_err(failed)
    });
    ending.await.map_err(failed)?
}

#[cfg(target_os = "linux")]
fn failed(error: impl std::fmt::Display) -> ProfileError {
    ProfileError::Failed(error.to_string())
}

/// Fails: the timer and the signal are those of Linux.
#[cfg(not(target_os = "linux"))]
pub async fn record(_length: Duration, _frequency: u32) -> Result<Bytes, ProfileError> {
    std::future::ready(Err(ProfileError::Unsupported)).await
}

/// The memory that the first profile of a process takes, as measured, and some more.
pub const MEMORY_BYTES: u64 = 256 << 20;

/// One profile at a time.
#[cfg(target_os = "linux")]
static TURN: Semaphore = Semaphore::const_new(1);

#[cfg(all(test, target_os = "linux", not(feature = "simulation")))]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_busy_function_is_in_the_profile_and_a_second_profile_is_refused() {
        let recording = tokio::spawn(record(Duration::from_secs(1), 99));
        while TURN.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(record(Duration::from_secs(1), 99).await, Err(ProfileError::Busy));
        let work = spawn_blocking(move || {
            let mut sum = 0;
            while !recording.is_finished() {
                sum = busy_for_the_profile(sum);
            }
            (recording, sum)
        });
        let (recording, _) = work.await.unwrap();
        let profile = encode::tests::parse(&recording.await.unwrap().unwrap());
        assert!(!profile.sample.is_empty() && !profile.mapping.is_empty());
        let names = &profile.string_table;
        assert!(names.iter().any(|name| name.contains("busy_for_the_profile")), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("perf_signal_handler")), "{names:?}");
    }

    #[inline(never)]
    fn busy_for_the_profile(from: u64) -> u64 {
        (0..100_000).fold(from, |sum, number| std::hint::black_box(sum ^ (sum << 7) ^ number))
    }
}
