//! The bytes that a client sends, on their way to hyper.
//!
//! The connection preface of HTTP/2 decides the protocol, as it does for hyper, which expects the
//! same bytes.
//!
//! Bytes stay in the reader's buffer while they need no change, so that a connection usually costs
//! no copy, and no memory but its state. Withheld and rewritten bytes lie in [`Pending`] until they
//! were delivered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::http1::RequestReader;
use super::http2::FrameReader;
use super::{End, Step};
use crate::server::connection::activity::ConnActivity;

#[derive(Debug)]
pub(crate) struct Inbound {
    activity: ConnActivity,
    /// The limit on a head of HTTP/1.1.
    head_bytes_max: usize,
    protocol: Protocol,
    pending: Option<Box<Pending>>,
}

#[derive(Debug)]
enum Protocol {
    /// All bytes that have come belong to the preface of HTTP/2.
    Unknown,
    Http1(RequestReader),
    Http2(Box<FrameReader>),
}

/// Bytes that are not in the buffer of a read.
#[derive(Debug, Default)]
struct Pending {
    /// The bytes that are delivered before anything else.
    ready: Vec<u8>,
    /// The number of bytes of `ready` that were delivered.
    delivered: usize,
    /// The bytes that came and are not complete, or that wait for the delivery of earlier ones.
    withheld: BytesMut,
    /// Whether a step is taken with `withheld` before more is read.
    resumes: bool,
}

impl Inbound {
    /// Reads a connection whose requests `activity` counts.
    pub(crate) fn new(activity: ConnActivity, head_bytes_max: usize) -> Self {
        Self { activity, head_bytes_max, protocol: Protocol::Unknown, pending: None }
    }

    /// Whether the connection is closed after a request that could not be read.
    pub(crate) fn is_refused(&self) -> bool {
        self.end() == Some(End::Refused)
    }

    pub(crate) fn poll_read<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.deliver(buffer) {
                return Poll::Ready(Ok(()));
            }
            if self.resume() {
                continue;
            }
            if self.is_broken() {
                return Poll::Ready(Ok(()));
            }
            match self.end() {
                // No wake-up is needed: hyper writes the response, and closes the connection.
                Some(End::Refused) => return Poll::Pending,
                Some(End::Broken) => {
                    let error = "the body of a request cannot be read";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
                None => {}
            }
            if self.pending.is_some() && buffer.remaining() < SMALL_BYTES {
                if ready!(self.read_small(io, context))? == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut *io).poll_read(context, buffer))?;
            let bytes = buffer.filled().get(before..).unwrap_or_default();
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let passed = self.receive(bytes);
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads into a buffer of its own. hyper detects the protocol with a buffer of 24 bytes, in
    /// which the rest of a head would need many reads.
    fn read_small<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = [0; SMALL_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(io).poll_read(context, &mut buffer))?;
        let bytes = buffer.filled();
        if !bytes.is_empty() {
            self.process(Vec::new(), bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Goes on with what waits for the delivery of what came before. Returns whether there was any.
    fn resume(&mut self) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let resumes = std::mem::take(&mut pending.resumes);
        if resumes {
            self.process(Vec::new(), &[]);
        }
        resumes
    }

    /// Delivers bytes that are ready. Returns whether there were any.
    fn deliver(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let rest = pending.ready.get(pending.delivered..).unwrap_or_default();
        if rest.is_empty() {
            return false;
        }
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..length).unwrap_or_default());
        pending.delivered += length;
        if pending.delivered == pending.ready.len() {
            pending.ready = Vec::new();
            pending.delivered = 0;
            if pending.withheld.is_empty() {
                self.pending = None;
            }
        }
        true
    }

    /// Takes bytes that came. Returns how many of the first ones pass as they are.
    fn receive(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        if self.pending.is_none() {
            loop {
                let rest = bytes.get(passed..).unwrap_or_default();
                if rest.is_empty() {
                    return passed;
                }
                match self.step(rest) {
                    Step::Pass(length) => passed += length,
                    Step::Replace { taken, by } => {
                        self.process(by, rest.get(taken..).unwrap_or_default());
                        return passed;
                    }
                    Step::Part { taken, by } => {
                        let withheld = rest.get(taken..).unwrap_or_default().into();
                        let pending = Pending { ready: by, withheld, ..Pending::default() };
                        self.pending = Some(Box::new(Pending { resumes: true, ..pending }));
                        return passed;
                    }
                    Step::Withhold => {
                        self.process(Vec::new(), rest);
                        return passed;
                    }
                }
            }
        }
        self.process(Vec::new(), bytes);
        passed
    }

    /// Has bytes delivered, `ready` first, then what becomes of `bytes`.
    fn process(&mut self, ready: Vec<u8>, bytes: &[u8]) {
        let mut pending = self.pending.take().unwrap_or_default();
        pending.ready.extend(ready);
        pending.withheld.extend_from_slice(bytes);
        while !pending.withheld.is_empty() && !pending.resumes {
            let taken = match self.step(&pending.withheld) {
                Step::Pass(length) => {
                    let passing = pending.withheld.get(..length).unwrap_or_default();
                    pending.ready.extend_from_slice(passing);
                    length
                }
                Step::Replace { taken, by } => {
                    pending.ready.extend(by);
                    taken
                }
                Step::Part { taken, by } => {
                    pending.ready.extend(by);
                    pending.resumes = true;
                    taken
                }
                Step::Withhold => break,
            };
            pending.withheld.advance(taken);
        }
        if pending.withheld.is_empty() {
            // This frees the memory of the buffer.
            (pending.withheld, pending.resumes) = (BytesMut::new(), false);
        }
        let is_empty = pending.ready.is_empty() && pending.withheld.is_empty();
        self.pending = (!is_empty).then_some(pending);
    }

    /// Decides about `bytes`, which are all that came and that no step has passed or replaced.
    fn step(&mut self, bytes: &[u8]) -> Step {
        match &mut self.protocol {
            Protocol::Http1(requests) => requests.step(bytes, &self.activity),
            Protocol::Http2(frames) => frames.step(bytes),
            Protocol::Unknown if bytes.starts_with(PREFACE) => {
                self.activity.begin_http2();
                self.protocol = Protocol::Http2(Box::new(FrameReader::new()));
                Step::Pass(PREFACE.len())
            }
            Protocol::Unknown if PREFACE.starts_with(bytes) => Step::Withhold,
            Protocol::Unknown => {
                let mut requests = RequestReader::new(self.head_bytes_max);
                let step = requests.step(bytes, &self.activity);
                self.protocol = Protocol::Http1(requests);
                step
            }
        }
    }

    fn end(&self) -> Option<End> {
        match &self.protocol {
            Protocol::Http1(requests) => requests.end(),
            Protocol::Unknown | Protocol::Http2(_) => None,
        }
    }

    /// Whether h2 got what ends an HTTP/2 connection, and nothing more.
    fn is_broken(&self) -> bool {
        matches!(&self.protocol, Protocol::Http2(frames) if frames.is_broken())
    }
}

/// The connection preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A buffer with less room is too small for a head.
const SMALL_BYTES: usize = 4096;

#[cfg(test)]
mod http2_tests;
#[cfg(test)]
mod tests;
