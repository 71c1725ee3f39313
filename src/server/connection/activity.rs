//! Activity of a client connection, and the time-outs that follow from it.
//!
//! hyper's own header time-out does not run until the first bytes show the protocol. Afterwards it
//! has one limit for both an idle connection and an incomplete request head, although an idle
//! connection needs a long limit and an incomplete head a short one. Weir therefore observes the
//! bytes as they are read: the short limit applies from the first byte of a head to its last, the
//! long one between two requests (`docs/decisions/client-timeouts.md`).
//!
//! After the preface, HTTP/2 connections are subject only to the idle time-out, which sends GOAWAY.
//!
//! Lock: only that of the phase. It is held for a few instructions. HTTP/2 connections do not take
//! it after their preface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Tracks whether a connection is receiving a request head, answering a request, or idle. Cheap to
/// clone: clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct ConnActivity(Arc<ConnState>);

#[derive(Debug)]
struct ConnState {
    phase: Mutex<Phase>,
    /// Whether the phase is [`Phase::Http2`], which never changes again. Every read and every
    /// request checks this flag instead of taking the lock.
    http2: AtomicBool,
    open_requests: AtomicUsize,
    /// Whether the response of HTTP/1.1 waits for its turn.
    writes_wait: AtomicBool,
    accepted: Instant,
    /// When the last request ended, in milliseconds since `accepted`. Written before
    /// `open_requests` is decremented.
    last_ended_ms: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The protocol is not known yet: the first `matched` bytes of the HTTP/2 preface have arrived,
    /// and no others. A byte that does not match the preface belongs to a head of HTTP/1.1.
    UnknownProtocol { matched: usize, since: Instant },
    /// An HTTP/1.1 request head is arriving. `complete` is set if the bytes of the last read ended
    /// with the end of a head.
    Head { since: Instant, complete: bool },
    /// An HTTP/1.1 request is being answered. `more` is set if bytes of the next request arrived
    /// together with the head of this one.
    Busy { more: bool },
    /// The connection is between two requests of HTTP/1.1.
    Idle,
    /// The whole preface of HTTP/2 has arrived.
    Http2,
}

impl ConnActivity {
    /// Creates the state of a connection that was just accepted.
    pub(crate) fn new() -> Self {
        let accepted = Instant::now();
        Self(Arc::new(ConnState {
            phase: Mutex::new(Phase::UnknownProtocol { matched: 0, since: accepted }),
            http2: AtomicBool::new(false),
            open_requests: AtomicUsize::new(0),
            writes_wait: AtomicBool::new(false),
            accepted,
            last_ended_ms: AtomicU64::new(0),
        }))
    }

    /// Returns the number of requests that are being answered.
    pub(crate) fn open_requests(&self) -> usize {
        self.0.open_requests.load(Ordering::Relaxed)
    }

    /// Returns for how long the connection has been open.
    pub(crate) fn age(&self) -> Duration {
        self.0.accepted.elapsed()
    }

    /// Notes that the head of a request is complete. The request counts as open until the guard is
    /// dropped.
    pub(crate) fn begin_request(&self, has_body: bool) -> RequestGuard {
        self.0.open_requests.fetch_add(1, Ordering::Relaxed);
        if !self.is_http2() {
            let mut phase = self.0.phase.lock();
            // Bytes after the end of the head belong to the next head, unless the request has a
            // body.
            let more = matches!(*phase, Phase::Head { complete: false, .. }) && !has_body;
            *phase = Phase::Busy { more };
        }
        RequestGuard { activity: self.clone() }
    }

    /// Whether no request is open.
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
        loop {
            let now = Instant::now();
            let until = match *self.0.phase.lock() {
                Phase::Http2 => break,
                Phase::UnknownProtocol { since, .. } | Phase::Head { since, .. } => since + timeout,
                // A head that begins later cannot time out before this.
                Phase::Busy { .. } | Phase::Idle => now + timeout,
            };
            if until <= now {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
        std::future::pending().await
    }

    /// Resolves once an HTTP/2 connection has had no open request for `timeout`. Never resolves for
    /// HTTP/1.1.
    pub(crate) async fn idle_timeout(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let open = self.0.open_requests.load(Ordering::Acquire);
            let last_ended = Duration::from_millis(self.0.last_ended_ms.load(Ordering::Relaxed));
            let idle_since = self.0.accepted + last_ended;
            let until = if open == 0 { idle_since + timeout } else { now + timeout };
            if until > now {
                tokio::time::sleep_until(until).await;
            } else if self.is_http2() {
                return;
            } else {
                // hyper has an idle time-out for HTTP/1.1.
                tokio::time::sleep(timeout).await;
            }
        }
    }

    /// Updates the phase with bytes that were read from the connection.
    pub(crate) fn observe_read(&self, bytes: &[u8]) {
        if self.is_http2() {
            return;
        }
        let mut phase = self.0.phase.lock();
        let complete = bytes.ends_with(HEAD_END);
        *phase = match *phase {
            Phase::UnknownProtocol { matched, since } => {
                let expected = PREFACE.get(matched..).unwrap_or_default();
                let length = expected.len().min(bytes.len());
                if expected.get(..length) != bytes.get(..length) {
                    Phase::Head { since, complete }
                } else if length == expected.len() {
                    self.0.http2.store(true, Ordering::Relaxed);
                    Phase::Http2
                } else {
                    Phase::UnknownProtocol { matched: matched + length, since }
                }
            }
            Phase::Head { since, .. } => Phase::Head { since, complete },
            Phase::Idle => Phase::Head { since: Instant::now(), complete },
            other => other,
        };
    }
}

/// Keeps a request counted as open until it is dropped.
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
        if self.activity.is_http2() {
            return;
        }
        let mut phase = state.phase.lock();
        if let Phase::Busy { more } = *phase {
            *phase = if more {
                Phase::Head { since: Instant::now(), complete: false }
            } else {
                Phase::Idle
            };
        }
    }
}

/// The connection preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The end of a request head of HTTP/1.1.
const HEAD_END: &[u8] = b"\r\n\r\n";

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

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_head_times_out_and_an_idle_connection_does_not() {
        for begun in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"PUT /", b"GET / HT"] {
            let activity = ConnActivity::new();
            if !begun.is_empty() {
                activity.observe_read(begun);
            }
            assert!(header_times_out(&activity, PAST_TIMEOUT).await, "{begun:?}");
        }
        let activity = ConnActivity::new();
        activity.observe_read(&PREFACE[..10]);
        activity.observe_read(&PREFACE[10..]);
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "HTTP/2");

        let activity = ConnActivity::new();
        activity.observe_read(b"GET / HTTP/1.1\r\n\r\n");
        let request = activity.begin_request(false);
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "a slow response");
        drop(request);
        assert!(!header_times_out(&activity, TIMEOUT * 9).await, "idle");
        // More bytes of the same head do not extend the time-out.
        activity.observe_read(b"G");
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        activity.observe_read(b"E");
        assert!(header_times_out(&activity, Duration::from_secs(2)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_after_a_head_begin_the_next_head() {
        let activity = ConnActivity::new();
        activity.observe_read(b"GET / HTTP/1.1\r\n\r\nGET /ver");
        drop(activity.begin_request(false));
        assert!(header_times_out(&activity, PAST_TIMEOUT).await);

        let activity = ConnActivity::new();
        activity.observe_read(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
        drop(activity.begin_request(true));
        assert!(!header_times_out(&activity, PAST_TIMEOUT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_without_an_open_request_is_idle() {
        let activity = ConnActivity::new();
        activity.observe_read(PREFACE);
        let (one, two) = (activity.begin_request(false), activity.begin_request(false));
        drop(one);
        assert!(!idle_times_out(&activity, TIMEOUT * 9).await, "a watch is open");
        drop(two);
        assert!(!idle_times_out(&activity, TIMEOUT - Duration::from_secs(1)).await);
        assert!(idle_times_out(&activity, Duration::from_secs(2)).await);

        let activity = ConnActivity::new();
        activity.observe_read(b"GET / HTTP/1.1\r\n\r\n");
        drop(activity.begin_request(false));
        assert!(!idle_times_out(&activity, PAST_TIMEOUT * 9).await, "HTTP/1.1");
    }
}
