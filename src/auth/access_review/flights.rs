//! Reviews under way, each shared by all who ask the same.
//!
//! A review is a task of its own and ends by its own time-outs; who waits for it only listens. So somebody who goes away changes nothing for
//! the others, and an answer that nobody waits for any more is remembered all the same.
//!
//! Lock order: the map, alone and never across an await.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Outcome, Question, Unanswered};
use crate::auth::user::UserKey;

/// See the module.
#[derive(Default)]
pub(super) struct Flights {
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Default)]
struct UnderWay {
    flights: HashMap<Question, watch::Receiver<Option<Outcome>>>,
    /// How many of them are each user's.
    by_user: HashMap<UserKey, usize>,
}

/// Where a review's outcome will be.
pub(super) struct Landing {
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Flights {
    /// Joins the review of this question, or begins it; `None` if there are [`QUESTIONS_MAX`] already, or [`USER_QUESTIONS_MAX`] of its user.
    pub(super) fn join<F>(&self, question: &Question, begin: impl FnOnce() -> F) -> Option<Landing>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut under_way = self.under_way.lock();
        if let Some(outcome) = under_way.flights.get(question) {
            return Some(Landing { outcome: outcome.clone() });
        }
        let own = under_way.by_user.get(&question.user).copied().unwrap_or_default();
        if under_way.flights.len() >= QUESTIONS_MAX || own >= USER_QUESTIONS_MAX {
            return None;
        }
        let (sender, outcome) = watch::channel(None);
        under_way.flights.insert(question.clone(), outcome.clone());
        under_way.by_user.insert(question.user, own + 1);
        let place = Place { under_way: Arc::clone(&self.under_way), question: question.clone() };
        let review = begin();
        tokio::spawn(async move {
            let done = review.await;
            // What it found is remembered by now; whoever comes from here on asks that memory, or begins anew.
            drop(place);
            sender.send_replace(Some(done));
        });
        Some(Landing { outcome })
    }
}

impl Landing {
    /// Waits for it.
    pub(super) async fn outcome(mut self) -> Outcome {
        let landed = self.outcome.wait_for(Option::is_some).await;
        // The channel closes without an outcome only if the task panicked.
        landed
            .ok()
            .and_then(|outcome| outcome.clone())
            .unwrap_or_else(|| Outcome { asked: Instant::now(), result: Err(Unanswered::Refused) })
    }
}

/// Takes a question off the map when its review is over, even by a panic.
struct Place {
    under_way: Arc<Mutex<UnderWay>>,
    question: Question,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        let landed = under_way.flights.remove(&self.question);
        if let Entry::Occupied(mut own) = under_way.by_user.entry(self.question.user) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        drop(under_way);
        drop(landed);
    }
}

/// The most questions that are being asked or wait for their turn: many times of what is under way at once, and few megabytes (64 MiB if all were
/// as long as they may be). Beyond it requests are forwarded at once.
pub(super) const QUESTIONS_MAX: usize = 4096;
/// Those of one user: more than any client asks at once, and too few to take the others' room or keep them waiting long.
pub(super) const USER_QUESTIONS_MAX: usize = 256;
