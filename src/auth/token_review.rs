//! TokenReviews: asks the upstream which user a token belongs to (`docs/semantics.md` §12.2).
//!
//! An authenticated token is trusted for `token_ttl`, and never beyond its own expiry. A refused
//! token is refused for `token_failure_ttl`. The cache knows tokens only by a keyed hash
//! ([`cache`]). A deleted service account's token is therefore accepted for at most `token_ttl`,
//! and a flood of bad tokens evicts no good one, because the two are cached separately.
//!
//! Concurrent requests with the same unknown token share one review. It runs in its own task, so
//! that a cancelled request does not cancel it for the others. The number of running and waiting
//! reviews is bounded, in total and for one client address ([`admission`]). Cached tokens skip
//! admission. Recently good tokens and open watches have their own limits.
//!
//! If a review fails, the token is neither accepted nor refused
//! ([`AuthenticationError::Unavailable`]): the request is forwarded with its token, and the
//! upstream decides. The failure is remembered for [`BACKOFF`], so that not every request adds to
//! the load of a failing upstream. It always applies to this token, and to all tokens if the token
//! cannot be the cause (no connection, a missing permission, too many requests). Otherwise one
//! token that makes the upstream fail would disable reviews of the others.
//!
//! If the upstream is down (not if it rejects Weir), an expired result is used for `stale_grace`
//! more and marked as stale.
//!
//! Memory, at most: [`cache::IDENTITIES_BYTES_MAX`] (64 MiB) of users; about 17 MiB of hashes of
//! refused and of recently good tokens; [`admission::SLOTS_MAX`] tokens under review, of at most
//! [`TOKEN_BYTES_MAX`] each (32 MiB together), and the same again for tokens that were recently
//! good, and for open watches, which hold their tokens anyway; and of each connection with an
//! accepted token that token, at most 4 KiB ([`memo`]).
//!
//! Lock order: `in_flight`, then the lock of the admission. The lock of [`ReviewBackoff`] is never
//! held together with another one. No lock is held across an await.

mod admission;
mod answer;
mod cache;
mod failure;
mod forwarded;
mod memo;
pub mod metrics;
mod standing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::auth::authenticator::AuthenticationError;
use crate::auth::bearer::BearerToken;
use crate::auth::review_backoff::{BACKOFF, ReviewBackoff};
pub(crate) use crate::auth::token_review::admission::FlowKey;
use crate::auth::token_review::admission::{Admission, QueueFull, QueueSlot};
use crate::auth::token_review::answer::ReviewStatus;
use crate::auth::token_review::cache::{CachedIdentity, Lookup, TokenCache, TokenKey, Unanswered};
pub(crate) use crate::auth::token_review::memo::TokenMemo;
use crate::auth::token_review::metrics::{
    LookupResult, ReviewLimit, ReviewResult, TokenReviewMetrics,
};
pub(crate) use crate::auth::token_review::standing::TokenStanding;
use crate::auth::user::{Identity, random_key};
use crate::config::AuthenticationConfig;
use crate::tasks::single_flight::{InFlightGuard, SharedOutcome, SingleFlight};
use crate::upstream::Upstream;
use crate::upstream::availability::Availability;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// Reviews tokens and caches the results. Cheap to clone.
#[derive(Clone)]
pub struct TokenReviews {
    inner: Arc<Inner>,
}

struct Inner {
    post: PostReview,
    availability: Availability,
    audiences: Vec<String>,
    key: hmac::Key,
    cache: Arc<TokenCache>,
    in_flight: SingleFlight<TokenKey, TokenVerdict>,
    admission: Arc<Admission>,
    backoff: ReviewBackoff<TokenKey>,
    /// How often the upstream had come back when `backoff` was last asked.
    returns: AtomicU64,
    metrics: TokenReviewMetrics,
}

/// Posts a review and reads the body of its response.
type PostReview =
    Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, UpstreamError>> + Send + Sync>;

/// The result of a review for the requests that wait for it.
#[derive(Clone, Debug)]
enum TokenVerdict {
    Authenticated(Arc<CachedIdentity>),
    Refused,
    /// The review failed or was not sent.
    Unanswered {
        /// Whether the cause is that the upstream is down.
        is_down: bool,
    },
}

impl TokenReviews {
    /// Creates the reviews, which `upstream` sends with Weir's own identity. `stale_grace` is
    /// `staleDecisionGrace`.
    pub fn new(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        upstream: Upstream,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let availability = upstream.availability().clone();
        let post = move |body| -> BoxFuture<'static, _> {
            let upstream = upstream.clone();
            Box::pin(async move { post_review(&upstream, PATH, body, RESPONSE_BYTES_MAX).await })
        };
        Self::with_post(config, stale_grace, Arc::new(post), availability, metrics)
    }

    fn with_post(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        post: PostReview,
        availability: Availability,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let inner = Inner {
            post,
            availability,
            audiences: config.tokens.audiences.clone(),
            key: random_key(),
            cache: Arc::new(TokenCache::new(
                config.tokens.ttl,
                config.tokens.failure_ttl,
                stale_grace,
            )),
            in_flight: SingleFlight::default(),
            admission: Arc::default(),
            backoff: ReviewBackoff::default(),
            returns: AtomicU64::new(0),
            metrics,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the identity of the token's user. `flow` is the client that the request counts for
    /// if the token is not in the cache. `memo` is that of its connection.
    ///
    /// Takes at most about 12 s: the wait for a permit, and the review.
    pub(crate) async fn review(
        &self,
        token: &BearerToken,
        flow: FlowKey,
        memo: &TokenMemo,
    ) -> Result<Identity, AuthenticationError> {
        let inner = &self.inner;
        if token.as_bytes().len() > TOKEN_BYTES_MAX {
            inner.metrics.limited(ReviewLimit::TokenSize);
            return Err(AuthenticationError::Unavailable);
        }
        let key = memo.hash(&inner.key, token.as_bytes());
        match inner.lookup(&key).await {
            Lookup::Fresh(identity) => {
                inner.metrics.looked_up(LookupResult::Authenticated);
                memo.accept(key, token.as_bytes());
                return Ok(identity.to_identity(false));
            }
            Lookup::Refused => {
                inner.metrics.looked_up(LookupResult::Refused);
                return Err(AuthenticationError::Unauthorized);
            }
            Lookup::Unanswered(Unanswered { is_down, .. }) => {
                inner.metrics.looked_up(LookupResult::Unavailable);
                return inner.resolve(&key, TokenVerdict::Unanswered { is_down }).await;
            }
            Lookup::Miss => inner.metrics.looked_up(LookupResult::Miss),
        }
        let flow = match flow {
            FlowKey::Address(_) | FlowKey::Socket
                if inner.cache.recently_good(&key).await.is_some() =>
            {
                FlowKey::KnownToken
            }
            flow => flow,
        };
        let outcome = match Inner::join_or_start(inner, key, token, flow) {
            Ok(outcome) => outcome,
            Err(full) => {
                let resolved = inner.resolve(&key, inner.not_reviewed()).await;
                return resolved.map_err(|error| match full {
                    // If the request were forwarded, the upstream would have to review the token,
                    // which is the load that this limit keeps from it.
                    QueueFull::Flow => AuthenticationError::TooManyRequests,
                    QueueFull::Total => error,
                });
            }
        };
        let verdict = tokio::select! {
            biased;
            () = inner.availability.until_away() => TokenVerdict::Unanswered { is_down: true },
            verdict = outcome.wait() => {
                verdict.unwrap_or(TokenVerdict::Unanswered { is_down: false })
            }
        };
        inner.resolve(&key, verdict).await
    }
}

impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews").finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the outcome of this token's review. Starts a review if none is in flight, unless
    /// too many are waiting already.
    fn join_or_start(
        self: &Arc<Self>,
        key: TokenKey,
        token: &BearerToken,
        flow: FlowKey,
    ) -> Result<SharedOutcome<TokenVerdict>, QueueFull> {
        let enqueue = || {
            self.admission.enqueue(flow).inspect_err(|full| {
                self.metrics.limited(match full {
                    QueueFull::Flow => ReviewLimit::Address,
                    QueueFull::Total => ReviewLimit::Total,
                });
            })
        };
        let (outcome, run) = self.in_flight.try_join(&key, enqueue)?;
        if let Some((guard, slot)) = run {
            tokio::spawn(Arc::clone(self).run(guard, key, token.clone(), slot));
        }
        Ok(outcome)
    }

    /// Looks a token up. A failure counts no longer once the upstream is back.
    async fn lookup(&self, key: &TokenKey) -> Lookup {
        let cached = self.cache.get(key).await;
        if let Lookup::Unanswered(Unanswered { is_down: true, returns }) = cached
            && returns != self.availability.returns()
        {
            return Lookup::Miss;
        }
        cached
    }

    /// Runs one review: waits for its permit, sends it, and delivers the verdict.
    async fn run(
        self: Arc<Self>,
        mut guard: InFlightGuard<TokenKey, TokenVerdict>,
        key: TokenKey,
        token: BearerToken,
        slot: QueueSlot,
    ) {
        let permit = tokio::select! {
            permit = tokio::time::timeout(WAIT_MAX, slot.acquire()) => permit,
            // A review that still waits is dropped with its last request. A review that was sent
            // runs to its end: a cancelled request costs the upstream more than a completed one.
            () = guard.until_abandoned() => return,
        };
        let verdict = match permit {
            // Another review of this token may have ended just before this one was created, or
            // while it waited.
            Ok(_permit) => match self.lookup(&key).await {
                Lookup::Fresh(identity) => TokenVerdict::Authenticated(identity),
                Lookup::Refused => TokenVerdict::Refused,
                Lookup::Unanswered(Unanswered { is_down, .. }) => {
                    TokenVerdict::Unanswered { is_down }
                }
                Lookup::Miss if self.is_paused() => self.not_reviewed(),
                Lookup::Miss => self.send_review(key, &token).await,
            },
            Err(_) => {
                self.metrics.limited(ReviewLimit::WaitTime);
                self.not_reviewed()
            }
        };
        self.metrics.set_cached(self.cache.counts());
        guard.complete(verdict);
    }

    /// Turns a verdict into the result for a request. Uses an expired identity if the upstream is
    /// down.
    async fn resolve(
        &self,
        key: &TokenKey,
        verdict: TokenVerdict,
    ) -> Result<Identity, AuthenticationError> {
        match verdict {
            TokenVerdict::Authenticated(identity) => Ok(identity.to_identity(false)),
            TokenVerdict::Refused => Err(AuthenticationError::Unauthorized),
            TokenVerdict::Unanswered { is_down } => {
                match self.cache.get_stale(key).await.filter(|_| is_down) {
                    Some(identity) => {
                        self.metrics.reviewed(ReviewResult::Stale);
                        Ok(identity.to_identity(true))
                    }
                    None => Err(AuthenticationError::Unavailable),
                }
            }
        }
    }

    /// Sends the review and caches its result.
    async fn send_review(&self, key: TokenKey, token: &BearerToken) -> TokenVerdict {
        let (requested_at, returns) = (Instant::now(), self.availability.returns());
        let _in_flight = self.metrics.in_flight();
        let body = (self.post)(answer::request(token.as_str(), &self.audiences)).await;
        self.metrics.took(requested_at.elapsed());
        let status = body.and_then(|body| answer::parse(&body, &self.audiences));
        match status {
            Ok(ReviewStatus::Authenticated(user)) => {
                self.answered();
                self.metrics.reviewed(ReviewResult::Authenticated);
                match CachedIdentity::new(user, answer::expiry(token.as_str())) {
                    Ok(identity) => TokenVerdict::Authenticated(
                        self.cache.insert_authenticated(key, identity, requested_at).await,
                    ),
                    // The upstream's clock is behind, or it is lenient (a minute for service
                    // accounts). Only the upstream may accept such a token.
                    Err(cache::Expired) => {
                        let unanswered = Unanswered { is_down: false, returns };
                        self.cache.insert_unanswered(key, unanswered, BACKOFF).await;
                        TokenVerdict::Unanswered { is_down: false }
                    }
                }
            }
            Ok(ReviewStatus::Refused) => {
                self.answered();
                self.metrics.reviewed(ReviewResult::Refused);
                self.cache.insert_refused(key, requested_at).await;
                TokenVerdict::Refused
            }
            Err(error) => {
                self.metrics.reviewed(ReviewResult::Unavailable);
                let is_down = self.failed(key, &error, returns);
                let unanswered = Unanswered { is_down, returns };
                self.cache.insert_unanswered(key, unanswered, BACKOFF).await;
                TokenVerdict::Unanswered { is_down }
            }
        }
    }

    /// Whether no review may be sent now. A pause ends when the upstream comes back.
    fn is_paused(&self) -> bool {
        let returns = self.availability.returns();
        if self.returns.swap(returns, Ordering::Relaxed) != returns {
            self.backoff.resume();
        }
        self.backoff.is_paused()
    }

    /// Notes that the upstream answered a review.
    fn answered(&self) {
        if self.backoff.answered_and_resume() {
            tracing::info!("the upstream answers token reviews again");
        }
    }

    /// Notes that a review failed. Returns whether the upstream was down for it.
    fn failed(&self, key: TokenKey, error: &UpstreamError, returns: u64) -> bool {
        let failure = failure::backoff(error);
        if failure.outage.is_some() && returns != self.availability.returns() {
            // The upstream is back since.
            return true;
        }
        if self.backoff.failed(key, failure) {
            failure::log(error);
        }
        failure.outage.is_some()
    }

    /// Returns the verdict on a token whose review is not sent because of a limit or a pause.
    fn not_reviewed(&self) -> TokenVerdict {
        self.metrics.reviewed(ReviewResult::Unavailable);
        TokenVerdict::Unanswered { is_down: self.backoff.is_down() }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Service account tokens have about 1 KiB, tokens of identity providers with many groups about 10
/// KiB. A longer token is left to the upstream, whose limit is that of a request's headers (1 MiB).
const TOKEN_BYTES_MAX: usize = 32 << 10;
/// The response repeats the token (escaped, at worst six times as long) and lists at most about a
/// thousand groups.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// The longest wait of a review for its permit. At a few milliseconds a review,
/// [`admission::SLOTS_MAX`] reviews have run by then.
const WAIT_MAX: Duration = Duration::from_secs(2);
