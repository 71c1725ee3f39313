//! TokenReviews: asks the upstream which user a token belongs to (`docs/semantics.md` §12.2).
//!
//! An authenticated token is trusted for `authentication.tokens.ttl`, and never beyond its own
//! expiry. A refused token is refused for ten seconds. The cache knows tokens only by a keyed hash
//! ([`cache`]). A deleted service account's token is therefore accepted for at most the `ttl`, and
//! a flood of bad tokens evicts no good one, because the two are cached separately.
//!
//! Reviews are shared, bounded in total and for one client address, and given up as in
//! [`reviewer`](super::reviewer). A review that still waits is dropped with its last request.
//! Cached tokens skip admission. Recently good tokens and open watches have their own limits
//! ([`flow_key`]).
//!
//! If a review fails, the token is neither accepted nor refused
//! ([`AuthenticationError::Unavailable`]): the request is forwarded with its token, and the
//! upstream decides. The failure is remembered for a second, so that not every request adds to
//! the load of a failing upstream. It always applies to this token, and to all tokens if the token
//! cannot be the cause (no connection, a missing permission, too many requests). Otherwise one
//! token that makes the upstream fail would disable reviews of the others.
//!
//! If the upstream is down (not if it rejects Weir), an expired result is used for `stale_grace`
//! more and marked as stale.
//!
//! Memory, at most: [`cache::GOOD_BYTES_MAX`] (64 MiB) of good tokens; about 4 MiB of hashes of
//! refused ones; [`flow_key::SLOTS_MAX`] tokens under review, of at most [`TOKEN_BYTES_MAX`] each
//! (32 MiB together), and the same again for tokens that were recently good, and for open watches,
//! which hold their tokens anyway; and of each connection with an accepted token that token, at
//! most 4 KiB ([`memo`]).

mod answer;
pub(in crate::auth) mod cache;
mod flow_key;
pub(crate) mod forwarded;
pub(in crate::auth) mod memo;
pub mod metrics;

/// How long a rejected token is cached: as long as delegated API servers do.
const FAILURE_TTL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use tokio::time::Instant;

use crate::auth::authenticator::AuthenticationError;
use crate::auth::bearer::BearerToken;
#[cfg(test)]
use crate::auth::reviewer::PostReview;
use crate::auth::reviewer::admission::QueueFull;
use crate::auth::reviewer::{Reviewer, WhenAbandoned};
use crate::auth::token_review::answer::ReviewStatus;
use crate::auth::token_review::cache::{CachedIdentity, Lookup, TokenCache, TokenKey};
pub(crate) use crate::auth::token_review::flow_key::FlowKey;
pub(crate) use crate::auth::token_review::memo::TokenMemo;
use crate::auth::token_review::metrics::{
    LookupResult, ReviewLimit, ReviewResult, TokenReviewMetrics,
};
use crate::auth::user::{Identity, random_key};
use crate::config::AuthenticationConfig;
use crate::tasks::single_flight::SharedOutcome;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::Upstream;
#[cfg(test)]
use crate::upstream::availability::Availability;

/// Reviews tokens and caches the results. Cheap to clone.
#[derive(Clone)]
pub struct TokenReviews {
    inner: Arc<Inner>,
}

struct Inner {
    reviewer: Reviewer<TokenKey, TokenVerdict, FlowKey>,
    audiences: Vec<String>,
    key: hmac::Key,
    cache: Arc<TokenCache>,
    metrics: TokenReviewMetrics,
}

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
        let reviewer = Reviewer::new(upstream, PATH, flow_key::SLOTS_MAX, |_| FAILED_KEY_BYTES);
        Self::with_reviewer(config, (FAILURE_TTL, stale_grace), reviewer, metrics)
    }

    fn with_reviewer(
        config: &AuthenticationConfig,
        (failure_ttl, stale_grace): (Duration, Duration),
        reviewer: Reviewer<TokenKey, TokenVerdict, FlowKey>,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let tokens = &config.tokens;
        let cache = TokenCache::new(tokens.ttl, failure_ttl, stale_grace);
        let (audiences, key) = (tokens.audiences.clone(), random_key());
        let inner = Inner { reviewer, audiences, key, cache: Arc::new(cache), metrics };
        Self { inner: Arc::new(inner) }
    }

    #[cfg(test)]
    fn with_post(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        post: PostReview,
        availability: Availability,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let reviewer =
            Reviewer::with_post(post, availability, flow_key::SLOTS_MAX, |_| FAILED_KEY_BYTES);
        Self::with_reviewer(config, (tests::FAILURE_TTL, stale_grace), reviewer, metrics)
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
        let key = token.key(&inner.key);
        match inner.lookup(&key) {
            Lookup::Fresh(identity) => {
                inner.metrics.looked_up(LookupResult::Authenticated);
                memo.accept(key, token.as_bytes());
                return Ok(identity.to_identity(false));
            }
            Lookup::Refused => {
                inner.metrics.looked_up(LookupResult::Refused);
                return Err(AuthenticationError::Unauthorized);
            }
            Lookup::Unanswered { is_down } => {
                inner.metrics.looked_up(LookupResult::Unavailable);
                return inner.resolve(&key, TokenVerdict::Unanswered { is_down });
            }
            Lookup::Miss => inner.metrics.looked_up(LookupResult::Miss),
        }
        let flow = match flow {
            FlowKey::Address(_) | FlowKey::Socket if inner.cache.recently_good(&key).is_some() => {
                FlowKey::KnownToken
            }
            flow => flow,
        };
        let outcome = match inner.join(key, token, flow) {
            Ok(outcome) => outcome,
            Err(full) => {
                inner.metrics.limited(match full {
                    QueueFull::Flow => ReviewLimit::Address,
                    QueueFull::Total => ReviewLimit::Total,
                });
                let resolved = inner.resolve(&key, inner.not_reviewed());
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
            () = inner.reviewer.availability.until_away() => TokenVerdict::Unanswered { is_down: true },
            verdict = outcome.wait() => {
                verdict.unwrap_or(TokenVerdict::Unanswered { is_down: false })
            }
        };
        inner.resolve(&key, verdict)
    }
}

crate::api::opaque!(TokenReviews);

impl Inner {
    /// Returns the outcome of this token's review. Starts a review if none is in flight, unless
    /// too many are waiting already.
    fn join(
        self: &Arc<Self>,
        key: TokenKey,
        token: &BearerToken,
        flow: FlowKey,
    ) -> Result<SharedOutcome<TokenVerdict>, QueueFull> {
        let (inner, token) = (Arc::clone(self), token.clone());
        let run = move |is_permitted| async move { inner.run(key, &token, is_permitted).await };
        self.reviewer.join(&key, (flow, flow.limits()), WhenAbandoned::Drop, run)
    }

    /// Looks a token up.
    fn lookup(&self, key: &TokenKey) -> Lookup {
        match self.cache.get(key) {
            Lookup::Miss => match self.reviewer.recent_failure(key) {
                Some(is_down) => Lookup::Unanswered { is_down },
                None => Lookup::Miss,
            },
            cached => cached,
        }
    }

    /// Runs one review, if it has a permit, and returns the verdict.
    async fn run(&self, key: TokenKey, token: &BearerToken, is_permitted: bool) -> TokenVerdict {
        let verdict = if is_permitted {
            // Another review of this token may have ended just before this one was created, or
            // while it waited.
            match self.lookup(&key) {
                Lookup::Fresh(identity) => TokenVerdict::Authenticated(identity),
                Lookup::Refused => TokenVerdict::Refused,
                Lookup::Unanswered { is_down } => TokenVerdict::Unanswered { is_down },
                Lookup::Miss if self.reviewer.is_paused() => self.not_reviewed(),
                Lookup::Miss => self.send_review(key, token).await,
            }
        } else {
            self.metrics.limited(ReviewLimit::WaitTime);
            self.not_reviewed()
        };
        let (good, refused, bytes) = self.cache.counts();
        self.metrics.set_cached((good, refused + self.reviewer.failed_count(), bytes));
        verdict
    }

    /// Turns a verdict into the result for a request. Uses an expired identity if the upstream is
    /// down.
    fn resolve(
        &self,
        key: &TokenKey,
        verdict: TokenVerdict,
    ) -> Result<Identity, AuthenticationError> {
        match verdict {
            TokenVerdict::Authenticated(identity) => Ok(identity.to_identity(false)),
            TokenVerdict::Refused => Err(AuthenticationError::Unauthorized),
            TokenVerdict::Unanswered { is_down } => {
                match self.cache.get_stale(key).filter(|_| is_down) {
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
        let (requested_at, returns) = (Instant::now(), self.reviewer.availability.returns());
        let _in_flight = GaugeGuard::new(self.metrics.in_flight.clone());
        let body = self.reviewer.post(answer::request(token.as_str(), &self.audiences)).await;
        self.metrics.duration.observe(requested_at.elapsed().as_secs_f64());
        let status = body.and_then(|body| answer::parse(&body, &self.audiences));
        match status {
            Ok(ReviewStatus::Authenticated(user)) => {
                self.answered();
                self.metrics.reviewed(ReviewResult::Authenticated);
                match CachedIdentity::new(user, answer::expiry(token.as_str())) {
                    Ok(identity) => TokenVerdict::Authenticated(self.cache.insert_authenticated(
                        key,
                        identity,
                        requested_at,
                    )),
                    // The upstream's clock is behind, or it is lenient (a minute for service
                    // accounts). Only the upstream may accept such a token.
                    Err(cache::Expired) => {
                        self.reviewer.remember_failure(key, false, returns);
                        TokenVerdict::Unanswered { is_down: false }
                    }
                }
            }
            Ok(ReviewStatus::Refused) => {
                self.answered();
                self.metrics.reviewed(ReviewResult::Refused);
                self.cache.insert_refused(key, requested_at);
                TokenVerdict::Refused
            }
            Err(error) => {
                self.metrics.reviewed(ReviewResult::Unavailable);
                let failure = answer::backoff(&error);
                if self.reviewer.failed(key, failure, returns) {
                    answer::log_failure(&error);
                }
                let is_down = failure.outage.is_some();
                self.reviewer.remember_failure(key, is_down, returns);
                TokenVerdict::Unanswered { is_down }
            }
        }
    }

    /// Notes that the upstream answered a review.
    fn answered(&self) {
        if self.reviewer.backoff.answered_and_resume() {
            tracing::info!("the upstream answers token reviews again");
        }
    }

    /// Returns the verdict on a token whose review is not sent because of a limit or a pause.
    fn not_reviewed(&self) -> TokenVerdict {
        self.metrics.reviewed(ReviewResult::Unavailable);
        TokenVerdict::Unanswered { is_down: self.reviewer.backoff.is_down() }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Service account tokens have about 1 KiB, tokens of identity providers with many groups about 10
/// KiB. A longer token is left to the upstream, whose limit is that of a request's headers (1 MiB).
const TOKEN_BYTES_MAX: usize = 32 << 10;
/// The memory of a token whose review failed a moment ago, with moka's overhead.
const FAILED_KEY_BYTES: u32 = 256;
