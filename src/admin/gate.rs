//! How many responses with details are made at once.
//!
//! One reads all metrics and asks all caches, which takes some milliseconds of a processor with
//! hundreds of caches. So it is made on a blocking thread, where no client's request waits for it,
//! and at most four are: pages left open never take the processors from clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::tasks::spawn_blocking;

/// Lets a few pieces of work run at once, each on a blocking thread.
#[derive(Debug)]
pub(super) struct DetailGate {
    permits: Arc<Semaphore>,
    wait: Duration,
}

impl Default for DetailGate {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(DETAILS_MAX)), wait: WAIT }
    }
}

impl DetailGate {
    /// Runs `work`. Returns `None` if too much runs for a while, or if the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.wait, permit).await.ok()?.ok()?;
        let working = spawn_blocking(move || {
            // Work whose client is gone holds its permit too.
            let _permit = permit;
            work()
        });
        working.await.ok()
    }
}

/// A page asks for six kinds at once; two of them wait.
const DETAILS_MAX: usize = 4;
/// A page gives up after four seconds.
const WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_fifth_one_is_not_started() {
        let gate = Arc::new(DetailGate { wait: Duration::ZERO, ..DetailGate::default() });
        let (started, mut starts) = tokio::sync::mpsc::channel(DETAILS_MAX);
        let mut releases = Vec::new();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..DETAILS_MAX {
            let (release, released) = mpsc::channel::<()>();
            let (gate, started) = (Arc::clone(&gate), started.clone());
            releases.push(release);
            running.spawn(async move {
                let work = move || {
                    started.blocking_send(()).unwrap();
                    released.recv().unwrap_err();
                };
                gate.run(work).await
            });
            starts.recv().await.unwrap();
        }
        assert_eq!(gate.run(|| ()).await, None);
        drop(releases);
        while let Some(done) = running.join_next().await {
            assert_eq!(done.unwrap(), Some(()));
        }
        assert_eq!(gate.run(|| 7).await, Some(7));
    }
}
