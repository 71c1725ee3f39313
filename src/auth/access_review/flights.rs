//! Reviews under way, each shared by all who ask the same.
//!
//! A review is a task of its own and ends by its own time-outs; who waits for it only listens. So somebody who goes away changes nothing for
//! the others, and an answer that nobody waits for any more is remembered all the same.
//!
//! Lock order: the map, alone and never across an await.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Outcome, Question, Unanswered};

type Map = Mutex<HashMap<Question, watch::Receiver<Option<Outcome>>>>;

/// See the module.
#[derive(Default)]
pub(super) struct Flights {
    under_way: Arc<Map>,
}

/// Where a review's outcome will be.
pub(super) struct Landing {
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Flights {
    /// Joins the review of this question, or begins it; `None` if there are [`QUESTIONS_MAX`] already.
    pub(super) fn join<F>(&self, question: &Question, begin: impl FnOnce() -> F) -> Option<Landing>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut under_way = self.under_way.lock();
        if let Some(outcome) = under_way.get(question) {
            return Some(Landing { outcome: outcome.clone() });
        }
        if under_way.len() >= QUESTIONS_MAX {
            return None;
        }
        let (sender, outcome) = watch::channel(None);
        under_way.insert(question.clone(), outcome.clone());
        let place = UnderWay { map: Arc::clone(&self.under_way), question: question.clone() };
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
struct UnderWay {
    map: Arc<Map>,
    question: Question,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let landed = self.map.lock().remove(&self.question);
        drop(landed);
    }
}

/// The most questions that are being asked or wait for their turn: many times of what is under way at once, and few megabytes (64 MiB if all were
/// as long as they may be). Beyond it requests are forwarded at once.
pub(super) const QUESTIONS_MAX: usize = 4096;
