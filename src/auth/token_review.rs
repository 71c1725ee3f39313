//! TokenReviews: the question to the upstream whose a token is (semantics.md §12.2).
//!
//! A token that was authenticated is believed for `token_ttl`, and never beyond its own expiry; one that was refused is refused for
//! `token_failure_ttl`. Each is known by a keyed hash alone ([`known`]). So a deleted service account's token is good for `token_ttl` at
//! most, and a flood of bad tokens puts no good one out: they are kept apart.
//!
//! Requests that miss with the same token share one review. It runs in a task of its own, so that none of them can end it for the
//! others by going away. How many run and wait, in all and for one client address, is bounded ([`admission`]). Known tokens
//! pass all that by, and open watches have a part of their own.
//!
//! What is not answered is no answer ([`AuthenticationError::Unavailable`]): the request is forwarded with its token, and the upstream
//! judges. It is remembered for [`PAUSE`], so that an upstream in trouble is not asked by each request: for this token always, for all tokens
//! where the trouble is certainly not the token's (no connection, a missing right, too many requests). Otherwise a token
//! that the upstream chokes on would turn off the others.
//!
//! If the upstream is away (not if it refuses Weir), an answer that has expired is used for `stale_grace` more, marked as stale.
//!
//! Memory, at most: [`known::IDENTITIES_BYTES_MAX`] (64 MiB) of users, some 17 MiB of hashes of refused tokens and of those that were good, and
//! [`admission::PLACES_MAX`] tokens that are being asked about, of [`TOKEN_BYTES_MAX`] (32 MiB together, if all were so long, and as many again of known
//! tokens, and of open watches, which hold them anyway).
//!
//! Lock order: `flights`, then that of the admission; that of [`trouble`] alone. None is held over an await.

mod admission;
mod answer;
mod known;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::authenticator::AuthenticationError;
use crate::auth::bearer::BearerToken;
pub(crate) use crate::auth::token_review::admission::Asker;
use crate::auth::token_review::admission::{Admission, Full, Place};
use crate::auth::token_review::answer::Judgement;
use crate::auth::token_review::known::{Found, Known, Reviewed, TokenKey};
use crate::auth::token_review::trouble::{PAUSE, Trouble};
use crate::auth::user::{Identity, random_key};
use crate::config::AuthenticationConfig;
use crate::telemetry::auth_metrics::token_review::{
    Limit, Lookup, ReviewResult, TokenReviewMetrics,
};
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::post_review;

/// Asks about tokens, and remembers. Cheap to clone.
#[derive(Clone)]
pub struct TokenReviews {
    inner: Arc<Inner>,
}

struct Inner {
    ask: Ask,
    audiences: Vec<String>,
    key: hmac::Key,
    known: Known,
    flights: Mutex<HashMap<TokenKey, watch::Sender<Option<Outcome>>>>,
    admission: Arc<Admission>,
    trouble: Trouble,
    metrics: TokenReviewMetrics,
}

/// Posts a review and reads its answer.
type Ask = Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, UpstreamError>> + Send + Sync>;

/// What became of a review.
#[derive(Clone, Debug)]
enum Outcome {
    Authenticated(Arc<Reviewed>),
    Refused,
    /// Nobody knows; `away` if since the upstream is.
    Unanswered {
        away: bool,
    },
}

impl TokenReviews {
    /// Asks by `upstream`, which has Weir's own identity. `stale_grace` is `staleDecisionGrace`.
    pub fn new(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        upstream: Upstream,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let ask = move |body| -> BoxFuture<'static, _> {
            let upstream = upstream.clone();
            Box::pin(async move { post_review(&upstream, PATH, body, ANSWER_BYTES_MAX).await })
        };
        Self::with(config, stale_grace, Arc::new(ask), metrics)
    }

    fn with(
        config: &AuthenticationConfig,
        stale_grace: Duration,
        ask: Ask,
        metrics: TokenReviewMetrics,
    ) -> Self {
        let inner = Inner {
            ask,
            audiences: config.token_audiences.clone(),
            key: random_key(),
            known: Known::new(config.token_ttl, config.token_failure_ttl, stale_grace),
            flights: Mutex::default(),
            admission: Arc::default(),
            trouble: Trouble::default(),
            metrics,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whose token it is. `asker` is for whom, for fairness among those whose tokens are not known yet.
    ///
    /// Takes at most some 12 s: the wait for a turn, and the review.
    pub(crate) async fn review(
        &self,
        token: &BearerToken,
        asker: Asker,
    ) -> Result<Identity, AuthenticationError> {
        let inner = &self.inner;
        if token.as_bytes().len() > TOKEN_BYTES_MAX {
            inner.metrics.limited(Limit::Size);
            return Err(AuthenticationError::Unavailable);
        }
        let key = TokenKey::of(&inner.key, token.as_bytes());
        match inner.known.find(&key).await {
            Found::Fresh(reviewed) => {
                inner.metrics.looked_up(Lookup::Authenticated);
                return Ok(reviewed.identity(false));
            }
            Found::Refused => {
                inner.metrics.looked_up(Lookup::Refused);
                return Err(AuthenticationError::Unauthorized);
            }
            Found::Unanswered { away } => {
                inner.metrics.looked_up(Lookup::Unavailable);
                return inner.settle(&key, Outcome::Unanswered { away }).await;
            }
            Found::Nothing => inner.metrics.looked_up(Lookup::Miss),
        }
        let asker = match asker {
            Asker::Address(_) | Asker::Socket if inner.known.was_good(&key).await => Asker::Known,
            asker => asker,
        };
        let mut flight = match Inner::join(inner, key, token, asker) {
            Ok(flight) => flight,
            Err(full) => {
                let settled = inner.settle(&key, inner.unasked()).await;
                return settled.map_err(|error| match full {
                    // To forward it would have the upstream look at it, which is what it is spared.
                    Full::Asker => AuthenticationError::Crowded,
                    Full::Others => error,
                });
            }
        };
        let outcome = match flight.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        inner.settle(&key, outcome.unwrap_or(Outcome::Unanswered { away: false })).await
    }
}

impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews").finish_non_exhaustive()
    }
}

impl Inner {
    /// Waits for the review of this token that is under way, or begins one, unless too many wait already.
    fn join(
        self: &Arc<Self>,
        key: TokenKey,
        token: &BearerToken,
        asker: Asker,
    ) -> Result<watch::Receiver<Option<Outcome>>, Full> {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&key) {
            return Ok(flight.subscribe());
        }
        let place = self.admission.place(asker).inspect_err(|full| {
            self.metrics.limited(match full {
                Full::Asker => Limit::Address,
                Full::Others => Limit::Waiting,
            });
        })?;
        let (sender, receiver) = watch::channel(None);
        flights.insert(key, sender.clone());
        let flight = Flight { inner: self.clone(), key, sender, listed: true };
        tokio::spawn(flight.run(token.clone(), place));
        Ok(receiver)
    }

    /// What its requests are told.
    async fn settle(
        &self,
        key: &TokenKey,
        outcome: Outcome,
    ) -> Result<Identity, AuthenticationError> {
        match outcome {
            Outcome::Authenticated(reviewed) => Ok(reviewed.identity(false)),
            Outcome::Refused => Err(AuthenticationError::Unauthorized),
            Outcome::Unanswered { away } => match self.known.stale(key).await.filter(|_| away) {
                Some(reviewed) => {
                    self.metrics.reviewed(ReviewResult::Stale);
                    Ok(reviewed.identity(true))
                }
                None => Err(AuthenticationError::Unavailable),
            },
        }
    }

    /// Asks now, and remembers what is said.
    async fn ask(&self, key: TokenKey, token: &BearerToken) -> Outcome {
        let asked = Instant::now();
        let _in_flight = self.metrics.in_flight();
        let answer = (self.ask)(answer::request(token.as_str(), &self.audiences)).await;
        self.metrics.took(asked.elapsed());
        let judged = answer.and_then(|answer| answer::judge(&answer, &self.audiences));
        match judged {
            Ok(Judgement::Authenticated(user)) => {
                self.trouble.answered();
                self.metrics.reviewed(ReviewResult::Authenticated);
                match Reviewed::new(user, answer::expiry(token.as_str())) {
                    Ok(reviewed) => {
                        Outcome::Authenticated(self.known.authenticated(key, reviewed, asked).await)
                    }
                    // The upstream's clock is behind, or it is lenient (a minute for service accounts): its word, not ours.
                    Err(known::Expired) => {
                        self.known.unanswered(key, false, PAUSE).await;
                        Outcome::Unanswered { away: false }
                    }
                }
            }
            Ok(Judgement::Refused) => {
                self.trouble.answered();
                self.metrics.reviewed(ReviewResult::Refused);
                self.known.refused(key, asked).await;
                Outcome::Refused
            }
            Err(error) => {
                self.metrics.reviewed(ReviewResult::Unavailable);
                let away = self.trouble.failed(key, &error);
                self.known.unanswered(key, away, PAUSE).await;
                Outcome::Unanswered { away }
            }
        }
    }

    /// What becomes of a token that nobody is asked about, for want of a place.
    fn unasked(&self) -> Outcome {
        self.metrics.reviewed(ReviewResult::Unavailable);
        Outcome::Unanswered { away: self.trouble.is_away() }
    }
}

/// One review under way. While it lives, requests find it in `flights`.
struct Flight {
    inner: Arc<Inner>,
    key: TokenKey,
    sender: watch::Sender<Option<Outcome>>,
    listed: bool,
}

impl Flight {
    async fn run(mut self, token: BearerToken, place: Place) {
        let inner = self.inner.clone();
        let enter = tokio::time::timeout(WAIT_MAX, place.enter());
        tokio::pin!(enter);
        let entered = loop {
            tokio::select! {
                entered = &mut enter => break entered,
                // While it only waits, it is for those who wait for it. Once asked, it is let finish: a request cancelled costs
                // the upstream more than one answered.
                () = self.sender.closed() => if self.leave() { return },
            }
        };
        let outcome = match entered {
            // One may have just been finished when this was begun, or while it waited.
            Ok(_entered) => match inner.known.find(&self.key).await {
                Found::Fresh(reviewed) => Outcome::Authenticated(reviewed),
                Found::Refused => Outcome::Refused,
                Found::Unanswered { away } => Outcome::Unanswered { away },
                Found::Nothing if inner.trouble.is_paused() => inner.unasked(),
                Found::Nothing => inner.ask(self.key, &token).await,
            },
            Err(_) => {
                inner.metrics.limited(Limit::Wait);
                inner.unasked()
            }
        };
        inner.metrics.entries(inner.known.counts());
        self.sender.send_replace(Some(outcome));
    }

    /// Gives up, unless somebody has come meanwhile.
    fn leave(&mut self) -> bool {
        let mut flights = self.inner.flights.lock();
        if self.sender.receiver_count() > 0 {
            return false;
        }
        flights.remove(&self.key);
        self.listed = false;
        true
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.listed {
            self.inner.flights.lock().remove(&self.key);
        }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Service accounts' tokens have 1 KiB, those of identity providers with many groups some 10 KiB. A longer one is left to the upstream,
/// whose limit is that of a request's headers (1 MiB).
const TOKEN_BYTES_MAX: usize = 32 << 10;
/// The answer repeats the token (escaped, six times as long at worst), and names some thousand groups at most.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long a review may wait for its turn. At a few milliseconds a review, [`admission::PLACES_MAX`] of them have had it by then.
const WAIT_MAX: Duration = Duration::from_secs(2);
