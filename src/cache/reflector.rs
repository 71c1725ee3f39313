//! The loop that keeps one watch cache equal to the upstream (client-go's reflector).
//!
//! A reflector lists once and then watches. After every break it resumes at the last applied
//! resourceVersion. It lists again only when the upstream has lost the history in between (410), or
//! when that history was rewound. Three things must never happen:
//!
//! * A broken list must not remove anything: the old state is served until the new one is complete.
//! * The state must not go back. A relist asks for not older than the served state. A list that is
//!   older nevertheless is a sign of a rewound history (etcd restored, or another cluster at the
//!   address), after which all caches start again (`docs/decisions/rewound-history.md`).
//! * No event of another history may be applied. A watch from a resourceVersion in the upstream's
//!   future is silent until the upstream has passed that resourceVersion, and then sends events
//!   that do not follow the held state. So a resumed watch is verified by one consistent `LIST
//!   limit=1` before its first event is applied. For a custom resource the objects are also
//!   compared byte by byte, because the watch may have ended when the definition changed
//!   (`docs/decisions/upstream-bytes.md`).
//!
//! A reflector is one task without locks. It is cancel safe at every await: a state that was not
//! committed is dropped.

mod accumulator;
mod backoff;
mod byte_checks;
mod driver;
mod event_order;
mod failure;
mod interrupt;
mod list;
mod list_attempts;
mod list_span;
mod pause;
mod refusals;
mod running_watch;
mod start_options;
mod state;
mod waiting;
mod watch;
pub(crate) mod writer;

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::cache::cached_resource::CachedResource;
use crate::cache::proof;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
pub(crate) use crate::cache::reflector::start_options::StartOptions;
use crate::cache::reflector::state::{ListCause, State};
use crate::cache::refusal::Refusal;

/// Creates the reflector of a new cache. It runs until the cache is stopped, or until a failure of
/// the upstream that a retry cannot cure.
pub(crate) fn run(
    cached: Arc<CachedResource>,
    options: StartOptions,
) -> impl Future<Output = Refusal> {
    let mut driver = Driver::new(Arc::clone(&cached), options);
    async move {
        let key = &cached.key;
        let span =
            tracing::info_span!("reflector", resource = %key.gvr, namespace = key.namespace());
        let catch_up = cached.context.tasks.spawn(proof::catch_up(Arc::clone(&cached)));
        let _catch_up = AbortOnDropHandle::new(catch_up);
        let work = async {
            tokio::select! {
                biased;
                () = cached.lifecycle.cancel.cancelled() => cached.lifecycle.stop_reason(),
                refusal = driver.work() => refusal,
            }
        };
        work.instrument(span).await
    }
}

impl Driver {
    async fn work(&mut self) -> Refusal {
        let mut state = State::Listing(ListCause::Start);
        loop {
            let cached = &self.cached;
            cached.series.state(state.name());
            cached.status.enter(state.name());
            let watching = matches!(state, State::Watching(_));
            cached.lifecycle.set_watching(watching);
            if matches!(state, State::BackingOff(..) | State::Reviewing(..)) {
                cached.lifecycle.note_failure();
            }
            if watching {
                self.refusals.end();
                self.waiting.end();
            }
            match self.step(state).await {
                Ok(next) => state = next,
                Err(refusal) => return refusal,
            }
        }
    }

    async fn step(&mut self, state: State) -> Result<State, Refusal> {
        if self.is_rewound() {
            return Ok(self.restart());
        }
        let lifecycle = &self.cached.lifecycle;
        if lifecycle.is_retiring() && !matches!(state, State::Watching(_)) {
            return Err(lifecycle.stop_reason());
        }
        match state {
            State::Listing(cause) => match self.list(cause).await {
                Ok(next) => Ok(next),
                Err(failure) => self.list_failed(failure, cause),
            },
            State::BackingOff(wait, next) => {
                let is_resume = matches!(*next, State::Resuming(_));
                self.pause(wait, is_resume).await;
                Ok(*next)
            }
            State::Reviewing(refusal, next) => self.review(refusal, *next).await,
            State::Resuming(verify) => self.resume(verify).await,
            State::Verifying(running, verify) => self.verify(running, verify).await,
            State::Watching(running) => self.watch(running).await,
        }
    }

    /// Returns the state after a failed list.
    fn list_failed(&mut self, failure: Failure, cause: ListCause) -> Result<State, Refusal> {
        self.lists.note_failure(&failure);
        if matches!(failure, Failure::TooLarge) {
            // Another API server may have reached the held state.
            self.cached.upstream.leave_server();
        }
        let next = State::Listing(if cause == ListCause::Start { cause } else { ListCause::Retry });
        self.back_off(failure, next)
    }
}

#[cfg(test)]
mod tests;
