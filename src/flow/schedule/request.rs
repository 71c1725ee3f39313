//! The input of the scheduler, and its output: levels, requests, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use super::order::Width;
use super::share::LevelShare;

/// The treatment of requests that find no seats in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// They are sent: nothing waits, and nothing is rejected.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait.
    Queue {
        /// Requests of one flow that wait.
        flow_max: usize,
        /// Requests of all flows that wait.
        level_max: usize,
    },
}

/// The configuration of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSpec {
    /// The name, which is the level's identity when the levels change.
    pub name: Arc<str>,
    /// The treatment of requests that find no seats.
    pub manner: Manner,
    /// The part of all seats.
    pub share: LevelShare,
}

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arriving {
    /// A number that distinguishes the flows of a level.
    pub flow: u64,
    /// The seats that it takes; at least 1.
    pub seats: u64,
    /// The time for which it is expected to take them.
    pub guess: Duration,
    /// The longest time that it may wait.
    pub wait_max: Duration,
    /// Whether it may be rejected early after a long backlog: reads of one seat.
    pub is_short_read: bool,
}

/// Seats that a request has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) level: usize,
    pub(super) flow: u64,
    pub(super) seats: u64,
    pub(super) guess: Duration,
    pub(super) started: Duration,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingId {
    pub(super) level: usize,
    pub(super) flow: u64,
    pub(super) number: u64,
}

/// The outcome of the arrival of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It may be sent.
    Started(Ticket),
    /// It may be sent, although it would have to wait if it were not forced.
    Forced(Ticket),
    /// It waits for at most this time.
    Waits(WaitingId, Duration),
    /// It is refused.
    Rejected(Rejected),
}

/// The rejection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The reason.
    pub reason: RejectReason,
    /// The time after which a request of this flow may find seats.
    pub retry_after: Duration,
}

weir_api::labels! {
    /// The reasons of rejections.
    pub enum RejectReason {
        /// The level has no queue.
        Concurrency = "concurrency-limit",
        /// The queue of the flow, of the level or of all levels is full.
        QueueFull = "queue-full",
        /// The wait would be too long.
        TimeOut = "time-out",
    }
}

/// The outcome of a request that waited.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The request.
    pub id: WaitingId,
    /// Its seats, or its rejection.
    pub result: Result<Ticket, Rejected>,
}

/// The name of a level in a [`Scheduler`](super::Scheduler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelId(pub(super) usize);

/// The load of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Seats in use.
    pub seats: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// The seats that are the level's by its share.
    pub nominal: u64,
    /// The seats that others cannot borrow.
    pub least: u64,
}

/// The load of requests of several seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideLoad {
    /// Their seats in use.
    pub seats: u64,
    /// The most of these.
    pub seats_max: u64,
    /// Whether one waits because of that.
    pub is_limited: bool,
}

impl Arriving {
    /// Whether it is expected to hold its seats for long.
    pub(super) fn is_long(&self) -> bool {
        is_long(self.guess)
    }

    pub(super) fn width(&self) -> Width {
        Width { seats: self.seats, is_long: self.is_long() }
    }

    /// Returns the expected work, in seats times nanoseconds.
    pub(super) fn work(&self) -> i128 {
        work(self.seats, Duration::ZERO, self.guess)
    }
}

impl Ticket {
    /// Returns its level.
    pub fn level(&self) -> LevelId {
        LevelId(self.level)
    }

    /// Returns its seats.
    pub fn seats(&self) -> u64 {
        self.seats
    }

    pub(super) fn is_long(&self) -> bool {
        is_long(self.guess)
    }
}

impl Rejected {
    /// Returns the rejection of a request that has waited as long as it may.
    pub fn timed_out(retry_after: Duration) -> Self {
        Self { reason: RejectReason::TimeOut, retry_after }
    }
}

/// Returns seats times nanoseconds of the time beyond the guess.
pub(super) fn work(seats: u64, guess: Duration, held: Duration) -> i128 {
    let nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 64);
    i128::from(seats) * (nanoseconds(held) - nanoseconds(guess))
}

fn is_long(guess: Duration) -> bool {
    guess > LONG
}

/// A request that is expected to take more is long: seats that it borrows come back late.
const LONG: Duration = Duration::from_secs(1);
