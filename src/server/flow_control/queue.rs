//! Lets forwarded requests wait for their turn: the tasks behind a [`Scheduler`].
//!
//! A request asks for seats before it is sent, and holds them until its response has ended; a watch
//! until it has begun. In the mode `observe` nobody waits, and a request that would have waited is
//! counted.
//!
//! A seat is released when its [`SeatHold`] is dropped, however the request ends. A request whose
//! client goes away while it waits is taken out of its queue.
//!
//! One lock, never held across an await. Nothing is called under it but the scheduler, channels
//! that do not block, and metrics.

mod readings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::flow::estimates::Estimates;
use crate::flow::plan::Plan;
use crate::flow::schedule::Scheduler;
use crate::flow::schedule::request::{
    Arrival, Arriving, LevelId, LevelSpec, Manner, Outcome, Rejected, Ticket, WaitingId,
};
use crate::flow::schedule::share::LevelShare;
use crate::server::flow_control::metrics::{FlowMetrics, LevelMetrics};
use crate::server::flow_control::plan::UNIDENTIFIED;
use crate::server::flow_control::reading::SeatedReading;
use crate::upstream::send_options::AttemptObserver;

pub(super) struct Queue {
    inner: Mutex<Inner>,
    began: Instant,
    /// Whether requests wait; else it is only counted how many would.
    enforces: bool,
    /// Notified when a request of several seats begins or waits.
    wide_began: Notify,
    metrics: FlowMetrics,
}

#[derive(Default)]
struct Inner {
    scheduler: Scheduler,
    estimates: Estimates,
    levels: HashMap<Arc<str>, (LevelId, LevelMetrics), BuildKeyedHash>,
    waiting: HashMap<WaitingId, oneshot::Sender<Result<Ticket, Rejected>>, BuildKeyedHash>,
    /// The seats of all API servers, as far as they may be taken.
    allotment: Allotment,
    /// The responses that hold seats and are being read, by number.
    readings: HashMap<u64, SeatedReading, BuildKeyedHash>,
    last_reading: u64,
}

impl Inner {
    fn count(&self, level: &Arc<str>, count: impl FnOnce(&LevelMetrics)) {
        if let Some((_, metrics)) = self.levels.get(level) {
            count(metrics);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allotment {
    /// The seats of all API servers.
    pub(super) seats: u64,
    /// The levels that may have a percentage of their nominal seats at most.
    pub(super) caps: Vec<(Arc<str>, u64)>,
    /// The most seats of all requests of several seats; `None` for no limit.
    pub(super) wide_seats: Option<u64>,
}

pub(super) struct SeatRequest<'a> {
    /// The name of its priority level.
    pub(super) level: &'a Arc<str>,
    /// A hash that distinguishes the flows of a level.
    pub(super) flow: u64,
    /// The seats; at least 1.
    pub(super) seats: u64,
    /// A hash of the attributes that determine how long it takes.
    pub(super) kind: u64,
    pub(super) wait_max: Duration,
    /// Whether it is a read of one seat.
    pub(super) is_short_read: bool,
    /// [`SeatHold::observer`].
    pub(super) observer: Option<Arc<dyn AttemptObserver>>,
}

/// Seats of the API server, which are released when this hold is dropped.
pub(crate) struct SeatHold {
    queue: Arc<Queue>,
    ticket: Ticket,
    kind: u64,
    since: Instant,
    /// Learns of the attempts to send its request, and of its end when it is dropped.
    pub(crate) observer: Option<Arc<dyn AttemptObserver>>,
    /// The number under which the queue has the ticket, and may give it back earlier.
    reading: Option<u64>,
}

impl Queue {
    /// Begins without levels; [`Self::set_plan`] follows. `seats` are those of one API server.
    pub(super) fn new(enforces: bool, seats: u64, metrics: FlowMetrics) -> Arc<Self> {
        let allotment = Allotment { seats, ..Allotment::default() };
        let inner = Mutex::new(Inner { allotment, ..Inner::default() });
        let wide_began = Notify::new();
        Arc::new(Self { inner, began: Instant::now(), enforces, wide_began, metrics })
    }

    /// Replaces the levels; without a plan, as in a sidecar, one level has all seats.
    pub(super) fn set_plan(&self, plan: Option<&Plan>) {
        let levels = plan.into_iter().flat_map(Plan::levels).map(|level| LevelSpec {
            name: Arc::clone(&level.name),
            manner: level.manner(),
            share: level.share(),
        });
        let part =
            LevelShare::Fixed { percent: UNIDENTIFIED_PERCENT, seats_max: UNIDENTIFIED_SEATS };
        let whole_share =
            LevelShare::Shares { shares: 1, lendable_percent: 0, borrowing_percent: None };
        let unidentified = LevelSpec {
            name: UNIDENTIFIED.into(),
            manner: UNIDENTIFIED_QUEUES,
            share: if plan.is_some() { part } else { whole_share },
        };
        let specs: Vec<LevelSpec> = levels.chain([unidentified]).collect();
        let mut inner = self.inner.lock();
        let seats = shared_seats(inner.allotment.seats);
        let ids = inner.scheduler.configure(self.began.elapsed(), seats, &specs);
        let mut before = std::mem::take(&mut inner.levels);
        for (spec, id) in specs.iter().zip(ids) {
            let metrics = before.remove(&spec.name).map(|(_, metrics)| metrics);
            let metrics = metrics.unwrap_or_else(|| self.metrics.level(&spec.name));
            inner.levels.insert(Arc::clone(&spec.name), (id, metrics));
        }
        before.into_keys().for_each(|name| self.metrics.remove_level(&name));
        if !inner.allotment.caps.is_empty() {
            self.apply_allotment(&mut inner);
        }
        self.settle(&mut inner, None);
    }

    /// Sets what may be sent. Requests that were sent already stay.
    pub(super) fn set_allotment(&self, allotment: &Allotment) {
        let mut inner = self.inner.lock();
        if inner.allotment != *allotment {
            inner.allotment = allotment.clone();
            self.apply_allotment(&mut inner);
            self.settle(&mut inner, None);
        }
    }

    fn apply_allotment(&self, inner: &mut Inner) {
        let Allotment { seats, caps, wide_seats } = &inner.allotment;
        let id = |level: &Arc<str>| inner.levels.get(level).map(|(id, _)| *id);
        let caps: Vec<_> =
            caps.iter().filter_map(|(level, percent)| Some((id(level)?, *percent))).collect();
        let now = self.began.elapsed();
        inner.scheduler.limit(now, shared_seats(*seats), &caps);
        inner.scheduler.limit_wide(now, wide_seats.unwrap_or(u64::MAX));
    }

    /// Returns the seats that a level has in use, in parts of its nominal ones.
    pub(super) fn part_in_use(&self, level: &Arc<str>) -> f64 {
        let inner = self.inner.lock();
        let load = inner.levels.get(level).map(|(id, _)| inner.scheduler.load(*id));
        load.map_or(0.0, |load| load.seats as f64 / load.nominal.max(1) as f64)
    }

    /// Asks for seats of an API server. An error is a refusal.
    pub(super) fn ask(self: &Arc<Self>, mut request: SeatRequest<'_>) -> Result<Seats, Rejected> {
        let arrived = Instant::now();
        // Declared before the lock, so that a refused request drops it without the lock.
        let observer = request.observer.take();
        let mut inner = self.inner.lock();
        let Some((level, _)) = inner.levels.get(request.level) else {
            return Ok(Seats::Now(None));
        };
        let level = *level;
        let arriving = Arriving {
            flow: request.flow,
            seats: request.seats,
            guess: inner.estimates.duration(request.kind, request.seats),
            wait_max: request.wait_max,
            is_short_read: request.is_short_read,
        };
        let now = self.began.elapsed();
        let arrival = inner.scheduler.arrive(now, level, arriving, !self.enforces);
        let kind = request.kind;
        let answer = match arrival {
            Arrival::Started(ticket) | Arrival::Forced(ticket) => {
                inner.count(request.level, |metrics| {
                    if matches!(arrival, Arrival::Forced(_)) {
                        metrics.queue();
                    }
                    metrics.waited(arrived.elapsed());
                });
                Ok(Seats::Now(Some(self.hold(kind, ticket, observer))))
            }
            Arrival::Waits(id, wait_max) => {
                inner.count(request.level, LevelMetrics::queue);
                let (sender, receiver) = oneshot::channel();
                inner.waiting.insert(id, sender);
                Ok(Seats::Later(Waiter {
                    queue: Arc::clone(self),
                    id,
                    receiver,
                    level: Arc::clone(request.level),
                    kind,
                    arrived,
                    wait_max,
                    observer,
                }))
            }
            Arrival::Rejected(rejected) => {
                inner.count(request.level, |metrics| metrics.reject(rejected.reason));
                Err(rejected)
            }
        };
        if request.seats > 1 {
            self.wide_began.notify_one();
        }
        self.settle(&mut inner, Some(level));
        answer
    }

    fn hold(
        self: &Arc<Self>,
        kind: u64,
        ticket: Ticket,
        observer: Option<Arc<dyn AttemptObserver>>,
    ) -> SeatHold {
        let (queue, since) = (Arc::clone(self), Instant::now());
        SeatHold { queue, ticket, kind, since, observer, reading: None }
    }

    /// Delivers what the scheduler has decided, and shows the load of `changed`, or of all levels
    /// if others may have changed too.
    fn settle(&self, inner: &mut Inner, mut changed: Option<LevelId>) {
        loop {
            let outcomes = inner.scheduler.take_outcomes();
            if outcomes.is_empty() {
                break;
            }
            changed = None;
            for Outcome { id, result } in outcomes {
                let Some(sender) = inner.waiting.remove(&id) else { continue };
                // Its client has gone, and its seats with it.
                if let Err(Ok(ticket)) = sender.send(result) {
                    inner.scheduler.finish(self.began.elapsed(), ticket);
                }
            }
        }
        for (id, metrics) in inner.levels.values() {
            if changed.is_none_or(|changed| changed == *id) {
                metrics.show(inner.scheduler.load(*id));
            }
        }
    }

    fn give_back(&self, hold: &SeatHold) {
        let mut inner = self.inner.lock();
        let held = match hold.reading {
            None => Some((hold.ticket, false, None)),
            Some(number) => {
                let seated = inner.readings.remove(&number);
                seated.map(|seated| (seated.ticket, seated.is_narrow, seated.reading.whole()))
            }
        };
        if let Some((ticket, is_slow, bytes)) = held {
            // How slowly a client reads says nothing about the next request.
            if !is_slow {
                inner.estimates.add(hold.kind, hold.since.elapsed(), bytes);
            }
            inner.scheduler.finish(self.began.elapsed(), ticket);
        }
        self.settle(&mut inner, Some(hold.ticket.level()));
    }
}

/// The seats of a request, or the wait for them.
pub(crate) enum Seats {
    /// It may be forwarded, and holds these meanwhile, if it needs any.
    Now(Option<SeatHold>),
    /// It has to wait.
    Later(Waiter),
}

/// A request that waits. It leaves its queue when it is dropped.
pub(crate) struct Waiter {
    queue: Arc<Queue>,
    id: WaitingId,
    receiver: oneshot::Receiver<Result<Ticket, Rejected>>,
    /// The name of its priority level.
    level: Arc<str>,
    kind: u64,
    arrived: Instant,
    wait_max: Duration,
    observer: Option<Arc<dyn AttemptObserver>>,
}

impl Waiter {
    /// Waits for seats. An error is a refusal.
    ///
    /// The future uses what the waiter has where it lies. An `async fn` would have all of it twice,
    /// as arguments and as variables, and thousands of requests may wait.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has its arguments twice")]
    pub(crate) fn wait(mut self) -> impl Future<Output = Result<SeatHold, Rejected>> + Send {
        async move {
            let result = match tokio::time::timeout(self.wait_max, &mut self.receiver).await {
                Ok(result) => result.unwrap_or_else(|_| Err(Rejected::timed_out(self.wait_max))),
                Err(_) => self.time_out(),
            };
            self.end(result)
        }
    }

    /// Leaves the queue after the longest wait. Returns why it is refused, or what was decided at
    /// the same moment.
    fn time_out(&mut self) -> Result<Ticket, Rejected> {
        match self.leave() {
            Some(expected) => Err(Rejected::timed_out(expected)),
            None => self.receiver.try_recv().unwrap_or(Err(Rejected::timed_out(self.wait_max))),
        }
    }

    /// Counts the wait.
    fn end(&mut self, result: Result<Ticket, Rejected>) -> Result<SeatHold, Rejected> {
        let inner = self.queue.inner.lock();
        match result {
            Ok(ticket) => {
                inner.count(&self.level, |metrics| metrics.waited(self.arrived.elapsed()));
                drop(inner);
                Ok(self.queue.hold(self.kind, ticket, self.observer.take()))
            }
            Err(rejected) => {
                inner.count(&self.level, |metrics| metrics.reject(rejected.reason));
                Err(rejected)
            }
        }
    }

    /// Leaves the queue. Returns how long another would wait; `None` if it no longer waits.
    fn leave(&self) -> Option<Duration> {
        let mut inner = self.queue.inner.lock();
        let expected = inner.scheduler.cancel(self.queue.began.elapsed(), self.id)?;
        inner.waiting.remove(&self.id);
        self.queue.settle(&mut inner, None);
        Some(expected)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.leave().is_none()
            && let Ok(Ok(ticket)) = self.receiver.try_recv()
        {
            let mut inner = self.queue.inner.lock();
            inner.scheduler.finish(self.queue.began.elapsed(), ticket);
            self.queue.settle(&mut inner, None);
        }
    }
}

impl Drop for SeatHold {
    fn drop(&mut self) {
        self.queue.give_back(self);
    }
}

/// Returns the seats that levels share. A reserve stays for exempt requests and Weir's own.
fn shared_seats(total: u64) -> u64 {
    total.saturating_sub(RESERVE_MIN.max(total / RESERVE_PART)).max(1)
}

const RESERVE_MIN: u64 = 8;
const RESERVE_PART: u64 = 10;
/// Requests whose user is unknown have a small part of their own, so that a flood of forged tokens
/// takes nothing from others.
const UNIDENTIFIED_PERCENT: u32 = 5;
const UNIDENTIFIED_SEATS: u64 = 64;
const UNIDENTIFIED_QUEUES: Manner = Manner::Queue { flow_max: 50, level_max: 3200 };

#[cfg(test)]
mod tests;
