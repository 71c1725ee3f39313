//! What access reviews found, for as long as it is believed.
//!
//! Allows and denials have room each of their own, so that somebody who tries all doors evicts nobody's right; within each, what is
//! asked for often stays (moka's policy). That a question was not answered is remembered as well, shortly.
//!
//! Times are tokio's, beside the value: moka's own, for which it drops what is long of no use, cannot be paused by a test.

use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use super::{Outcome, Question, Unanswered, Verdict};
use crate::config::AuthorizationConfig;

/// See the module.
pub(crate) struct Decisions {
    allowed: Room,
    denied: Room,
    unanswered: Cache<Question, (Unanswered, Instant)>,
    grace: Duration,
}

/// The decisions of one kind.
struct Room {
    cache: Cache<Question, Remembered>,
    ttl: Duration,
}

#[derive(Clone)]
struct Remembered {
    verdict: Verdict,
    asked: Instant,
    until: Instant,
}

/// A decision that was remembered.
pub(crate) enum Found {
    /// It stands.
    Fresh(Verdict),
    /// It has expired, less than `staleDecisionGrace` ago.
    Expired(Verdict),
}

impl Decisions {
    /// Nothing remembered.
    pub(crate) fn new(config: &AuthorizationConfig) -> Self {
        let grace = config.stale_decision_grace;
        let unanswered = Cache::builder()
            .max_capacity(UNANSWERED_MAX_BYTES)
            .weigher(|question, _| weight(question, 0))
            .time_to_live(UNANSWERED_TTL)
            .build();
        Self {
            allowed: Room::new(ALLOWED_MAX_BYTES, config.allow_ttl, grace),
            denied: Room::new(DENIED_MAX_BYTES, config.deny_ttl, grace),
            unanswered,
            grace,
        }
    }

    /// What is known of a question. An allow counts only if it was asked for when what was taken away at `narrowed` was known everywhere.
    pub(crate) async fn find(
        &self,
        question: &Question,
        narrowed: Option<Instant>,
    ) -> Option<Found> {
        let now = Instant::now();
        let allowed = match self.allowed(question, narrowed).await {
            Some(known) if now < known.until => return Some(Found::Fresh(known.verdict)),
            allowed => allowed,
        };
        // Never both: remembering one forgets the other.
        let known = match self.denied.cache.get(question).await {
            Some(denied) if now < denied.until => return Some(Found::Fresh(denied.verdict)),
            denied => denied.or(allowed)?,
        };
        (now < known.until + self.grace).then_some(Found::Expired(known.verdict))
    }

    /// Why a question was not answered just now.
    pub(crate) async fn unanswered(&self, question: &Question) -> Option<Unanswered> {
        let (unanswered, until) = self.unanswered.get(question).await?;
        (Instant::now() < until).then_some(unanswered)
    }

    /// Until when what is known of a question stands; as for [`find`](Self::find).
    pub(crate) async fn fresh_until(
        &self,
        question: &Question,
        narrowed: Option<Instant>,
    ) -> Option<Instant> {
        let known = match self.allowed(question, narrowed).await {
            Some(known) => known,
            None => self.denied.cache.get(question).await?,
        };
        (Instant::now() < known.until).then_some(known.until)
    }

    async fn allowed(&self, question: &Question, narrowed: Option<Instant>) -> Option<Remembered> {
        let known = self.allowed.cache.get(question).await?;
        let settled = narrowed.map(|narrowed| narrowed + SETTLING);
        (!known.verdict.is_revoked(known.asked, settled)).then_some(known)
    }

    /// Remembers how a question was answered. A decision lives from the asking on: a right may have gone while the answer was on its way.
    pub(crate) async fn remember(&self, question: &Question, outcome: &Outcome) {
        if question.attributes.weight_bytes() >= REMEMBERED_MAX_BYTES {
            return;
        }
        let verdict = match &outcome.result {
            Ok(verdict) => verdict.clone(),
            Err(Unanswered::Crowded) => return,
            Err(unanswered) => {
                let known = (*unanswered, Instant::now() + UNANSWERED_TTL);
                return self.unanswered.insert(question.clone(), known).await;
            }
        };
        let (room, other) = if verdict.allowed {
            (&self.allowed, &self.denied)
        } else {
            (&self.denied, &self.allowed)
        };
        other.cache.invalidate(question).await;
        let known = Remembered { verdict, asked: outcome.asked, until: outcome.asked + room.ttl };
        room.cache.insert(question.clone(), known).await;
    }

    /// The room that allows or denials take, about.
    pub(crate) fn bytes(&self, allowed: bool) -> u64 {
        let room = if allowed { &self.allowed } else { &self.denied };
        room.cache.weighted_size()
    }
}

impl Room {
    fn new(max_bytes: u64, ttl: Duration, grace: Duration) -> Self {
        let cache = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|question, known: &Remembered| weight(question, known.verdict.reason.len()))
            .time_to_live(ttl + grace + UNANSWERED_TTL)
            .build();
        Self { cache, ttl }
    }
}

fn weight(question: &Question, reason_bytes: usize) -> u32 {
    let bytes = OVERHEAD_BYTES + question.attributes.weight_bytes() + reason_bytes;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Longer questions are not remembered, as in the upstream's own cache of webhook decisions: nobody has a use for them but to fill it. Here what
/// their parts take counts as well, not their texts alone.
const REMEMBERED_MAX_BYTES: usize = 10_000;
/// What a question costs beside its attributes' texts and lists: the key, the attributes' fields, allocations, the cache's own books. It bounds the number, too.
const OVERHEAD_BYTES: usize = 512;
/// Some fifty thousand questions of ordinary length.
pub(crate) const ALLOWED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Denials are few among those who know what they may.
pub(crate) const DENIED_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// See [`UNANSWERED_TTL`]: only what was asked within a second.
const UNANSWERED_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How long an upstream that did not answer a question is not asked it again: long enough to spare it a herd, short enough that nobody
/// notices once it is back.
pub(crate) const UNANSWERED_TTL: Duration = Duration::from_secs(1);
/// How much later than Weir the API server that is asked may know of a revocation: all watch the same, but not at one pace. What it allows until
/// then holds for those who asked it, and is not believed any longer.
const SETTLING: Duration = Duration::from_secs(1);
