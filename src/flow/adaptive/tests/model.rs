//! A simulated API server behind a limit, in virtual time: some workers, one queue, random times of
//! service (M/M/c), and clients whose requests wait while the limit is reached.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::super::{AdaptiveLimit, Answer};

/// The present state of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    /// Requests that it works on at once: the knee.
    pub(super) workers: usize,
    /// The mean time of service of a read, in milliseconds.
    pub(super) service_ms: f64,
    /// The time of each read besides that of a worker: a slow etcd, a slow network.
    pub(super) delay_ms: f64,
    /// The time of each write besides that of a worker: a slow webhook.
    pub(super) webhook_ms: f64,
    /// A pause of all work, and how often there is one.
    pub(super) pause_ms: f64,
    pub(super) pause_each_ms: f64,
    /// The part of answers that are errors.
    pub(super) errors: f64,
}

/// The clients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// This number of requests a second, at random times.
    Open(f64),
    /// This number of clients, each of which sends its next request after the answer.
    Closed(usize),
}

pub(super) struct Model {
    pub(super) limit: AdaptiveLimit,
    pub(super) server: Server,
    load: Load,
    random: fastrand::Rng,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    /// Requests that wait in the server for a worker.
    queue: VecDeque<Request>,
    working: usize,
    in_flight: u64,
    /// Requests that wait in Weir, in front of the limit.
    waiting: VecDeque<Request>,
    /// Requests that found more than [`WAITING_MAX`] waiting.
    pub(super) rejected: u64,
    clients: usize,
    pause_until: u64,
    /// Whether the limit is only watched.
    pub(super) observes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    is_write: bool,
    sent_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A worker is free; the request may have a delay before its end.
    Worked(Request),
    Answer(Request),
    Pause,
    Tick,
}

impl Server {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers,
            service_ms: 50.0,
            delay_ms: 0.0,
            webhook_ms: 0.0,
            pause_ms: 0.0,
            pause_each_ms: 0.0,
            errors: 0.0,
        }
    }
}

impl Model {
    pub(super) fn new(seed: u64, ceiling: u64, server: Server, load: Load) -> Self {
        let mut model = Self {
            limit: AdaptiveLimit::new(Duration::ZERO, ceiling),
            server,
            load: Load::Closed(0),
            random: fastrand::Rng::with_seed(seed),
            now_ns: 0,
            events: BinaryHeap::new(),
            number: 0,
            queue: VecDeque::new(),
            working: 0,
            in_flight: 0,
            waiting: VecDeque::new(),
            rejected: 0,
            clients: 0,
            pause_until: 0,
            observes: false,
        };
        model.at(0, Event::Tick);
        model.at(1_000_000_000, Event::Pause);
        model.set_load(load);
        model
    }

    pub(super) fn set_load(&mut self, load: Load) {
        let was_open = matches!(self.load, Load::Open(_));
        self.load = load;
        match load {
            Load::Open(_) if !was_open => self.at(self.now_ns, Event::Arrival),
            Load::Open(_) => {}
            Load::Closed(clients) => {
                while self.clients < clients {
                    self.clients += 1;
                    self.at(self.now_ns, Event::Arrival);
                }
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit.limit(true) as f64
    }

    /// Returns the seats that the load needs if nothing waits anywhere.
    pub(super) fn needed(&self, rate: f64) -> f64 {
        let Server { service_ms, delay_ms, webhook_ms, .. } = self.server;
        let mean_ms = service_ms + (1.0 - WRITES) * delay_ms + WRITES * webhook_ms;
        rate * mean_ms / 1000.0
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, seconds: f64) {
        let end = self.now_ns + ns(seconds * 1000.0);
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now_ns = at;
            self.handle(event);
        }
        self.now_ns = end;
    }

    /// Lets time pass, and returns the limit after each second.
    pub(super) fn limits(&mut self, seconds: usize) -> Vec<f64> {
        (0..seconds)
            .map(|_| {
                self.run(1.0);
                self.limit()
            })
            .collect()
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrive(),
            Event::Worked(_) | Event::Answer(_) if self.now_ns < self.pause_until => {
                // All that is left is done after the pause.
                let left = self.now_ns + ns(self.server.pause_ms) - self.pause_until;
                self.at(self.pause_until + left, event);
            }
            Event::Worked(request) => {
                self.working -= 1;
                let Server { delay_ms, webhook_ms, .. } = self.server;
                let delay = if request.is_write { webhook_ms } else { delay_ms };
                self.at(self.now_ns + ns(delay), Event::Answer(request));
                self.work();
            }
            Event::Answer(request) => self.answer(request),
            Event::Pause => {
                let Server { pause_ms, pause_each_ms, .. } = self.server;
                if pause_ms > 0.0 {
                    self.pause_until = self.now_ns + ns(pause_ms);
                }
                self.at(self.now_ns + ns(pause_each_ms.max(1000.0)), Event::Pause);
            }
            Event::Tick => {
                let now = self.now();
                self.limit.tick(now);
                self.send_waiting();
                self.at(self.now_ns + ns(500.0), Event::Tick);
            }
        }
    }

    fn arrive(&mut self) {
        if let Load::Open(rate) = self.load {
            let gap = self.exponential(1000.0 / rate);
            self.at(self.now_ns + ns(gap), Event::Arrival);
        }
        let is_write = self.random.f64() < WRITES;
        let request = Request { is_write, sent_ns: self.now_ns };
        if self.waiting.len() >= WAITING_MAX {
            self.rejected += 1;
        } else {
            self.waiting.push_back(request);
            self.send_waiting();
        }
    }

    fn send_waiting(&mut self) {
        while self.observes || self.in_flight < self.limit.limit(true) {
            let Some(request) = self.waiting.pop_front() else { break };
            self.limit.take(self.now(), 1);
            self.in_flight += 1;
            self.queue.push_back(Request { sent_ns: self.now_ns, ..request });
            self.work();
        }
    }

    fn work(&mut self) {
        while self.working < self.server.workers
            && let Some(request) = self.queue.pop_front()
        {
            self.working += 1;
            let service = self.exponential(self.server.service_ms);
            self.at(self.now_ns + ns(service), Event::Worked(request));
        }
    }

    fn answer(&mut self, request: Request) {
        let now = self.now();
        let is_error = self.random.f64() < self.server.errors;
        self.limit.answered(Answer {
            class: (!request.is_write).then_some(1),
            seats: 1,
            latency: Duration::from_nanos(self.now_ns - request.sent_ns),
            is_error,
        });
        self.limit.give(now, 1);
        self.in_flight -= 1;
        self.send_waiting();
        if let Load::Closed(clients) = self.load {
            if self.clients > clients {
                self.clients -= 1;
            } else {
                self.at(self.now_ns, Event::Arrival);
            }
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.f64()).ln()
    }
}

fn ns(milliseconds: f64) -> u64 {
    (milliseconds * 1e6) as u64
}

/// The part of requests that are writes.
const WRITES: f64 = 0.2;
/// Far more than clients would wait for.
const WAITING_MAX: usize = 2000;
