//! Whether the upstream knows shard selectors, as it last answered.
//!
//! A forwarded read is always right, so that a "no" is believed for longer: behind one address,
//! API servers with the feature and without it may answer in turn. A "yes" that is no longer true
//! does little harm: clients get the shard that they asked for, and no more.
//!
//! A task asks, one at a time. Reads wait briefly for the first answer; while a later one is on its
//! way, they go on by the last.
//!
//! Lock order: the map of the [`SingleFlight`], then `answer`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::tasks::single_flight::{InFlightGuard, SingleFlight};
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::shard_support::ShardSupport;

/// The last answer of the upstream. At first there is none.
#[derive(Debug, Default)]
pub(crate) struct KnownShardSupport {
    answer: Mutex<Option<Answer>>,
    /// How often the version of the upstream changed. An attempt that began before the last change
    /// proves nothing.
    changes: AtomicU64,
    attempts: SingleFlight<(), ()>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    support: Option<ShardSupport>,
    expires: Instant,
}

impl KnownShardSupport {
    /// Returns the last answer, valid or not.
    pub(crate) fn last_answer(&self) -> Option<ShardSupport> {
        self.answer.lock().and_then(|answer| answer.support)
    }

    /// Waits at most [`WAIT_MAX`] for the first answer. If the last one is not valid, and no task
    /// runs [`Self::learn`], calls `spawn` for one. Cancel safe: the task goes on.
    pub(crate) async fn wait(&self, spawn: impl FnOnce(InFlightGuard<(), ()>)) {
        let is_valid = |answer: Answer| Instant::now() < answer.expires;
        let may_start = || if self.answer.lock().is_some_and(is_valid) { Err(()) } else { Ok(()) };
        let Ok((attempt, run)) = self.attempts.try_join(&(), may_start) else { return };
        if let Some((guard, ())) = run {
            spawn(guard);
        }
        if self.answer.lock().is_none() {
            // After the time-out the read is forwarded.
            let _ended = timeout(WAIT_MAX, attempt.wait()).await;
        }
    }

    /// Learns the answer of `ask`. If that fails, the last answer stays, and nobody asks again for
    /// a while.
    pub(crate) async fn learn(
        &self,
        ask: impl Future<Output = Result<Option<ShardSupport>, UpstreamError>>,
    ) {
        let changes = self.changes.load(Ordering::Relaxed);
        let (support, valid_for) = match with_timeout(ATTEMPT_TIMEOUT, ask).await {
            Ok(None) => (None, ABSENT_FOR),
            Ok(support) => (support, PRESENT_FOR),
            Err(error) => {
                tracing::debug!(%error, "cannot learn whether the upstream has shard selectors");
                (self.last_answer(), PRESENT_FOR)
            }
        };
        if changes != self.changes.load(Ordering::Relaxed) {
            return;
        }
        if support != self.last_answer() {
            let is_known = support.is_some();
            tracing::info!(is_known, "whether the upstream has shard selectors");
        }
        *self.answer.lock() = Some(Answer { support, expires: Instant::now() + valid_for });
    }

    /// Doubts the answer, because the version of the upstream changed.
    pub(crate) fn expire(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = self.answer.lock().as_mut() {
            answer.expires = Instant::now();
        }
    }
}

/// The longest wait of a read. A watch that is forwarded instead costs the upstream one of its own.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long an attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the feature is believed to be there. The upstream pays for a page of one namespace a
/// minute, while clients ask for shards.
const PRESENT_FOR: Duration = Duration::from_secs(60);
/// How long the feature is believed to be missing, where an API server showed that. Reads are
/// forwarded meanwhile.
const ABSENT_FOR: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::*;

    const YES: Option<ShardSupport> = Some(ShardSupport { counts_remaining: true });

    /// Returns whether the support would be asked for.
    fn is_doubted(known: &KnownShardSupport) -> bool {
        let mut is_doubted = false;
        let _waits = known.wait(|_| is_doubted = true).now_or_never();
        is_doubted
    }

    #[tokio::test(start_paused = true)]
    async fn a_no_is_believed_for_longer_than_a_yes() {
        let known = KnownShardSupport::default();
        for (answer, valid_for) in [(YES, PRESENT_FOR), (None, ABSENT_FOR)] {
            assert!(is_doubted(&known));
            known.learn(ready(Ok(answer))).await;
            assert_eq!(known.last_answer(), answer);
            tokio::time::advance(valid_for - Duration::from_secs(1)).await;
            assert!(!is_doubted(&known));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        known.learn(ready(Ok(YES))).await;
        known.expire();
        assert_eq!(known.last_answer(), YES, "until it is learned again");
        assert!(is_doubted(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_changes_nothing_and_is_not_repeated_at_once() {
        let known = KnownShardSupport::default();
        known.learn(ready(Err(UpstreamError::Lost("reset".to_owned())))).await;
        assert!(known.last_answer().is_none() && !is_doubted(&known));
        tokio::time::advance(PRESENT_FOR).await;
        known.learn(ready(Ok(YES))).await;
        known.learn(pending()).await;
        assert!(known.last_answer() == YES && !is_doubted(&known), "no answer in time");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_from_before_an_upgrade_proves_nothing() {
        let known = KnownShardSupport::default();
        let asked = async {
            known.expire();
            Ok(YES)
        };
        known.learn(asked).await;
        assert!(known.last_answer().is_none() && is_doubted(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_an_attempt_and_wait_briefly_for_the_first_answer_alone() {
        let known = Arc::new(KnownShardSupport::default());
        let asked = AtomicU64::new(0);
        let wait = |takes| {
            let (learning, asked) = (Arc::clone(&known), &asked);
            known.wait(move |guard| {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    tokio::time::sleep(takes).await;
                    learning.learn(ready(Ok(YES))).await;
                    guard.complete(());
                });
            })
        };
        wait(WAIT_MAX * 3 / 2).await;
        assert_eq!(known.last_answer(), None, "it took too long");
        futures_util::future::join_all((0..64).map(|_| wait(Duration::ZERO))).await;
        assert_eq!((known.last_answer(), asked.load(Ordering::Relaxed)), (YES, 1));
        tokio::time::advance(PRESENT_FOR).await;
        assert!(wait(WAIT_MAX).now_or_never().is_some(), "the last answer is good meanwhile");
        assert_eq!((known.last_answer(), asked.load(Ordering::Relaxed)), (YES, 2));
    }
}
