//! The schedule of all open watches' checks: the rounds of their users behind a lock.
//!
//! Lock order: the rounds, alone and never across an await.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Gauge, Registry};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::bearer::BearerToken;
use crate::auth::reauthorization::rounds::{Question, Rounds, Step};
use crate::auth::user::{User, UserKey};
use crate::telemetry::metrics::float_gauge;

/// When the open watches of all users are checked again.
#[derive(Debug)]
pub struct RecheckSchedule {
    interval: Duration,
    rounds: Mutex<Rounds<UserKey>>,
    metrics: RecheckMetrics,
}

/// Handles of the metrics of re-checks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecheckMetrics {
    interval: Gauge,
}

/// A watch in the schedule, until it is dropped.
pub(super) struct ScheduledWatch {
    schedule: Arc<RecheckSchedule>,
    user: UserKey,
    /// The permission, and the token if there is one.
    questions: SmallVec<[Question; 2]>,
    /// The last round in which it was checked.
    round: u64,
}

impl RecheckMetrics {
    /// Registers the metrics. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let interval = float_gauge(
            registry,
            "weir_watch_recheck_interval_seconds",
            "Time between two checks of an open watch: watchRecheck, or longer if its reviews would exceed \
             watchReviewsPerSecond. Zero if open watches are not checked.",
        )?;
        Ok(Self { interval })
    }
}

impl RecheckSchedule {
    /// Creates a schedule without watches. `interval` is `watchRecheck`.
    pub fn new(interval: Duration, reviews_per_second: u32, metrics: RecheckMetrics) -> Arc<Self> {
        let interval = interval.max(INTERVAL_MIN);
        let rounds = Rounds::new(interval, reviews_per_second, Instant::now());
        metrics.interval.set(interval.as_secs_f64());
        Arc::new(Self { interval, rounds: Mutex::new(rounds), metrics })
    }

    /// Returns `watchRecheck`.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the value of the metric, in seconds.
    #[cfg(test)]
    pub(super) fn shown_interval(&self) -> f64 {
        self.metrics.interval.get()
    }

    /// Adds a watch that was authorized just now. Its first check is half an interval to one and a
    /// half away, unless its user has other watches, with which it is checked.
    pub(super) fn enter(
        self: &Arc<Self>,
        user: &User,
        token: Option<&BearerToken>,
        attributes: &Attributes,
        is_by_roles: bool,
    ) -> ScheduledWatch {
        let user = user.key();
        let permission = Question::Permission(keyed_hash(user, attributes));
        let token = token.map(|token| Question::Token(keyed_hash(user, token.as_bytes())));
        let questions: SmallVec<_> = token.into_iter().chain([permission]).collect();
        let costs = |question: &Question| (*question, *question != permission || !is_by_roles);
        let costly: SmallVec<[_; 2]> = questions.iter().map(costs).collect();
        let delay = self.interval / 2 + spread(user, self.interval);
        let mut rounds = self.rounds.lock();
        let round = rounds.enter(user, &costly, Instant::now(), delay);
        self.show(&rounds);
        ScheduledWatch { schedule: Arc::clone(self), user, questions, round }
    }

    fn show(&self, rounds: &Rounds<UserKey>) {
        self.metrics.interval.set(rounds.interval().as_secs_f64());
    }
}

impl ScheduledWatch {
    /// Returns the next step.
    pub(super) fn next(&self) -> Step {
        let mut rounds = self.schedule.rounds.lock();
        rounds.next(self.user, &self.questions, self.round, Instant::now())
    }

    /// Begins the reviews of a check for a round whose time has come. Returns a later time to ask
    /// at, if other reviews begin until then.
    pub(super) fn begin(&self, round: u64) -> Option<Instant> {
        let mut rounds = self.schedule.rounds.lock();
        rounds.begin(self.user, &self.questions, round, Instant::now())
    }

    /// Notes that the watch is checked in this round.
    pub(super) fn set_round(&mut self, round: u64) {
        self.round = round;
    }

    /// Sets whether roles decide about the watch here, without a review.
    pub(super) fn set_by_roles(&self, is_by_roles: bool) {
        let mut rounds = self.schedule.rounds.lock();
        for question in &self.questions {
            if let Question::Permission(_) = question {
                rounds.set_costly(self.user, *question, !is_by_roles);
            }
        }
        self.schedule.show(&rounds);
    }
}

impl Drop for ScheduledWatch {
    fn drop(&mut self) {
        let mut rounds = self.schedule.rounds.lock();
        rounds.leave(self.user, &self.questions);
        self.schedule.show(&rounds);
    }
}

/// Hashes `value` with the key of its user, which is random.
fn keyed_hash(user: UserKey, value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns a duration below `range`, always the same for a user and not predictable.
fn spread(user: UserKey, range: Duration) -> Duration {
    let nanos = u64::try_from(range.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(keyed_hash(user, &()) % nanos)
}

/// The shortest interval, whatever is configured: with a shorter one, the checks would cost more
/// than the watch.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
