//! The forwarded responses that hold seats, and how fast their clients read them
//! (`docs/decisions/client-connections.md`).
//!
//! hyper does not poll the body of a client that does not read, so that nothing happens there. The
//! queue looks at all such responses from outside ([`Queue::tend`]). The seats of a slow one fall
//! to one, and a stalled one is dropped while other requests wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use super::{Inner, Queue, SeatHold};
use crate::flow::read_pace::{Pace, ReadPace};
use crate::flow::schedule::request::Ticket;
use crate::upstream::pool::{Body, BodyError};

impl Queue {
    /// Looks at how fast responses are read. Call this about once a second.
    pub(in crate::server::flow_control) fn tend(&self) {
        let now = self.began.elapsed();
        let mut stalled = Vec::new();
        let mut inner = self.inner.lock();
        let Inner { scheduler, readings, .. } = &mut *inner;
        let are_others = scheduler.waiting() > 0;
        for (number, seated) in readings.iter_mut() {
            let (read, waits_for_client) = seated.reading.progress();
            let pace = seated.pace.observe(now, read, waits_for_client);
            if pace >= Pace::Slow && !seated.is_narrow {
                seated.is_narrow = true;
                scheduler.narrow(now, &mut seated.ticket);
                self.metrics.slow_response("narrowed");
            }
            if pace == Pace::Stalled && are_others {
                stalled.push(*number);
            }
        }
        let dropped: Vec<Arc<Reading>> = stalled
            .into_iter()
            .filter_map(|number| {
                let seated = inner.readings.remove(&number)?;
                inner.scheduler.finish(now, seated.ticket);
                self.metrics.slow_response("dropped");
                Some(seated.reading)
            })
            .collect();
        self.settle(&mut inner, None);
        drop(inner);
        dropped.iter().for_each(|reading| reading.drop_body());
    }
}

impl SeatHold {
    /// Returns the body of the response that holds these seats. The queue observes how fast it is
    /// read.
    pub(crate) fn read(&mut self, body: Body) -> Arc<Reading> {
        let reading = Arc::new(Reading::new(body));
        self.follow(Arc::clone(&reading));
        reading
    }

    /// Has the queue observe how fast a response is read.
    pub(in crate::server::flow_control) fn follow(&mut self, reading: Arc<Reading>) {
        let mut inner = self.queue.inner.lock();
        inner.last_reading += 1;
        let number = inner.last_reading;
        let seated = SeatedReading {
            reading,
            pace: ReadPace::default(),
            ticket: self.ticket,
            is_narrow: false,
        };
        inner.readings.insert(number, seated);
        drop(inner);
        self.reading = Some(number);
    }
}

pub(crate) struct Reading {
    /// `None` once it was dropped.
    body: Mutex<Option<Body>>,
    /// The bytes that were handed to the client's connection.
    read: AtomicU64,
    /// Whether the last piece was handed out, and the client has asked for no other.
    waits_for_client: AtomicBool,
}

pub(super) struct SeatedReading {
    pub(super) reading: Arc<Reading>,
    pub(super) pace: ReadPace,
    pub(super) ticket: Ticket,
    pub(super) is_narrow: bool,
}

impl Reading {
    pub(super) fn new(body: Body) -> Self {
        Self { body: Mutex::new(Some(body)), ..Self::ended() }
    }

    /// Returns a response whose body was dropped.
    pub(in crate::server::flow_control) fn ended() -> Self {
        let (read, waits_for_client) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { body: Mutex::new(None), read, waits_for_client }
    }

    /// Polls the body. One that was dropped is an error.
    pub(crate) fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut body = self.body.lock();
        let Some(body) = &mut *body else { return Poll::Ready(Some(Err(BodyError::Stalled))) };
        let polled = std::pin::Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.waits_for_client.store(polled.is_ready(), Ordering::Relaxed);
        polled
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    /// Returns the size of the rest.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.lock().as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }

    /// Returns the bytes that were read, and whether the response waits for its client.
    pub(super) fn progress(&self) -> (u64, bool) {
        (self.read.load(Ordering::Relaxed), self.waits_for_client.load(Ordering::Relaxed))
    }

    /// Drops the body: its request to the API server ends.
    pub(super) fn drop_body(&self) {
        let body = self.body.lock().take();
        drop(body);
    }
}
