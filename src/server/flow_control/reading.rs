//! A forwarded response that holds seats, and how fast its client reads it
//! (`docs/decisions/client-connections.md`).
//!
//! hyper does not poll the body of a client that does not read, so that nothing happens there. The
//! queue looks at all such responses from outside ([`Queue::tend`]). The seats of a slow one fall
//! to one, and a stalled one is dropped while other requests wait.
//!
//! [`Queue::tend`]: super::queue::Queue::tend

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use crate::flow::read_pace::ReadPace;
use crate::flow::schedule::request::Ticket;
use crate::upstream::pool::{Body, BodyError};

pub(crate) struct Reading {
    /// `None` once it was dropped.
    body: Mutex<Option<Body>>,
    /// The bytes that were handed to the client's connection.
    read: AtomicU64,
    /// Whether it was read to its end.
    has_ended: AtomicBool,
    /// The bytes of the objects for each byte that is sent; `None` for a response without any.
    expansion: Option<u64>,
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
    pub(super) fn new(body: Body, expansion: Option<u64>) -> Self {
        Self { body: Mutex::new(Some(body)), expansion, ..Self::ended() }
    }

    /// Returns a response whose body was dropped.
    pub(super) fn ended() -> Self {
        let (read, waits_for_client) = (AtomicU64::new(0), AtomicBool::new(false));
        let has_ended = AtomicBool::new(false);
        Self { body: Mutex::new(None), read, has_ended, expansion: None, waits_for_client }
    }

    /// Polls the body. One that was dropped is an error.
    pub(crate) fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut body = self.body.lock();
        let Some(body) = &mut *body else { return Poll::Ready(Some(Err(BodyError::Stalled))) };
        let polled = std::pin::Pin::new(&mut *body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if matches!(polled, Poll::Ready(None)) || polled.is_ready() && body.is_end_stream() {
            self.has_ended.store(true, Ordering::Relaxed);
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

    /// Returns the bytes of the objects, if the response was read to its end.
    pub(super) fn whole(&self) -> Option<u64> {
        let has_ended = self.has_ended.load(Ordering::Relaxed);
        let expansion = self.expansion.filter(|_| has_ended)?;
        Some(self.read.load(Ordering::Relaxed).saturating_mul(expansion))
    }

    /// Drops the body: its request to the API server ends.
    pub(super) fn drop_body(&self) {
        let body = self.body.lock().take();
        drop(body);
    }
}
