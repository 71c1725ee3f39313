//! Whether the upstream knows shard selectors, as it last answered.
//!
//! A forwarded read is always right, so that a "no" is believed for longer: behind one address,
//! API servers with the feature and without it may answer in turn. A "yes" that is no longer true
//! does little harm: clients get the shard that they asked for, and no more.
//!
//! One caller at a time asks, and the others share the answer.
//!
//! Lock: that of `answer`, held for a few instructions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tasks::single_permit::SinglePermit;
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
    attempts: SinglePermit,
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

    /// Returns the last answer if it is valid, and otherwise that of `ask`. If that fails, the last
    /// answer is given once more, and nobody asks again for a while.
    pub(crate) async fn learn(
        &self,
        ask: impl Future<Output = Result<Option<ShardSupport>, UpstreamError>>,
    ) -> Option<ShardSupport> {
        if let Some(support) = self.valid() {
            return support;
        }
        let _permit = self.attempts.acquire().await;
        if let Some(support) = self.valid() {
            return support;
        }
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
            return None;
        }
        if support != self.last_answer() {
            let is_known = support.is_some();
            tracing::info!(is_known, "whether the upstream has shard selectors");
        }
        *self.answer.lock() = Some(Answer { support, expires: Instant::now() + valid_for });
        support
    }

    /// Doubts the answer, because the version of the upstream changed.
    pub(crate) fn expire(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = self.answer.lock().as_mut() {
            answer.expires = Instant::now();
        }
    }

    fn valid(&self) -> Option<Option<ShardSupport>> {
        let answer = (*self.answer.lock())?;
        (Instant::now() < answer.expires).then_some(answer.support)
    }
}

/// How long an attempt may take. The requests that wait for it are forwarded then.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the feature is believed to be there. The upstream pays for a page of one namespace a
/// minute, while clients ask for shards.
const PRESENT_FOR: Duration = Duration::from_secs(60);
/// How long the feature is believed to be missing, where an API server showed that. Reads are
/// forwarded meanwhile.
const ABSENT_FOR: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const YES: Option<ShardSupport> = Some(ShardSupport { counts_remaining: true });

    #[tokio::test(start_paused = true)]
    async fn a_no_is_believed_for_longer_than_a_yes() {
        let known = KnownShardSupport::default();
        assert_eq!(known.learn(ready(Ok(YES))).await, YES);
        let unasked = std::future::pending;
        assert_eq!(known.learn(unasked()).await, YES);
        tokio::time::advance(PRESENT_FOR).await;
        assert_eq!(known.learn(ready(Ok(None))).await, None);
        tokio::time::advance(ABSENT_FOR - Duration::from_secs(1)).await;
        assert_eq!(known.learn(unasked()).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(known.learn(ready(Ok(YES))).await, YES);
        known.expire();
        assert_eq!(known.last_answer(), YES);
        assert_eq!(known.learn(ready(Ok(None))).await, None, "another version");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_changes_nothing_and_is_not_repeated_at_once() {
        let known = KnownShardSupport::default();
        let failed = || ready(Err(UpstreamError::Lost("reset".to_owned())));
        assert_eq!(known.learn(failed()).await, None);
        assert_eq!(known.learn(ready(Ok(YES))).await, None, "too early");
        tokio::time::advance(PRESENT_FOR).await;
        assert_eq!(known.learn(ready(Ok(YES))).await, YES);
        tokio::time::advance(PRESENT_FOR).await;
        assert_eq!(known.learn(std::future::pending()).await, YES, "no answer in time");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_from_before_an_upgrade_proves_nothing() {
        let known = KnownShardSupport::default();
        let asked = async {
            known.expire();
            Ok(YES)
        };
        assert_eq!(known.learn(asked).await, None);
        assert_eq!(known.learn(ready(Ok(YES))).await, YES);
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_cost_one_request() {
        let known = KnownShardSupport::default();
        let asked = AtomicU64::new(0);
        let ask = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(YES)
        };
        let answers = futures_util::future::join_all((0..64).map(|_| known.learn(ask()))).await;
        assert!(answers.iter().all(|answer| *answer == YES));
        assert_eq!(asked.into_inner(), 1);
    }
}
