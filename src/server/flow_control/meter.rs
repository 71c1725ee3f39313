//! Counts what a request costs: its CPU time while Weir works for it, the bytes of its response,
//! and the seats that it takes in the API server, by estimate.
//!
//! A response of one piece is charged with its head, so that it costs nothing more. The body of a
//! longer one has a [`Meter`], which charges from time to time, and at the end.
//!
//! CPU time is the time for which the request's own code ran: the look-up, the encoding, the
//! relaying. It is without TLS and HTTP's framing, and with the time for which the system ran
//! something else on the same processor. The clock is not read for every event of a watch.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body::Body as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::request_info::{RequestScope, Verb};
use crate::codec::rope::PIECE_BYTES;
use crate::flow::cost::Cost;
use crate::flow::costs::Origin;
use crate::flow::doctor::SECONDS_PER_REQUEST;
use crate::flow::habit::Start;
use crate::flow::work::{CollectionSize, Work};
use crate::server::flow_control::plan::Class;
use crate::server::flow_control::rules::Admission;
use crate::server::flow_control::twins::OpenTwin;
use crate::server::flow_control::{Classified, FlowControl, upstream_cost};
use crate::server::http::body::Body;
use crate::server::metrics::CacheStatus;
use crate::server::request::context::RequestContext;

/// Counts the cost of a response that is longer than one piece.
pub(crate) struct Meter {
    flow: Arc<FlowControl>,
    class: Arc<Class>,
    hash: u64,
    origin: Origin,
    /// Its work in the API server, and the time of its begin; `None` once that is charged.
    upstream: Option<(Work, Instant)>,
    bytes: u64,
    polls: u32,
    /// The API server's CPU seconds for a byte, by estimate; 0 if the cache answers.
    seconds_per_byte: f64,
    /// The bytes from which it is a huge list, until that is counted.
    huge_from: Option<u64>,
    /// `None` if it is no watch. A watch's polls are sampled.
    watch: Option<MeteredWatch>,
    /// The part that is not charged yet.
    cost: Cost,
    /// The part that operators' rules have counted.
    admission: Option<Box<Admission>>,
}

#[derive(Debug)]
struct MeteredWatch {
    began: Instant,
    /// Cancelled when Weir ends it. `None` if it does not matter that it is short.
    drained: Option<CancellationToken>,
    /// The hash of the address from which it watches the pods of all nodes.
    reader: Option<u64>,
    /// Counts it among the open watches of its process.
    _twin: Option<OpenTwin>,
}

pub(crate) struct Answered<'a> {
    pub(crate) response: &'a Response<Body>,
    pub(crate) status: CacheStatus,
    /// The time for which Weir worked for it.
    pub(crate) busy: Duration,
    pub(crate) size: Option<CollectionSize>,
}

impl FlowControl {
    /// Charges a request whose response begins now. Returns the meter of a longer response.
    pub(crate) fn charge_request(
        self: &Arc<Self>,
        context: &mut RequestContext<'_>,
        answered: &Answered<'_>,
    ) -> Option<Box<Meter>> {
        if context.holds.rules.is_none() && self.charge_hit(context, answered) {
            return None;
        }
        self.charge_alone(context, answered)
    }

    /// Does the same for a request that is like no other. It has a frame of its own, so that a hit
    /// does not pay for it.
    #[inline(never)]
    fn charge_alone(
        self: &Arc<Self>,
        context: &mut RequestContext<'_>,
        answered: &Answered<'_>,
    ) -> Option<Box<Meter>> {
        let admission = context.holds.rules.take();
        let context = &*context;
        let body = answered.response.body();
        let is_watch = context.info.verb == Verb::Watch && !body.is_end_stream();
        let short = short_body(answered.response);
        let client = self.client(context);
        let is_read_again = self.is_read_again(context, client);
        let Classified { class, origin: sign, hash, habit } =
            self.classify(context, client, is_read_again);
        let mut upstream = context.forwarded.filter(|_| context.takes_seats());
        let (mut cost, seconds_per_byte) = begin_cost(answered, short.unwrap_or(0));
        let objects = answered.size.map(|size| size.objects);
        let is_forwarded = answered.status == CacheStatus::Forward;
        let mut huge_from = is_forwarded
            .then(|| upstream_cost::huge_from(context, answered.response, objects))
            .flatten();
        if huge_from.is_some_and(|from| short.is_some_and(|bytes| bytes >= from)) {
            cost.huge_lists = 1.0;
            huge_from = None;
        }
        self.add_signs(context, answered.response, sign, &mut cost);
        let origin = || self.origin(context, habit);
        self.note_warning(context, answered.response, &mut cost, origin);
        let work = upstream.map(|_| Work::from_request(&context.info, answered.size));
        // A watch takes seats until it begins.
        if let Some(((since, work), bytes)) =
            upstream.zip(work).zip(short.or(is_watch.then_some(0)))
        {
            cost.seat_seconds = seat_seconds(work, since, bytes, &class);
            upstream = None;
        }
        if let Some(bytes) = short {
            admission.inspect(|admission| admission.charge(bytes));
            self.charge(hash, &class, &cost, origin);
            return None;
        }
        let origin = origin();
        let watch = is_watch.then(|| {
            let opened = self.open_twin(context);
            cost.twin_watches +=
                f64::from(u8::from(opened.as_ref().is_some_and(|opened| opened.1)));
            let reader = self.open_reader(context, answered.response, &origin);
            // A watch of one object ends when its client has seen what it waits for.
            let is_single = context.info.scope() == RequestScope::Resource;
            let drained = (!is_single).then(|| context.client.drain.started().clone());
            let (began, _twin) = (Instant::now(), opened.map(|(open, _)| open));
            MeteredWatch { began, drained, reader, _twin }
        });
        let upstream = work.zip(upstream);
        let flow = Arc::clone(self);
        let mut meter = Meter {
            flow,
            class,
            hash,
            origin,
            upstream,
            bytes: 0,
            polls: 0,
            seconds_per_byte,
            huge_from,
            watch,
            cost,
            admission,
        };
        meter.flush();
        Some(Box::new(meter))
    }
}

impl Meter {
    /// Notes the begin of a poll of the body. Returns the time, if this poll is measured.
    pub(crate) fn begin_poll(&mut self) -> Option<Instant> {
        self.polls = self.polls.wrapping_add(1);
        (self.watch.is_none() || self.polls.is_multiple_of(WATCH_SAMPLE)).then(Instant::now)
    }

    /// Whether the next piece of a body is the first one of a watch from a resourceVersion, which
    /// may be a 410.
    pub(crate) fn may_expire(&self) -> bool {
        self.watch.is_some() && self.bytes == 0 && self.origin.habit.start == Start::Version
    }

    /// Notes that the watch began with a 410, with which it ends.
    pub(crate) fn expire(&mut self) {
        self.cost.expired_watches += 1.0;
        if let Some(watch) = &mut self.watch {
            watch.drained = None;
        }
    }

    /// Notes the end of a poll, which returned a piece of `bytes`.
    pub(crate) fn end_poll(&mut self, began: Option<Instant>, bytes: Option<usize>) {
        if let Some(began) = began {
            let sampled = if self.watch.is_some() { f64::from(WATCH_SAMPLE) } else { 1.0 };
            self.cost.cpu_seconds += sampled * began.elapsed().as_secs_f64();
        }
        let bytes = bytes.unwrap_or(0);
        self.bytes += bytes as u64;
        self.cost.bytes += bytes as f64;
        self.cost.upstream_seconds += self.seconds_per_byte * bytes as f64;
        if self.huge_from.is_some_and(|from| self.bytes >= from) {
            self.huge_from = None;
            self.cost.huge_lists += 1.0;
        }
        if self.cost.bytes >= FLUSH_BYTES || self.polls.is_multiple_of(FLUSH_POLLS) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let cost = std::mem::take(&mut self.cost);
        self.admission.as_ref().inspect(|admission| admission.charge(cost.bytes as u64));
        self.flow.charge(self.hash, &self.class, &cost, || self.origin.clone());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(MeteredWatch { began, drained, reader, .. }) = &self.watch {
            let counts = drained.as_ref().is_some_and(|drained| !drained.is_cancelled());
            if counts && began.elapsed() < SHORT_WATCH {
                self.cost.short_watches += 1.0;
            }
            if let Some(address) = reader {
                self.flow.close_reader(&self.origin, *address);
            }
        }
        if let Some((work, since)) = self.upstream.take() {
            self.cost.seat_seconds += seat_seconds(work, since, self.bytes, &self.class);
        }
        self.flush();
    }
}

/// Returns the cost of a response of which `bytes` are sent with its head, and the estimated CPU
/// seconds of the API server for a byte.
fn begin_cost(answered: &Answered<'_>, bytes: u64) -> (Cost, f64) {
    let is_forwarded = answered.status == CacheStatus::Forward;
    let cost = Cost {
        requests: 1.0,
        refused: f64::from(u8::from(answered.status == CacheStatus::Error)),
        cpu_seconds: answered.busy.as_secs_f64(),
        bytes: bytes as f64,
        ..Cost::default()
    };
    if !is_forwarded {
        return (cost, 0.0);
    }
    let per_byte = upstream_cost::seconds_per_byte(answered.response.headers());
    let upstream_seconds = SECONDS_PER_REQUEST + per_byte * bytes as f64;
    (Cost { forwarded: 1.0, upstream_seconds, ..cost }, per_byte)
}

fn seat_seconds(work: Work, since: Instant, bytes: u64, class: &Class) -> f64 {
    work.seats(bytes, class.seats_max) as f64 * since.elapsed().as_secs_f64()
}

/// Returns the length of a body of one piece, if it is known.
pub(super) fn short_body(response: &Response<Body>) -> Option<u64> {
    response.body().size_hint().exact().filter(|bytes| *bytes <= PIECE_BYTES as u64)
}

/// The time for which a request has waited, while its own code did not run. The clock is read where
/// the code waits, and never for a request that does not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    waited: Duration,
    /// The time since which the code waits; `None` while it runs.
    since: Option<Instant>,
    is_measured: bool,
}

impl Busy {
    /// Starts with a request. One that is not measured took no time.
    pub(crate) fn new(is_measured: bool) -> Self {
        Self { waited: Duration::ZERO, since: None, is_measured }
    }

    /// Returns for how long the code of a request has run that took `duration`.
    pub(crate) fn run_time(&self, duration: Duration) -> Duration {
        if self.is_measured { duration.saturating_sub(self.waited) } else { Duration::ZERO }
    }

    fn wait(&mut self) {
        if self.is_measured {
            self.since = Some(Instant::now());
        }
    }

    fn go_on(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// A future, and for how long the code of its request has run.
pub(crate) struct Timed<F> {
    future: F,
    busy: Busy,
}

impl<F> Timed<F> {
    pub(crate) fn new(future: F, busy: Busy) -> Self {
        Self { future, busy }
    }
}

impl<F: Future + Unpin> Future for Timed<F> {
    type Output = (F::Output, Busy);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.busy.go_on();
        let polled = Pin::new(&mut self.future).poll(context);
        if polled.is_pending() {
            self.busy.wait();
        }
        polled.map(|output| (output, self.busy))
    }
}

/// One of this number of a watch's polls is measured, and stands for all.
const WATCH_SAMPLE: u32 = 16;
/// client-go's watches last five minutes and more.
const SHORT_WATCH: Duration = Duration::from_secs(60);
/// A meter charges when it has counted this number of bytes...
const FLUSH_BYTES: f64 = 1_048_576.0;
/// ...or this number of polls, for a watch of which little is sent.
const FLUSH_POLLS: u32 = 64;
