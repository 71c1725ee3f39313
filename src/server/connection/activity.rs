//! Activity of a client connection, and the time-outs that follow from it.
//!
//! hyper's own header time-out does not run until the first bytes show the protocol. Afterwards it
//! has one limit for both an idle connection and an incomplete request head, although an idle
//! connection needs a long limit and an incomplete head a short one. It also sets a timer for each
//! request. Weir therefore finds the heads in the bytes that are read
//! ([`crate::server::connection::wire`]): the short limit applies from the first byte of a head to
//! its last, the long one between two requests (`docs/decisions/client-connections.md`).
//!
//! After the preface, HTTP/2 connections are subject only to the idle time-out, which sends GOAWAY.
//!
//! Lock: only that of the heads. It is held for a few instructions. HTTP/2 connections do not take
//! it after their preface.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::server::connection::wire::aside::{Aside, RefusedHead};

/// Tracks whether a connection is receiving a request head, answering a request, or idle. Cheap to
/// clone: clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct ConnActivity(Arc<ConnState>);

#[derive(Debug)]
struct ConnState {
    heads: Mutex<Heads>,
    /// Whether the whole preface of HTTP/2 has arrived. Every request checks this flag instead of
    /// taking the lock.
    http2: AtomicBool,
    open_requests: AtomicUsize,
    /// Whether the response of HTTP/1.1 waits for its turn.
    writes_wait: AtomicBool,
    accepted: Instant,
    /// When the last request ended, in milliseconds since `accepted`. Written before
    /// `open_requests` is decremented.
    last_ended_ms: AtomicU64,
}

#[derive(Debug)]
struct Heads {
    /// The start of a head of which bytes are missing; at first the start of the connection.
    since: Option<Instant>,
    /// The number of heads that hyper may have.
    read: u64,
    /// The number of requests that hyper has made of them.
    begun: u64,
    /// The parts of heads that hyper cannot read, with the numbers of the heads.
    asides: VecDeque<(u64, Aside)>,
}

impl ConnActivity {
    pub(crate) fn new() -> Self {
        let accepted = Instant::now();
        let heads = Heads { since: Some(accepted), read: 0, begun: 0, asides: VecDeque::new() };
        Self(Arc::new(ConnState {
            heads: Mutex::new(heads),
            http2: AtomicBool::new(false),
            open_requests: AtomicUsize::new(0),
            writes_wait: AtomicBool::new(false),
            accepted,
            last_ended_ms: AtomicU64::new(0),
        }))
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.0.open_requests.load(Ordering::Relaxed)
    }

    pub(crate) fn age(&self) -> Duration {
        self.0.accepted.elapsed()
    }

    /// Notes that a request has begun. It counts as open until the guard is dropped.
    pub(crate) fn begin_request(&self) -> RequestGuard {
        self.0.open_requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard { activity: self.clone() }
    }

    /// Returns what belongs to the next request of HTTP/1.1 beside its bytes. Call this once for
    /// each request, in their order.
    pub(crate) fn next_aside(&self) -> Option<Aside> {
        if self.is_http2() {
            return None;
        }
        let heads = &mut *self.0.heads.lock();
        let number = heads.begun;
        heads.begun += 1;
        if number >= heads.read {
            // hyper found a head where Weir did not, so its target was not read.
            tracing::error!("hyper framed a request in another way than weir; it is refused");
            return Some(Aside::Refused(RefusedHead::bad_request("its place is not known")));
        }
        let is_next = heads.asides.front().is_some_and(|(aside, _)| *aside == number);
        if is_next { heads.asides.pop_front().map(|(_, aside)| aside) } else { None }
    }

    /// Notes that a head of HTTP/1.1 has begun to arrive, and is not complete.
    pub(crate) fn begin_head(&self) {
        self.0.heads.lock().since.get_or_insert_with(Instant::now);
    }

    /// Notes that a head of HTTP/1.1 is complete and passes to hyper, and what belongs to it.
    pub(crate) fn end_head(&self, aside: Option<Aside>) {
        let heads = &mut *self.0.heads.lock();
        heads.since = None;
        let number = heads.read;
        heads.asides.extend(aside.map(|aside| (number, aside)));
        heads.read += 1;
    }

    /// Notes that the whole preface of HTTP/2 has arrived.
    pub(crate) fn begin_http2(&self) {
        self.0.http2.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.open_requests.load(Ordering::Relaxed) == 0
    }

    /// Whether what is left of a large response of HTTP/1.1 is not written now: its turn has not
    /// come. When it comes, the task of the connection is woken.
    pub(crate) fn writes_wait(&self) -> bool {
        self.0.writes_wait.load(Ordering::Relaxed)
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.0.http2.load(Ordering::Relaxed)
    }

    /// Resolves once a request head has been arriving for `timeout`. Never resolves for HTTP/2.
    pub(crate) async fn header_timeout(&self, timeout: Duration) {
        while !self.is_http2() {
            let now = Instant::now();
            // A head that arrives while a request is open has time from the end of that on.
            let since = self.0.heads.lock().since.filter(|_| self.is_idle());
            // A head that begins later cannot time out before this.
            let until = since.map_or(now, |since| since.max(self.last_ended())) + timeout;
            if until <= now {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
        std::future::pending().await
    }

    /// Resolves once the connection has had no open request for `timeout`.
    pub(crate) async fn idle_timeout(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let open = self.0.open_requests.load(Ordering::Acquire);
            let until = if open == 0 { self.last_ended() + timeout } else { now + timeout };
            if until <= now {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Returns when the last request ended; at first when the connection was accepted.
    fn last_ended(&self) -> Instant {
        self.0.accepted + Duration::from_millis(self.0.last_ended_ms.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub(crate) struct RequestGuard {
    activity: ConnActivity,
}

impl RequestGuard {
    /// Sets whether the rest of a large response is not written now. Only for HTTP/1.1, which has
    /// one response at a time.
    pub(crate) fn set_writes_wait(&self, wait: bool) {
        self.activity.0.writes_wait.store(wait, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let state = &*self.activity.0;
        let ended = u64::try_from(state.accepted.elapsed().as_millis()).unwrap_or(u64::MAX);
        state.last_ended_ms.store(ended, Ordering::Relaxed);
        state.open_requests.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(32);
    const PAST_TIMEOUT: Duration = Duration::from_millis(32_001);

    /// Returns whether the header time-out passes within `wait`.
    async fn header_times_out(activity: &ConnActivity, wait: Duration) -> bool {
        tokio::time::timeout(wait, activity.header_timeout(TIMEOUT)).await.is_ok()
    }

    /// Returns whether the idle time-out passes within `wait`.
    async fn idle_times_out(activity: &ConnActivity, wait: Duration) -> bool {
        tokio::time::timeout(wait, activity.idle_timeout(TIMEOUT)).await.is_ok()
    }

    /// Has a request answered.
    fn answer(activity: &ConnActivity) -> RequestGuard {
        activity.end_head(None);
        assert!(activity.next_aside().is_none());
        activity.begin_request()
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_head_times_out_and_an_idle_connection_does_not() {
        for begins in [false, true] {
            let activity = ConnActivity::new();
            if begins {
                activity.begin_head();
            }
            assert!(header_times_out(&activity, PAST_TIMEOUT).await, "{begins}");
        }
        let activity = ConnActivity::new();
        activity.begin_http2();
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "HTTP/2");

        let activity = ConnActivity::new();
        let request = answer(&activity);
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "a slow response");
        drop(request);
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "idle");
        // More bytes of the same head do not extend the time-out.
        activity.begin_head();
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        activity.begin_head();
        assert!(header_times_out(&activity, Duration::from_secs(2)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_behind_an_open_request_has_time_from_its_end_on() {
        let activity = ConnActivity::new();
        let request = answer(&activity);
        activity.begin_head();
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "a slow response");
        drop(request);
        assert!(!header_times_out(&activity, TIMEOUT - Duration::from_secs(1)).await);
        assert!(header_times_out(&activity, Duration::from_secs(2)).await);
    }

    #[tokio::test]
    async fn an_aside_belongs_to_its_request_and_no_request_comes_without_a_head() {
        let activity = ConnActivity::new();
        let aside = || Aside::Refused(RefusedHead::bad_request("x"));
        for has_aside in [false, true, false] {
            activity.end_head(has_aside.then(aside));
        }
        let taken = [(); 4].map(|()| activity.next_aside().is_some());
        assert_eq!(taken, [false, true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_open_request_is_idle() {
        let activity = ConnActivity::new();
        let (one, two) = (activity.begin_request(), activity.begin_request());
        drop(one);
        assert!(!idle_times_out(&activity, TIMEOUT * 9).await, "a watch is open");
        drop(two);
        assert!(!idle_times_out(&activity, TIMEOUT - Duration::from_secs(1)).await);
        assert!(idle_times_out(&activity, Duration::from_secs(2)).await);
    }
}
