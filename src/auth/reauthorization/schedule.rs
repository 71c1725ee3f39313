//! When open watches are checked again, within a budget of reviews a second
//! (`docs/decisions/herds.md`).
//!
//! All watches of a user are due at the same times. Each *question*, whether a token is still good
//! or whether the user still has one permission, costs one review however many watches ask it: the
//! first to ask takes a place in one queue, which the budget serves in order, and the others share
//! the place. Where all questions cost more than the budget has in one interval, the queue is long,
//! so that the interval stretches by itself.
//!
//! Lock order: the queue's state, alone and never across an await.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::Gauge;
use tokio::time::{Instant, sleep_until};

use crate::auth::user::UserKey;
use crate::tasks::single_flight::SingleFlight;
use crate::tasks::single_permit::SinglePermit;
use crate::telemetry::metrics::families;

/// When the open watches of all users are checked again, and the queue of their questions.
#[derive(Debug)]
pub struct RecheckSchedule {
    /// `watchRecheck`.
    pub(super) interval: Duration,
    /// The time in which the budget has one review.
    per_review: Duration,
    started: Instant,
    /// The questions that wait for their place.
    questions: SingleFlight<Question, ()>,
    /// The right to be the next question; the first to ask is the first to get it.
    turn: SinglePermit,
    queue: Mutex<Queue>,
    metrics: RecheckMetrics,
}

/// The places of the budget.
#[derive(Debug)]
struct Queue {
    /// When the next place is free.
    free_at: Instant,
    /// How many questions wait for a place.
    length: u32,
}

/// A question of a user, as a hash with a random key: two that collide share a place and nothing
/// else.
pub(super) type Question = (UserKey, u64);

families! {
    /// Handles of the metrics of re-checks. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct RecheckMetrics {
        /// The longest time between two checks of an open watch: watchRecheck, and the wait of its
        /// reviews where they would exceed watchReviewsPerSecond. Zero if open watches are not
        /// checked.
        interval: Gauge = gauge("weir_watch_recheck_interval_seconds"),
    }
}

impl RecheckSchedule {
    /// Creates a schedule. `interval` is `watchRecheck`.
    pub fn new(interval: Duration, reviews_per_second: u32, metrics: RecheckMetrics) -> Arc<Self> {
        let interval = interval.max(INTERVAL_MIN);
        metrics.interval.set(interval.as_secs_f64());
        Arc::new(Self {
            interval,
            per_review: Duration::from_secs(1) / reviews_per_second.max(1),
            started: Instant::now(),
            questions: SingleFlight::default(),
            turn: SinglePermit::default(),
            queue: Mutex::new(Queue { free_at: Instant::now(), length: 0 }),
            metrics,
        })
    }

    /// Returns when the watches of a user are due next, later than `after` and at most one interval
    /// later. Each user has times of its own, which nobody can predict.
    pub(super) fn due_after(&self, user: UserKey, after: Instant) -> Instant {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let since = after.saturating_duration_since(self.started).as_nanos();
        let phase = u128::from(question(user, &()).1 % interval);
        let late = u64::try_from((since + phase) % u128::from(interval)).unwrap_or(0);
        after + Duration::from_nanos(interval - late)
    }

    /// Waits until the budget has a place for a question. Others that ask it meanwhile
    /// share the place.
    pub(super) async fn place(self: &Arc<Self>, question: Option<Question>) {
        let Some(question) = question else { return };
        let (place, first) = self.questions.join(&question);
        if let Some(mut run) = first {
            let schedule = Arc::clone(self);
            tokio::spawn(async move {
                schedule.change_length(1);
                let is_taken = tokio::select! {
                    () = schedule.take_place() => true,
                    () = run.until_abandoned() => false,
                };
                schedule.change_length(-1);
                if is_taken {
                    run.complete(());
                }
            });
        }
        // A run is lost only with the whole process.
        let _ended = place.wait().await;
    }

    /// Waits for the next free place. It is taken only once its time has come, so that tasks which
    /// did not run for a while do not all begin at once afterwards.
    async fn take_place(&self) {
        let _turn = self.turn.acquire().await;
        let free_at = self.queue.lock().free_at;
        sleep_until(free_at).await;
        // A task that wakes a little late delays no other.
        let earliest = Instant::now().checked_sub(self.per_review.max(LATE_MAX));
        let taken_at = earliest.map_or(free_at, |earliest| earliest.max(free_at));
        self.queue.lock().free_at = taken_at + self.per_review;
    }

    fn change_length(&self, change: i32) {
        let mut queue = self.queue.lock();
        queue.length = queue.length.saturating_add_signed(change);
        let wait = self.per_review.saturating_mul(queue.length);
        self.metrics.interval.set(self.interval.saturating_add(wait).as_secs_f64());
    }

    /// Returns the value of the metric, in seconds.
    #[cfg(test)]
    pub(super) fn shown_interval(&self) -> f64 {
        self.metrics.interval.get()
    }

    /// Returns how many questions wait for a place.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.queue.lock().length
    }
}

/// Returns what identifies a question of a user. The user's key is random.
pub(super) fn question(user: UserKey, value: &(impl Hash + ?Sized)) -> Question {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    value.hash(&mut hasher);
    (user, hasher.finish())
}

/// The shortest interval, whatever is configured: with a shorter one, the checks would cost more
/// than the watch.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// How late the runtime may wake a task that takes a place, at least.
const LATE_MAX: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
