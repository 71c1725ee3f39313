//! Whether an HTTP/2 connection lives, as the bytes show that arrive on it.
//!
//! A balancer can keep a connection open and pass nothing. An answer on it then never comes, but an
//! API server may also need a minute for one (slow webhooks, long lists). A PING it answers at
//! once, whatever it does. So a connection that is quiet is pinged: soon while it owes an answer,
//! and rarely otherwise ([`Liveness::ping_due`]).
//!
//! A connection that does not answer a ping in time is *silent*: new requests use another one, and
//! reads that wait there may leave it. It is used again when a byte arrives. After [`DEAD_AFTER`]
//! without a byte it is *dead* and closed (`docs/decisions/request-retries.md`).
//!
//! Bytes count, not pings: while a large answer arrives over a slow network, the answer to a ping
//! waits behind it. And only the time after a ping was sent counts, not a time in which this
//! process was stopped.
//!
//! All times are milliseconds since `start`, in atomics. The task of the connection reads and
//! changes them; requests note that they wait, and read `is_silent`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::group_streams::GroupStreams;

/// Whether one connection lives.
pub(super) struct Liveness {
    start: Instant,
    /// The time that the answer to a ping may take.
    pong_time: Duration,
    /// The time at which the last bytes arrived.
    last_read: AtomicU64,
    /// The time at which the last ping was sent.
    pinged_at: AtomicU64,
    /// The exchanges that wait for the peer.
    in_flight: AtomicUsize,
    /// The time since which there is at least one.
    busy_since: AtomicU64,
    is_silent: AtomicBool,
    is_dead: AtomicBool,
    /// Notified when the connection falls silent.
    silenced: Notify,
    /// Notified when a silent connection can be used again.
    streams: Arc<GroupStreams>,
}

impl Liveness {
    /// Creates the liveness of a new connection, which was opened in this time.
    pub(super) fn new(opened_in: Duration, streams: Arc<GroupStreams>) -> Self {
        Self {
            start: Instant::now(),
            // To open a connection takes at least two round trips.
            pong_time: opened_in.clamp(PONG_TIME_MIN, PONG_TIME_MAX),
            last_read: AtomicU64::new(0),
            pinged_at: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            busy_since: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            silenced: Notify::new(),
            streams,
        }
    }

    /// Notes that an exchange begins to wait for the peer.
    pub(super) fn begin(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            self.busy_since.store(self.millis(Instant::now()), Ordering::Relaxed);
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an exchange does not wait for the peer any more.
    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that bytes arrived.
    pub(super) fn heard(&self) {
        self.last_read.store(self.millis(Instant::now()), Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
            self.streams.freed.notify_waiters();
        }
    }

    /// Returns when the next ping is due.
    pub(super) fn ping_due(&self) -> Instant {
        let last_read = self.at(&self.last_read);
        let idle = last_read + PING_IDLE;
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            return idle;
        }
        idle.min(last_read.max(self.at(&self.busy_since)) + PING_BUSY)
    }

    /// Notes that a ping is sent now. The first one since the last bytes counts.
    pub(super) fn pinged(&self) {
        let pinged_at = self.pinged_at.load(Ordering::Relaxed);
        if pinged_at <= self.last_read.load(Ordering::Relaxed) {
            self.pinged_at.store(self.millis(Instant::now()), Ordering::Relaxed);
        }
    }

    /// Returns when to [`check`](Self::check) next, if nothing arrives.
    pub(super) fn next_check(&self) -> Instant {
        let (last_read, pinged_at) = (self.at(&self.last_read), self.at(&self.pinged_at));
        let is_pinged = pinged_at > last_read;
        let asked_at = if is_pinged { pinged_at } else { self.ping_due() };
        if self.is_silent() {
            return (last_read + DEAD_AFTER).max(asked_at + UNANSWERED_MIN);
        }
        asked_at + self.pong_time
    }

    /// Checks the connection after everything was read that has arrived. Fails if it is dead.
    pub(super) fn check(&self) -> io::Result<()> {
        if Instant::now() < self.next_check() {
            return Ok(());
        }
        if self.is_silent() {
            self.is_dead.store(true, Ordering::Relaxed);
            let text = format!("the API server answered nothing, and no ping, for {DEAD_AFTER:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        self.is_silent.store(true, Ordering::Relaxed);
        self.silenced.notify_waiters();
        Ok(())
    }

    /// Returns whether the last ping was not answered in time.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Returns whether the connection was closed because it is dead.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Waits until the connection is silent.
    pub(super) async fn until_silent(&self) {
        loop {
            // Registered before the state is read, so that no notification is missed.
            let silenced = self.silenced.notified();
            if self.is_silent() {
                return;
            }
            silenced.await;
        }
    }

    fn at(&self, millis: &AtomicU64) -> Instant {
        self.start + Duration::from_millis(millis.load(Ordering::Relaxed))
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from((now - self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

/// How long a connection may be quiet while it owes an answer, before it is pinged. Most answers
/// take less.
pub(super) const PING_BUSY: Duration = Duration::from_millis(250);
/// How long a connection may be quiet while it owes nothing, before it is pinged.
const PING_IDLE: Duration = Duration::from_secs(4);
/// How long the answer to a ping may take on a connection that was opened at once, or in a long
/// time. Bounded, since a connection may have been opened while the API server was overloaded.
const PONG_TIME_MIN: Duration = Duration::from_millis(250);
const PONG_TIME_MAX: Duration = Duration::from_secs(2);
/// A connection without a byte for this time is dead. A network that reroutes is quiet for a few
/// seconds.
const DEAD_AFTER: Duration = Duration::from_secs(9);
/// The least time of it that follows a ping.
const UNANSWERED_MIN: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    fn liveness(opened_in: Duration) -> Liveness {
        Liveness::new(opened_in, Arc::default())
    }

    async fn advance(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    /// Pings if one is due, and checks. Returns whether the connection is silent, and whether dead.
    fn turn(liveness: &Liveness) -> (bool, bool) {
        if Instant::now() >= liveness.ping_due() {
            liveness.pinged();
        }
        let is_dead = liveness.check().is_err();
        (liveness.is_silent(), is_dead)
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_silent_soon() {
        let liveness = liveness(Duration::ZERO);
        advance(3000).await;
        liveness.heard();
        liveness.begin();
        let expected = [(249, false), (1, false), (249, false), (1, true), (8499, true)];
        for (millis, is_silent) in expected {
            advance(millis).await;
            assert_eq!(turn(&liveness), (is_silent, false), "after {millis} more");
        }
        liveness.heard();
        assert!(!liveness.is_silent());
        advance(500).await;
        // The ping is sent late, after the process was stopped.
        assert_eq!(turn(&liveness), (false, false));
        advance(250).await;
        assert_eq!(turn(&liveness), (true, false));
        advance(8249).await;
        assert_eq!(turn(&liveness), (true, false));
        advance(1).await;
        assert_eq!(turn(&liveness), (true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_dead_after_nine_seconds() {
        let liveness = liveness(Duration::ZERO);
        liveness.begin();
        liveness.end();
        for (millis, is_silent, is_dead) in
            [(3999, false, false), (1, false, false), (250, true, false), (4750, true, true)]
        {
            advance(millis).await;
            assert_eq!(turn(&liveness), (is_silent, is_dead), "after {millis} more");
        }
    }

    /// Such as the virtual machine or the laptop.
    #[tokio::test(start_paused = true)]
    async fn a_time_in_which_the_process_was_stopped_does_not_count() {
        let liveness = liveness(Duration::ZERO);
        advance(3_600_000).await;
        assert_eq!(turn(&liveness), (false, false));
        advance(100).await;
        liveness.heard();
        advance(3900).await;
        assert_eq!(turn(&liveness), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_a_ping_may_take_as_long_as_to_open_the_connection() {
        for (opened_in, silent_after) in [(0, 250), (800, 800), (20_000, 2000)] {
            let liveness = liveness(Duration::from_millis(opened_in));
            liveness.begin();
            advance(250).await;
            assert_eq!(turn(&liveness), (false, false));
            advance(silent_after - 1).await;
            assert_eq!(turn(&liveness), (false, false), "{opened_in}");
            advance(1).await;
            assert_eq!(turn(&liveness), (true, false), "{opened_in}");
        }
    }
}
