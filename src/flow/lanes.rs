//! The order in which large answers are made.
//!
//! A large answer is made in parts. Each part needs one of a few slots, and the answer gives the
//! slot back after it. While there are free slots and nobody waits, it gets one at once. Else the
//! flow is next that was served least (start-time fair queueing: a flow that was idle gets no
//! credit), by the time for which its slots were held. So a flow with many answers gets as much as
//! one with a single one.
//!
//! A granted slot that is not taken within [`TAKEN_AFTER`] is withdrawn: the client of its answer
//! does not read at the moment. Such an answer asks again.
//!
//! Pure: no clock, no I/O. Time is an argument, since any fixed instant.
//!
//! Invariants: at most as many slots as there are are granted or in use; while an answer waits, all
//! are; answers of a flow are served in order; each request for a slot ends once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The slots, and the answers that wait for one.
#[derive(Debug)]
pub struct Lanes {
    slots: usize,
    /// Slots that are granted or in use.
    held: usize,
    requests: HashMap<SlotId, Request>,
    flows: HashMap<u64, Flow>,
    /// The flows of which an answer waits, by the time they were served for.
    queue: BTreeSet<(Duration, u64)>,
    /// The time for which the flow that was chosen last had been served.
    served: Duration,
    /// The slots that were granted and not taken, oldest first; some of them were taken meanwhile.
    granted: VecDeque<(SlotId, Duration)>,
    /// The slots that were granted since the last [`Self::take_granted`].
    news: Vec<SlotId>,
    waiting: usize,
    next: u64,
    rate: SendRate,
}

/// The name of a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u64);

/// The state of a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// It waits.
    Waits,
    /// It may be taken.
    Granted,
    /// It was taken at this time.
    InUse(Duration),
}

#[derive(Debug)]
struct Request {
    flow: u64,
    /// The bytes of the answer that are still to be sent.
    bytes: u64,
    state: SlotState,
    /// The guess that its flow was charged when it was granted.
    charged: Duration,
}

/// A flow of which something waits or is served.
#[derive(Debug)]
struct Flow {
    /// The time for which it was served. A slot in use counts by the guess.
    served: Duration,
    /// The time that one slot is expected to take.
    guess: Duration,
    waiting: VecDeque<SlotId>,
    /// The bytes of the answers that wait.
    bytes: u64,
    /// Slots that are granted or in use.
    held: usize,
}

/// The bytes that are sent in a second while answers wait.
#[derive(Debug, Default)]
struct SendRate {
    bytes: u64,
    time: Duration,
    since: Option<Duration>,
    per_second: Option<f64>,
}

impl Lanes {
    /// Begins with free slots.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            held: 0,
            requests: HashMap::new(),
            flows: HashMap::new(),
            queue: BTreeSet::new(),
            served: Duration::ZERO,
            granted: VecDeque::new(),
            news: Vec::new(),
            waiting: 0,
            next: 0,
            rate: SendRate::default(),
        }
    }

    /// Changes the number of slots. Those in use stay.
    pub fn resize(&mut self, now: Duration, slots: usize) {
        self.slots = slots.max(1);
        self.dispatch(now);
    }

    /// Asks for a slot for an answer of `flow` that has `bytes` left. It may be granted at once.
    pub fn ask(&mut self, now: Duration, flow: u64, bytes: u64) -> SlotId {
        self.next += 1;
        let id = SlotId(self.next);
        let (state, charged) = (SlotState::Waits, Duration::ZERO);
        self.requests.insert(id, Request { flow, bytes, state, charged });
        let least = self.queue.first().map_or(self.served, |(served, _)| *served);
        let entry = self.flows.entry(flow).or_insert_with(|| Flow {
            served: least,
            guess: FIRST_GUESS,
            waiting: VecDeque::new(),
            bytes: 0,
            held: 0,
        });
        if entry.waiting.is_empty() {
            if entry.held == 0 {
                entry.served = entry.served.max(least);
            }
            self.queue.insert((entry.served, flow));
        }
        entry.waiting.push_back(id);
        entry.bytes = entry.bytes.saturating_add(bytes);
        self.waiting += 1;
        self.dispatch(now);
        id
    }

    /// Returns the state of a request; `None` once it has ended or was withdrawn.
    pub fn state(&self, id: SlotId) -> Option<SlotState> {
        self.requests.get(&id).map(|request| request.state)
    }

    /// Takes a granted slot.
    pub fn take(&mut self, now: Duration, id: SlotId) {
        if let Some(request) = self.requests.get_mut(&id)
            && request.state == SlotState::Granted
        {
            request.state = SlotState::InUse(now);
        }
    }

    /// Counts bytes that were sent, for the estimate of waits.
    pub fn sent(&mut self, bytes: u64) {
        if self.waiting > 0 {
            self.rate.bytes = self.rate.bytes.saturating_add(bytes);
        }
    }

    /// Ends a request, whatever its state.
    pub fn end(&mut self, now: Duration, id: SlotId) {
        let Some(request) = self.requests.remove(&id) else { return };
        let Request { flow, bytes, state, charged } = request;
        let Some(of_flow) = self.flows.get_mut(&flow) else { return };
        match state {
            SlotState::Waits => {
                of_flow.waiting.retain(|waiting| *waiting != id);
                of_flow.bytes = of_flow.bytes.saturating_sub(bytes);
                self.waiting -= 1;
                if of_flow.waiting.is_empty() {
                    self.queue.remove(&(of_flow.served, flow));
                }
            }
            SlotState::Granted | SlotState::InUse(_) => {
                let held = match state {
                    SlotState::InUse(since) => now.saturating_sub(since),
                    _ => Duration::ZERO,
                };
                self.held -= 1;
                of_flow.held -= 1;
                let is_queued = self.queue.remove(&(of_flow.served, flow));
                of_flow.served = (of_flow.served + held).saturating_sub(charged);
                if !held.is_zero() {
                    of_flow.guess = (of_flow.guess * 7 + held) / 8;
                }
                if is_queued {
                    self.queue.insert((of_flow.served, flow));
                }
            }
        }
        if of_flow.waiting.is_empty() && of_flow.held == 0 {
            self.flows.remove(&flow);
        }
        self.dispatch(now);
    }

    /// Withdraws slots that were granted and not taken. Call this now and then.
    pub fn withdraw(&mut self, now: Duration) {
        while let Some((id, since)) = self.granted.front().copied() {
            let is_granted = self.state(id) == Some(SlotState::Granted);
            if is_granted && now.saturating_sub(since) < TAKEN_AFTER {
                break;
            }
            self.granted.pop_front();
            if is_granted {
                self.end(now, id);
            }
        }
    }

    /// Returns the requests that were granted since the last call.
    pub fn take_granted(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.news)
    }

    /// Returns how many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns how long the answers of a flow that wait will take, if it gets its part; `None`
    /// while nothing of it waits, or nothing is known.
    pub fn expected(&self, flow: u64) -> Option<Duration> {
        let of_flow = self.flows.get(&flow).filter(|flow| !flow.waiting.is_empty())?;
        let per_second = self.rate.per_second? / self.queue.len().max(1) as f64;
        let seconds = of_flow.bytes as f64 / per_second.max(1.0);
        Some(Duration::from_secs_f64(seconds.min(SECONDS_MAX)))
    }

    fn dispatch(&mut self, now: Duration) {
        while self.held < self.slots
            && let Some((served, flow)) = self.queue.pop_first()
        {
            let Some(of_flow) = self.flows.get_mut(&flow) else { continue };
            let Some(id) = of_flow.waiting.pop_front() else { continue };
            self.served = self.served.max(served);
            of_flow.served += of_flow.guess;
            of_flow.held += 1;
            if !of_flow.waiting.is_empty() {
                self.queue.insert((of_flow.served, flow));
            }
            if let Some(request) = self.requests.get_mut(&id) {
                of_flow.bytes = of_flow.bytes.saturating_sub(request.bytes);
                request.state = SlotState::Granted;
                request.charged = of_flow.guess;
            }
            self.waiting -= 1;
            self.held += 1;
            self.granted.push_back((id, now));
            self.news.push(id);
        }
        self.rate.note(now, self.waiting > 0);
        if self.granted.len() > GRANTED_MAX.max(self.slots.saturating_mul(4)) {
            self.withdraw(now);
        }
    }
}

impl SendRate {
    /// Notes whether something waits from now on.
    fn note(&mut self, now: Duration, waits: bool) {
        if let Some(since) = self.since.take() {
            self.time += now.saturating_sub(since);
        }
        self.since = waits.then_some(now);
        if self.time < RATE_TIME {
            return;
        }
        // Work on other threads holds slots and sends nothing for a while.
        if self.bytes == 0 && self.time < SILENT_TIME_MAX {
            return;
        }
        if self.bytes > 0 {
            let measured = self.bytes as f64 / self.time.as_secs_f64();
            let before = self.per_second.unwrap_or(measured);
            self.per_second = Some((before * 3.0 + measured) / 4.0);
        }
        (self.bytes, self.time) = (0, Duration::ZERO);
    }
}

/// A granted slot is withdrawn after this time. The task that takes it waits for a turn on a
/// processor before, among a few others that have slots.
const TAKEN_AFTER: Duration = Duration::from_millis(20);
/// The guess for a flow without a history: four pieces of 64 KiB, encrypted and written.
const FIRST_GUESS: Duration = Duration::from_micros(400);
/// The time in which answers wait over which the rate is measured.
const RATE_TIME: Duration = Duration::from_millis(250);
/// The time without a byte after which the time before it does not count.
const SILENT_TIME_MAX: Duration = Duration::from_secs(1);
/// The longest estimate: a longer one has no use.
const SECONDS_MAX: f64 = 3600.0;
/// The length of `granted` at which slots that were granted and taken are forgotten.
const GRANTED_MAX: usize = 64;

#[cfg(test)]
mod tests;
