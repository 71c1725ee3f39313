//! One priority level: its seats in use, and a queue for each flow.
//!
//! A flow exists while it waits or runs. Its start tag is the work that it was given, as virtual
//! time; the flow with the least tag is next. A flow that comes back begins at the tag of the last
//! start, so that idleness gives no credit.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::flow::{Flow, Waiting};
use super::order::Order;
use super::request::{Arriving, LevelSpec, Manner, Ticket};
use super::share::{LevelShare, Limits, SeatSums};
use weir_api::keyed_hash::BuildHashOfHash;

#[derive(Debug)]
pub(super) struct Level {
    pub(super) spec: LevelSpec,
    pub(super) limits: Limits,
    /// The most seats, in percent of its nominal ones.
    pub(super) percent_max: Option<u64>,
    pub(super) in_use: u64,
    /// The part of `in_use` that requests of several seats hold.
    wide_in_use: u64,
    /// The part of `in_use` that long requests hold.
    long_in_use: u64,
    /// Whether the configuration no longer has it.
    pub(super) is_gone: bool,
    /// The key is a hash that is seeded at random.
    flows: HashMap<u64, Flow, BuildHashOfHash>,
    order: Order,
    /// The flows that wait, by the number of their requests.
    lengths: BTreeSet<(usize, u64)>,
    waiting: usize,
    /// The start tag of the last start.
    virtual_time: i128,
    /// The time since which requests wait without a break.
    backlogged: Option<Duration>,
    /// The time until which a flow that is alone leaves a part to others: these come back.
    contended_until: Duration,
}

/// The seats that a level may take now.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvailableSeats {
    /// All of them.
    pub(super) total: u64,
    /// Those of its least.
    pub(super) minimum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// There are no seats for it.
    No,
    /// Its flow has its part, and others of the level are active.
    FlowHasEnough,
}

impl Level {
    pub(super) fn new(spec: LevelSpec) -> Self {
        Self {
            spec,
            limits: Limits::default(),
            percent_max: None,
            in_use: 0,
            wide_in_use: 0,
            long_in_use: 0,
            is_gone: false,
            flows: HashMap::default(),
            order: Order::default(),
            lengths: BTreeSet::new(),
            waiting: 0,
            virtual_time: 0,
            backlogged: None,
            contended_until: Duration::ZERO,
        }
    }

    /// Returns its share; nothing once it is gone and empty.
    pub(super) fn share(&self) -> LevelShare {
        if self.is_gone && self.is_empty() {
            return LevelShare::Shares {
                shares: 0,
                lendable_percent: 0,
                borrowing_percent: Some(0),
            };
        }
        self.spec.share
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn waiting_of(&self, flow: u64) -> usize {
        self.flows.get(&flow).map_or(0, |flow| flow.queue.len())
    }

    /// Returns its part in the sums over all levels.
    pub(super) fn sums(&self) -> SeatSums {
        self.sums_with(0, 0)
    }

    /// Returns the same as if another request with `seats` had started, of which `long_seats` are
    /// those of a long one. The claim of exempt requests is a reserve.
    pub(super) fn sums_with(&self, seats: u64, long_seats: u64) -> SeatSums {
        let Limits { least, nominal, .. } = self.limits;
        if self.spec.manner == Manner::Exempt {
            return SeatSums { claimed: least, ..SeatSums::default() };
        }
        let in_use = self.in_use + seats;
        SeatSums {
            claimed: in_use.max(least),
            borrowed: in_use.saturating_sub(nominal),
            borrowed_long: (self.long_in_use + long_seats).saturating_sub(nominal),
        }
    }

    pub(super) fn has_wide(&self) -> bool {
        self.wide_in_use > 0
    }

    pub(super) fn has_long(&self) -> bool {
        self.long_in_use > 0
    }

    /// Whether there are several flows, which wait or run.
    pub(super) fn has_several_flows(&self) -> bool {
        self.flows.len() > 1
    }

    /// Returns the flows that wait, by their first requests.
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// Returns the number of the next request.
    pub(super) fn oldest(&self) -> u64 {
        self.order.first().map_or(u64::MAX, |head| head.number)
    }

    pub(super) fn tag(&self, flow: u64) -> i128 {
        self.flows.get(&flow).map_or(self.virtual_time, |flow| flow.tag)
    }

    pub(super) fn get(&self, flow: u64, number: u64) -> Option<&Waiting> {
        let queue = &self.flows.get(&flow)?.queue;
        queue.get(queue.binary_search_by_key(&number, Waiting::number).ok()?)
    }

    pub(super) fn has(&self, flow: u64, number: u64) -> bool {
        self.get(flow, number).is_some()
    }

    /// Notes whether several flows are active.
    pub(super) fn note_flows(&mut self, now: Duration) {
        if self.has_several_flows() {
            self.contended_until = now + CONTENDED_FOR;
        }
    }

    /// Whether a flow may take seats of those that are there for the level.
    pub(super) fn fit(
        &self,
        now: Duration,
        flow: u64,
        seats: u64,
        available: AvailableSeats,
    ) -> Fit {
        if seats > available.total {
            return Fit::No;
        }
        let nominal = self.limits.nominal;
        let present = if seats <= available.minimum {
            nominal
        } else {
            nominal.max(self.in_use + available.total)
        };
        let part = |percent: u64| (present * percent / 100).max(1);
        let flow = self.flows.get(&flow);
        let flow_seats = flow.map_or(0, |flow| flow.in_use);
        let are_others =
            self.flows.len() > usize::from(flow.is_some()) || now < self.contended_until;
        if are_others && flow_seats > 0 && flow_seats + seats > part(FLOW_PERCENT_MAX) {
            return Fit::FlowHasEnough;
        }
        let is_wide = seats > 1 && self.wide_in_use > 0;
        if is_wide && self.wide_in_use + seats > part(WIDE_PERCENT_MAX) {
            return Fit::No;
        }
        Fit::Yes
    }

    /// Returns how long a request of a flow is expected to take until it ends: the work of its flow
    /// before it, of which the other flows do as much meanwhile, and its own.
    pub(super) fn expected_wait(&self, request: &Arriving) -> Duration {
        let flow_work = self.flows.get(&request.flow).map_or(0, |flow| flow.work);
        let flows = self.flows.len().max(1) as i128;
        let seats = i128::from(self.limits.nominal.max(self.in_use).max(1));
        Duration::from_nanos(
            u64::try_from((flow_work.saturating_mul(flows) + request.work()) / seats)
                .unwrap_or(u64::MAX),
        )
    }

    pub(super) fn wait_max(&self, now: Duration, request: &Arriving) -> Duration {
        let long = self.backlogged.is_some_and(|since| now.saturating_sub(since) > BACKLOG_LONG);
        if long && request.is_short_read { request.wait_max / 4 } else { request.wait_max }
    }

    /// Returns the most seats of one request: beside it, those of one seat find places.
    pub(super) fn widest(&self) -> u64 {
        (self.limits.most * WIDE_PERCENT_MAX / 100).max(1)
    }

    /// Makes the requests that wait no wider than the level allows.
    pub(super) fn clamp_waiting(&mut self) {
        let most = self.widest();
        for flow in self.flows.values_mut() {
            flow.leave(&mut self.order);
            for Waiting { request, .. } in &mut flow.queue {
                request.seats = request.seats.min(most);
            }
            flow.work = flow.queue.iter().map(|waiting| waiting.request.work()).sum();
            flow.enter(&mut self.order);
        }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.backlogged.get_or_insert(waiting.arrived);
        let key = waiting.request.flow;
        let virtual_time = self.virtual_time;
        let flow = self.flows.entry(key).or_default();
        let length = flow.queue.len();
        flow.work += waiting.request.work();
        flow.queue.push_back(waiting);
        if length == 0 {
            flow.tag = flow.tag.max(virtual_time);
            flow.enter(&mut self.order);
        }
        self.note_length(key, length, length + 1);
    }

    pub(super) fn pop_newest(&mut self, key: u64) -> Option<Waiting> {
        let number = self.flows.get(&key)?.queue.back()?.number;
        self.remove(key, number)
    }

    pub(super) fn remove(&mut self, key: u64, number: u64) -> Option<Waiting> {
        let flow = self.flows.get_mut(&key)?;
        let place = flow.queue.binary_search_by_key(&number, Waiting::number).ok()?;
        if place == 0 {
            flow.leave(&mut self.order);
        }
        let length = flow.queue.len();
        let removed = flow.queue.remove(place)?;
        flow.work -= removed.request.work();
        if place == 0 {
            flow.enter(&mut self.order);
        }
        if flow.is_idle() {
            self.flows.remove(&key);
        }
        self.note_length(key, length, length - 1);
        Some(removed)
    }

    /// Returns the flow with the longest queue.
    pub(super) fn longest(&self) -> Option<u64> {
        self.lengths.last().map(|(_, flow)| *flow)
    }

    /// Gives seats to a request that has not waited.
    pub(super) fn start(&mut self, request: &Arriving) {
        let virtual_time = self.virtual_time;
        let flow = self.flows.entry(request.flow).or_default();
        flow.leave(&mut self.order);
        if flow.queue.is_empty() {
            flow.tag = flow.tag.max(virtual_time);
        }
        self.virtual_time = virtual_time.max(flow.tag);
        flow.start(request);
        flow.enter(&mut self.order);
        self.take_seats(request);
    }

    /// Gives seats to a request that waits, and returns it.
    pub(super) fn start_waiting(&mut self, key: u64, number: u64) -> Option<Waiting> {
        let flow = self.flows.get_mut(&key)?;
        let place = flow.queue.binary_search_by_key(&number, Waiting::number).ok()?;
        flow.leave(&mut self.order);
        let length = flow.queue.len();
        let waiting = flow.queue.remove(place)?;
        flow.work -= waiting.request.work();
        self.virtual_time = self.virtual_time.max(flow.tag);
        flow.start(&waiting.request);
        flow.enter(&mut self.order);
        self.note_length(key, length, length - 1);
        self.take_seats(&waiting.request);
        Some(waiting)
    }

    fn take_seats(&mut self, request: &Arriving) {
        let seats = request.seats;
        self.in_use += seats;
        if request.is_long() {
            self.long_in_use += seats;
        }
        if seats > 1 {
            self.wide_in_use += seats;
        }
    }

    /// Notes that one request less waits, or one more.
    fn note_length(&mut self, key: u64, before: usize, after: usize) {
        self.lengths.remove(&(before, key));
        if after > 0 {
            self.lengths.insert((after, key));
        }
        self.waiting = self.waiting + after - before;
        if self.waiting == 0 {
            self.backlogged = None;
        }
    }

    /// Takes seats back. `beyond` is the work beyond what was expected.
    pub(super) fn finish(&mut self, ticket: &Ticket, beyond: i128) {
        let Ticket { flow: key, seats, .. } = *ticket;
        self.in_use = self.in_use.saturating_sub(seats);
        if ticket.is_long() {
            self.long_in_use = self.long_in_use.saturating_sub(seats);
        }
        if seats > 1 {
            self.wide_in_use = self.wide_in_use.saturating_sub(seats);
        }
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.running = flow.running.saturating_sub(1);
        flow.in_use = flow.in_use.saturating_sub(seats);
        flow.move_by(beyond, &mut self.order);
        if flow.is_idle() {
            self.flows.remove(&key);
        }
        if self.flows.is_empty() {
            self.virtual_time = 0;
        }
    }

    /// Takes back all of a request's seats but one. `beyond` is their work beyond the expected.
    pub(super) fn narrow(&mut self, ticket: &Ticket, beyond: i128) {
        let Ticket { flow: key, seats, .. } = *ticket;
        let rest = seats.saturating_sub(1);
        self.in_use = self.in_use.saturating_sub(rest);
        if ticket.is_long() {
            self.long_in_use = self.long_in_use.saturating_sub(rest);
        }
        self.wide_in_use = self.wide_in_use.saturating_sub(seats);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.in_use = flow.in_use.saturating_sub(rest);
        flow.move_by(beyond, &mut self.order);
    }
}

/// The part of a level that one flow may take while others are active.
const FLOW_PERCENT_MAX: u64 = 80;
/// The time for which it may not take the rest after the others are gone.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// The part of a level that requests of several seats may take, so that those of one find places.
const WIDE_PERCENT_MAX: u64 = 75;
/// After such a backlog waits become shorter: the requests at its end are too late for their
/// clients (CoDel's idea).
const BACKLOG_LONG: Duration = Duration::from_secs(10);
