//! What is known of tokens, by keyed hash: the users of good ones, and apart from these, bounded on its own, which were refused or not
//! judged a moment ago.
//!
//! The times that count are in the values; moka's own only free memory. `Instant`s do not move while a machine sleeps, so a token's own expiry is
//! looked at by the system's clock, too.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use moka::future::Cache;
use tokio::time::Instant;

use crate::auth::user::{Credential, Identity, User};

/// See the module.
#[derive(Debug)]
pub(super) struct Known {
    identities: Cache<TokenKey, Arc<Reviewed>>,
    failures: Cache<TokenKey, Failure>,
    /// Those that were good a while ago. It tells in whose turn they are asked about again, and nothing else.
    good: Cache<TokenKey, ()>,
    ttl: Duration,
    failure_ttl: Duration,
    stale_grace: Duration,
}

/// Stands for a token: a keyed hash, so that neither memory nor timing tells the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenKey([u8; 32]);

/// An authenticated token.
#[derive(Debug)]
pub(super) struct Reviewed {
    user: Arc<User>,
    not_after: Option<SystemTime>,
    /// Until when the token may be believed in at all, by its own word.
    ends: Option<Instant>,
    fresh_until: Option<Instant>,
    stale_until: Option<Instant>,
}

/// A token that says of itself that it is over.
#[derive(Debug)]
pub(super) struct Expired;

/// A token that is not good, or not known to be.
#[derive(Clone, Copy, Debug)]
struct Failure {
    until: Instant,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Refused,
    Unanswered { away: bool },
}

/// What is known of a token.
#[derive(Debug)]
pub(super) enum Found {
    /// Good.
    Fresh(Arc<Reviewed>),
    /// Wrong.
    Refused,
    /// It was asked about a moment ago, in vain; `away` if since the upstream was.
    Unanswered { away: bool },
    /// Nothing, or nothing that is still to be believed.
    Nothing,
}

impl TokenKey {
    /// Of a token.
    pub(super) fn of(key: &hmac::Key, token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(hmac::sign(key, token).as_ref());
        Self(hash)
    }
}

impl Reviewed {
    /// Of a token that was just authenticated.
    pub(super) fn new(user: User, not_after: Option<SystemTime>) -> Result<Self, Expired> {
        let ends = match not_after {
            None => None,
            Some(end) => {
                let left = end.duration_since(SystemTime::now()).map_err(|_| Expired)?;
                Instant::now().checked_add(left)
            }
        };
        Ok(Self { user: Arc::new(user), not_after, ends, fresh_until: None, stale_until: None })
    }

    /// Its user.
    pub(super) fn identity(&self, stale: bool) -> Identity {
        Identity {
            user: self.user.clone(),
            credential: Credential::Token,
            not_after: self.not_after,
            stale,
        }
    }

    /// Whether it may be believed until then.
    fn is_good(&self, until: Option<Instant>) -> bool {
        until.is_some_and(|until| Instant::now() < until)
            && self.not_after.is_none_or(|end| SystemTime::now() < end)
    }

    fn bytes(&self) -> u32 {
        let text = |text: &String| size_of::<String>() + text.len();
        let User { name, uid, groups, extra, .. } = &*self.user;
        let extra = extra.iter();
        let bytes = ENTRY_BYTES
            + name.len()
            + uid.len()
            + groups.iter().map(text).sum::<usize>()
            + extra
                .map(|(key, values)| text(key) + values.iter().map(text).sum::<usize>())
                .sum::<usize>();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl Known {
    /// With the lives of good and of refused tokens, and how long a good one may be used beyond that.
    pub(super) fn new(ttl: Duration, failure_ttl: Duration, stale_grace: Duration) -> Self {
        let kept = |life: Duration| life.min(KEPT_MAX);
        Self {
            identities: Cache::builder()
                .name("token-identities")
                .max_capacity(IDENTITIES_BYTES_MAX)
                .weigher(|_, reviewed: &Arc<Reviewed>| reviewed.bytes())
                .time_to_live(kept(ttl.saturating_add(stale_grace)))
                .build(),
            failures: Cache::builder()
                .name("token-failures")
                .max_capacity(FAILURES_MAX)
                // Those that were not answered are kept here, too, for a second.
                .time_to_live(kept(failure_ttl.max(Duration::from_secs(1))))
                .build(),
            good: Cache::builder()
                .name("token-good")
                .max_capacity(GOOD_MAX)
                .time_to_idle(GOOD_FOR)
                .build(),
            ttl,
            failure_ttl,
            stale_grace,
        }
    }

    /// What is known of a token.
    pub(super) async fn find(&self, key: &TokenKey) -> Found {
        if let Some(reviewed) = self.identities.get(key).await
            && reviewed.is_good(reviewed.fresh_until)
        {
            return Found::Fresh(reviewed);
        }
        match self.failures.get(key).await {
            Some(failure) if Instant::now() < failure.until => match failure.what {
                What::Refused => Found::Refused,
                What::Unanswered { away } => Found::Unanswered { away },
            },
            _ => Found::Nothing,
        }
    }

    /// Whether it was good not long ago.
    pub(super) async fn was_good(&self, key: &TokenKey) -> bool {
        self.good.get(key).await.is_some()
    }

    /// An answer that has expired, but may be used while the upstream is away.
    pub(super) async fn stale(&self, key: &TokenKey) -> Option<Arc<Reviewed>> {
        let reviewed = self.identities.get(key).await?;
        reviewed.is_good(reviewed.stale_until).then_some(reviewed)
    }

    /// The upstream, `asked` then, said whose it is.
    pub(super) async fn authenticated(
        &self,
        key: TokenKey,
        mut reviewed: Reviewed,
        asked: Instant,
    ) -> Arc<Reviewed> {
        let until = |life: Duration| {
            let until = asked.checked_add(life)?;
            Some(reviewed.ends.map_or(until, |ends| ends.min(until)))
        };
        let (fresh, stale) = (until(self.ttl), until(self.ttl.saturating_add(self.stale_grace)));
        reviewed.fresh_until = fresh;
        reviewed.stale_until = stale;
        let reviewed = Arc::new(reviewed);
        self.identities.insert(key, reviewed.clone()).await;
        self.good.insert(key, ()).await;
        self.failures.invalidate(&key).await;
        reviewed
    }

    /// The upstream, `asked` then, said that it is nobody's.
    pub(super) async fn refused(&self, key: TokenKey, asked: Instant) {
        let Some(until) = asked.checked_add(self.failure_ttl) else { return };
        // Once refused it is never good again, even with the upstream away.
        self.identities.invalidate(&key).await;
        self.good.invalidate(&key).await;
        self.failures.insert(key, Failure { until, what: What::Refused }).await;
    }

    /// The upstream said nothing; it is not to be asked for `pause`.
    pub(super) async fn unanswered(&self, key: TokenKey, away: bool, pause: Duration) {
        let failure = Failure { until: Instant::now() + pause, what: What::Unanswered { away } };
        self.failures.insert(key, failure).await;
    }

    /// About how many good ones and failures there are, and what the good ones weigh in bytes.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (
            self.identities.entry_count(),
            self.failures.entry_count(),
            self.identities.weighted_size(),
        )
    }

    /// Does the housekeeping that is due, so that the counts are right.
    #[cfg(test)]
    pub(super) async fn tidy(&self) {
        self.identities.run_pending_tasks().await;
        self.failures.run_pending_tasks().await;
    }
}

/// The most that users of good tokens weigh together; the rarely used go first. 131,072 tokens without groups, some 64,000 of service accounts.
pub(super) const IDENTITIES_BYTES_MAX: u64 = 64 << 20;
/// What an entry weighs besides its user's texts: the key, the user, moka's own.
const ENTRY_BYTES: usize = 512;
/// Refused tokens that are remembered, of some 256 bytes each (4 MiB). Whoever sends more different ones has each of them reviewed.
pub(super) const FAILURES_MAX: u64 = 16 << 10;
/// Tokens that were good, of some 200 bytes each (13 MiB): more than Weir has users at once.
const GOOD_MAX: u64 = 64 << 10;
/// Since they were last asked about: a controller that asks every few minutes is known.
const GOOD_FOR: Duration = Duration::from_secs(900);
/// moka does not take any time; nobody means to believe a token for longer.
const KEPT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
