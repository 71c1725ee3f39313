//! The health of one API server: whether it gets requests, judged by probes of `/readyz` and by the
//! outcome of requests.
//!
//! Probes: two of the last three failed, and the server is out; two in a row succeeded, and it is
//! in. While a request waits for long, one probe without an answer is enough: the server hangs. A
//! server that is shutting down is draining at once: what is in progress there goes on, and it gets
//! nothing new. Requests: three transport failures one after the other eject it for a second, which
//! doubles up to [`EJECTION_MAX`]. No response ejects: webhooks and aggregated API servers cause
//! many a 5xx, and `/readyz` fails without etcd. Neither latency nor a 429 ever ejects:
//! [`load`](super::load) has them.
//!
//! When an ejection is over, the server is half-open: one probe decides, and never a client's
//! request.
//!
//! Time is an argument, and there is no task and no lock: the caller has both.

use std::time::Duration;

use tokio::time::Instant;

/// The health of one API server.
#[derive(Debug)]
pub(crate) struct Health {
    standing: Standing,
    /// When the server last began to be usable.
    usable_since: Option<Instant>,
    /// Whether it was ever reached.
    was_reached: bool,
    /// The latest probes, the newest one last: whether each succeeded.
    probes: [bool; PROBES],
    /// The transport failures one after the other, and the time of the last of them.
    failures: u32,
    last_failure: Option<Instant>,
    /// Whether a request waits for long, and no probe has answered since.
    is_suspected: bool,
    /// The ejections since the last long time without one.
    doublings: u32,
    pub(crate) ejections: u64,
    last_goaway: Option<Instant>,
    last_not_ready: Option<Instant>,
}

/// Whether the server gets requests, without the passing of time.
#[derive(Clone, Copy, Debug)]
enum Standing {
    In,
    Draining,
    /// Probes failed.
    Out,
    /// Requests failed.
    Ejected {
        at: Instant,
        until: Instant,
    },
    /// Never reached; tried at `next`.
    Unreachable {
        next: Instant,
    },
}

crate::api::labels! {
    /// The state of a server, with a fixed word for metrics and logs.
    pub(crate) enum State {
        /// It gets requests.
        Usable = "usable",
        /// It is shutting down: nothing new goes there.
        Draining = "draining",
        /// Its probes or requests failed.
        Ejected = "ejected",
        /// The ejection is over, and a probe decides.
        HalfOpen = "half-open",
        /// It was never reached.
        Unreachable = "unreachable",
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There was a response, whatever its status.
    Answered,
    /// There was no connection, or it broke.
    TransportFailure,
}

/// The result of a probe of `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The server is ready, or answers that Weir may not read `/readyz`.
    Ready,
    /// The server answers that it is not ready.
    NotReady,
    /// The server answers that it is shutting down.
    ShuttingDown,
    /// There was no answer in time.
    Failed,
}

impl Health {
    /// Creates the health of the configured address. It is usable until something fails, since
    /// requests have to try it in any case.
    pub(crate) fn configured() -> Self {
        Self::new(Standing::In, true)
    }

    /// Creates the health of an address that was found. It is usable after the first probe that
    /// succeeds, which is due at once.
    pub(crate) fn unprobed(now: Instant) -> Self {
        Self::new(Standing::Unreachable { next: now }, false)
    }

    fn new(standing: Standing, was_reached: bool) -> Self {
        Self {
            standing,
            usable_since: None,
            was_reached,
            probes: [true; PROBES],
            failures: 0,
            last_failure: None,
            is_suspected: false,
            doublings: 0,
            ejections: 0,
            last_goaway: None,
            last_not_ready: None,
        }
    }

    /// Notes the outcome of a request that began at `started`.
    ///
    /// Requests that were in progress together count as one failure in a row: the end of one
    /// connection ends all of them. A response to a request that began after the ejection ends it;
    /// while no server is usable, requests are sent to ejected ones.
    pub(crate) fn record(&mut self, outcome: Outcome, started: Instant, now: Instant) {
        if outcome == Outcome::TransportFailure {
            if self.last_failure.is_none_or(|last| started >= last) {
                self.failures += 1;
                self.last_failure = Some(now);
            }
            if self.failures >= FAILURES_MAX {
                self.eject(now);
            }
            return;
        }
        self.failures = 0;
        match self.standing {
            Standing::Ejected { at, .. } if started >= at => self.admit(now),
            Standing::Unreachable { .. } => self.admit(now),
            _ => {}
        }
    }

    /// Notes the result of a probe.
    pub(crate) fn probe(&mut self, result: ProbeResult, now: Instant) {
        let is_ready = result == ProbeResult::Ready;
        let hangs = std::mem::take(&mut self.is_suspected) && result == ProbeResult::Failed;
        self.probes.rotate_left(1);
        if let Some(newest) = self.probes.last_mut() {
            *newest = is_ready;
        }
        if matches!(self.standing, Standing::Unreachable { .. }) {
            return self.probe_unreachable(result, now);
        }
        match result {
            ProbeResult::ShuttingDown => return self.drain(),
            ProbeResult::NotReady => {
                self.last_not_ready = Some(now);
                if is_recent(self.last_goaway, now) {
                    return self.drain();
                }
            }
            ProbeResult::Ready | ProbeResult::Failed => {}
        }
        match (self.standing, is_ready) {
            // The probe was the trial of a half-open server.
            (Standing::Ejected { until, .. }, true) if now >= until => self.admit(now),
            (Standing::Ejected { until, .. }, false) if now >= until => self.eject(now),
            (Standing::Draining | Standing::Out, true) if self.last_probes_succeeded() => {
                self.admit(now);
            }
            (Standing::In | Standing::Draining, false) if hangs || self.probes_failed() => {
                self.standing = Standing::Out;
            }
            _ => {}
        }
    }

    fn probe_unreachable(&mut self, result: ProbeResult, now: Instant) {
        match result {
            ProbeResult::Ready => self.admit(now),
            ProbeResult::Failed => {
                self.standing = Standing::Unreachable { next: now + UNREACHABLE_INTERVAL };
            }
            ProbeResult::NotReady | ProbeResult::ShuttingDown => {
                self.standing = Standing::Out;
                self.was_reached = true;
            }
        }
    }

    /// Notes that a request waits for long. If the next probe gets no answer either, the server is
    /// out: it hangs.
    pub(crate) fn suspect(&mut self) {
        self.is_suspected = matches!(self.standing, Standing::In);
    }

    /// Notes that a response said that the server is shutting down.
    pub(crate) fn shutting_down(&mut self) {
        self.drain();
    }

    /// Notes that the server sent a GOAWAY. kube-apiserver also does so after a refused credential
    /// and to spread its connections, so it counts only together with a failing `/readyz`.
    pub(crate) fn goaway(&mut self, now: Instant) {
        self.last_goaway = Some(now);
        if is_recent(self.last_not_ready, now) {
            self.drain();
        }
    }

    pub(crate) fn state(&self, now: Instant) -> State {
        match self.standing {
            Standing::In => State::Usable,
            Standing::Draining => State::Draining,
            Standing::Ejected { until, .. } if now >= until => State::HalfOpen,
            Standing::Out | Standing::Ejected { .. } => State::Ejected,
            Standing::Unreachable { .. } => State::Unreachable,
        }
    }

    /// Returns when the next probe is due, if the last one was at `last`. `interval` is the time
    /// between two probes of a usable server.
    pub(crate) fn next_probe(&self, last: Instant, interval: Duration) -> Instant {
        match self.standing {
            Standing::Ejected { until, .. } => until.max(last).min(last + interval),
            Standing::Unreachable { next } => next.max(last),
            // The next probe decides, and requests may hang until then.
            Standing::In if self.is_suspected || self.probes.last() == Some(&false) => {
                last + interval.min(SECOND_PROBE)
            }
            Standing::In | Standing::Draining | Standing::Out => last + interval,
        }
    }

    /// Returns whether the server was ever reached. One that was not is no reason to assume that
    /// the upstream is away.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached
    }

    fn last_probes_succeeded(&self) -> bool {
        self.probes.iter().rev().take(PROBES_GOOD).all(|&succeeded| succeeded)
    }

    fn probes_failed(&self) -> bool {
        self.probes.iter().filter(|&&succeeded| !succeeded).count() >= PROBES_FAILED
    }

    /// Makes the server usable. The failures before no longer count.
    fn admit(&mut self, now: Instant) {
        self.standing = Standing::In;
        self.usable_since = Some(now);
        self.was_reached = true;
        self.probes = [true; PROBES];
        self.forget_requests();
    }

    /// Ejects a server that is usable, or whose last ejection is over.
    fn eject(&mut self, now: Instant) {
        match self.standing {
            Standing::In => {}
            Standing::Ejected { until, .. } if now >= until => {}
            _ => return,
        }
        let was_long_usable = self.usable_since.is_none_or(|since| now >= since + FORGIVEN_AFTER);
        if was_long_usable && matches!(self.standing, Standing::In) {
            self.doublings = 0;
        }
        let base = EJECTION_MIN.saturating_mul(1 << self.doublings.min(DOUBLINGS_MAX));
        let time = base.mul_f64(0.75 + 0.5 * fastrand::f64()).min(EJECTION_MAX);
        self.doublings = self.doublings.saturating_add(1);
        self.ejections += 1;
        self.standing = Standing::Ejected { at: now, until: now + time };
        self.forget_requests();
    }

    fn drain(&mut self) {
        self.standing = match self.standing {
            // A server that was never reached, or whose probes failed, gets nothing in any case.
            standing @ (Standing::Unreachable { .. } | Standing::Out) => standing,
            _ => Standing::Draining,
        };
    }

    fn forget_requests(&mut self) {
        self.failures = 0;
        self.last_failure = None;
    }
}

/// Whether something happened within [`RECENT`].
fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < RECENT)
}

/// The probes that are remembered, how many of them must fail for the server to be out, and how
/// many must succeed in a row for it to be in.
const PROBES: usize = 3;
const PROBES_FAILED: usize = 2;
const PROBES_GOOD: usize = 2;
/// The longest time until the probe after the first one that failed, or after a request that waits
/// for long.
const SECOND_PROBE: Duration = Duration::from_millis(500);
/// The transport failures one after the other that eject.
const FAILURES_MAX: u32 = 3;
/// The first and the longest ejection.
const EJECTION_MIN: Duration = Duration::from_secs(1);
const EJECTION_MAX: Duration = Duration::from_secs(30);
/// Keeps the doubling of the ejection from overflowing. It exceeds the longest ejection.
const DOUBLINGS_MAX: u32 = 5;
/// The ejections of a server that was usable for this time begin with the shortest again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);
/// How often a server that was never reached is tried.
const UNREACHABLE_INTERVAL: Duration = Duration::from_secs(60);
/// The time in which a GOAWAY and a failing `/readyz` mean that the server is shutting down: two
/// probes.
const RECENT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
