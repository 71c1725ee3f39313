//! When open watches are checked again, within a budget of reviews a second
//! (`docs/decisions/herds.md`). Pure: the present time is an argument.
//!
//! The watches of one user are checked together, in rounds. A round is due one interval after the
//! last one ended. In it each *question* costs one review: whether a token is still good, and
//! whether the user still has one permission. However many watches ask a question, the first of
//! them that wakes reserves the next free review of the budget, and the others ask at that time
//! too, so that they share its answer.
//!
//! Where all questions cost more than the budget has in one interval, reservations lie ever further
//! ahead, until a round of every user takes as long as the budget needs for all questions. So the
//! interval stretches by itself, and users are served in the order in which they are due.
//!
//! A task may wake late, or may wait until a cached decision expires. So each review also takes a
//! place when it is about to begin, and reviews that are late together begin one by one.
//!
//! A question that roles decide here costs nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The rounds of all users. `U` identifies a user.
#[derive(Debug)]
pub(super) struct Rounds<U> {
    interval: Duration,
    /// The time in which the budget has one review.
    per_review: Duration,
    /// Before this time all reviews are reserved.
    free_at: Instant,
    /// When the next review may begin: one `per_review` after the last one, or after the last
    /// `per_review` in which none began. So a task that wakes a little late delays no other.
    next_begin: Instant,
    users: HashMap<U, UserRounds>,
    /// The questions of all users that cost a review.
    costly: u32,
}

/// A question, as a hash with a random key: two that collide share a reservation and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// Whether a token is still good.
    Token(u64),
    /// Whether the user still has a permission.
    Permission(u64),
}

/// The rounds of one user who has open watches.
#[derive(Debug)]
struct UserRounds {
    watches: usize,
    /// The number of the present round.
    round: u64,
    /// When the next round is due.
    due: Instant,
    questions: HashMap<Question, Reservation>,
}

/// A question of one user, and the review that is reserved for it.
#[derive(Debug)]
struct Reservation {
    watches: usize,
    /// Whether it costs a review.
    is_costly: bool,
    /// The last round in which a review was reserved for it, and for when.
    round: u64,
    at: Instant,
    /// The last round in which its review began; `at` is then the time at which it began.
    begun: u64,
}

/// The next step of one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is due before this time.
    Wait(Instant),
    /// Check at this time, for this round.
    Check { at: Instant, round: u64 },
}

impl<U: Copy + Eq + Hash> Rounds<U> {
    /// Starts without watches. `interval` is the time between two rounds of a user if the budget
    /// suffices, which has `reviews_per_second`.
    pub(super) fn new(interval: Duration, reviews_per_second: u32, now: Instant) -> Self {
        let per_review = Duration::from_secs(1) / reviews_per_second.max(1);
        let users = HashMap::new();
        Self { interval, per_review, free_at: now, next_begin: now, users, costly: 0 }
    }

    /// Adds a watch, and whether each of its questions costs a review now. The first round of a new
    /// user is due after `delay`. Returns the round that this watch need not take part in, since it
    /// was authorized just now.
    pub(super) fn enter(
        &mut self,
        user: U,
        questions: &[(Question, bool)],
        now: Instant,
        delay: Duration,
    ) -> u64 {
        let new =
            || UserRounds { watches: 0, round: 0, due: now + delay, questions: HashMap::new() };
        let rounds = self.users.entry(user).or_insert_with(new);
        rounds.watches += 1;
        for (question, _) in questions {
            let round = rounds.round;
            let new = || Reservation { watches: 0, is_costly: false, round, at: now, begun: round };
            rounds.questions.entry(*question).or_insert_with(new).watches += 1;
        }
        let round = rounds.round;
        for (question, is_costly) in questions {
            self.set_costly(user, *question, *is_costly);
        }
        round
    }

    /// Removes a watch that was added with these questions.
    pub(super) fn leave(&mut self, user: U, questions: &[Question]) {
        let Some(rounds) = self.users.get_mut(&user) else { return };
        for question in questions {
            let Some(reservation) = rounds.questions.get_mut(question) else { continue };
            reservation.watches = reservation.watches.saturating_sub(1);
            if reservation.watches == 0 {
                self.costly -= u32::from(reservation.is_costly);
                rounds.questions.remove(question);
            }
        }
        rounds.watches = rounds.watches.saturating_sub(1);
        if rounds.watches == 0 {
            self.users.remove(&user);
        }
    }

    /// Sets whether a question costs a review.
    pub(super) fn set_costly(&mut self, user: U, question: Question, is_costly: bool) {
        let rounds = self.users.get_mut(&user);
        let Some(reservation) = rounds.and_then(|rounds| rounds.questions.get_mut(&question))
        else {
            return;
        };
        if reservation.is_costly != is_costly {
            reservation.is_costly = is_costly;
            self.costly = if is_costly { self.costly + 1 } else { self.costly - 1 };
        }
    }

    /// Returns the next step of a watch that has taken part in round `last`. Begins a round that is
    /// due.
    pub(super) fn next(
        &mut self,
        user: U,
        questions: &[Question],
        last: u64,
        now: Instant,
    ) -> Step {
        let Some(rounds) = self.users.get_mut(&user) else {
            return Step::Wait(now + self.interval);
        };
        if rounds.round == last {
            if now < rounds.due {
                return Step::Wait(rounds.due);
            }
            rounds.round += 1;
            rounds.due = now + self.interval;
        }
        let mut at = now;
        for question in questions {
            let Some(reservation) = rounds.questions.get_mut(question) else { continue };
            if reservation.round != rounds.round {
                reservation.round = rounds.round;
                reservation.at = now;
                if reservation.is_costly {
                    reservation.at = now.max(self.free_at);
                    self.free_at = reservation.at + self.per_review;
                }
            }
            at = at.max(reservation.at);
        }
        rounds.due = rounds.due.max(at + self.interval);
        Step::Check { at, round: rounds.round }
    }

    /// Begins the reviews of a check for `round` whose time has come. Returns a later time at which
    /// the watch is to ask, if other reviews begin until then. A review that began some time ago
    /// was for others, and its answer may have expired.
    pub(super) fn begin(
        &mut self,
        user: U,
        questions: &[Question],
        round: u64,
        now: Instant,
    ) -> Option<Instant> {
        let rounds = self.users.get_mut(&user)?;
        let mut at = now;
        for question in questions {
            let asked = rounds.questions.get_mut(question).filter(|question| question.is_costly);
            let Some(reservation) = asked else { continue };
            // The next round may have reserved another time already.
            let is_latest = reservation.round == round;
            if is_latest && reservation.begun == round && now < reservation.at + SHARED_FOR {
                at = at.max(reservation.at);
                continue;
            }
            let earliest = now.checked_sub(self.per_review).unwrap_or(now);
            let begins = self.next_begin.max(earliest);
            self.next_begin = begins + self.per_review;
            at = at.max(begins);
            if is_latest {
                (reservation.begun, reservation.at) = (round, begins.max(now));
            }
        }
        (at > now).then_some(at)
    }

    /// Returns the time between two rounds of a user that the budget allows for the present
    /// questions.
    pub(super) fn interval(&self) -> Duration {
        self.interval.max(self.per_review.saturating_mul(self.costly))
    }
}

/// A review is shared by all callers for this long after it began.
const SHARED_FOR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
