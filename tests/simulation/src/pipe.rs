//! A network connection in memory: two bounded directions with latency, random read sizes, and
//! faults. Bytes keep their order within a connection; nothing orders two connections.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// One end of a connection.
pub(crate) struct Pipe {
    link: Arc<Link>,
    /// 0 or 1: the direction that this end writes to.
    side: usize,
    /// The arrival of the next bytes.
    arrival: Option<Pin<Box<Sleep>>>,
}

/// The state that both ends share, and which faults change.
pub(crate) struct Link(Mutex<State>);

/// Counts what servers send over all connections, and cuts one connection at one of these points.
#[derive(Debug, Default)]
pub(crate) struct CutPoint {
    count: AtomicU64,
    is_over: AtomicBool,
    at: Option<(u64, CutSide)>,
}

/// Whether a connection is cut before or after the bytes of a point arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CutSide {
    Before,
    After,
}

impl CutPoint {
    pub(crate) fn new(at: Option<(u64, CutSide)>) -> Self {
        Self { at, ..Self::default() }
    }

    /// Returns the number of points that were counted.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts and cuts no more.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Counts a point, and returns whether the connection is cut there.
    fn pass(&self) -> Option<CutSide> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.at.filter(|(at, _)| *at == number).map(|(_, side)| side)
    }
}

struct State {
    directions: [Direction; 2],
    /// Where this connection may be cut.
    cut_point: Option<Arc<CutPoint>>,
    /// The connection is cut when the bytes on their way have arrived.
    is_doomed: bool,
    is_cut: bool,
    latency: Duration,
    rng: fastrand::Rng,
}

#[derive(Default)]
struct Direction {
    /// Bytes on their way, with the moment of their arrival.
    queue: VecDeque<(Instant, Bytes)>,
    queued_bytes: usize,
    /// All bytes that were ever written.
    total_bytes: u64,
    /// The writer has closed its end.
    is_finished: bool,
    /// The reader is gone.
    is_refused: bool,
    /// Bytes stay where they are.
    is_frozen: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

impl Link {
    /// Breaks the connection: both ends get an error, and bytes on their way are lost.
    pub(crate) fn cut(&self) {
        let mut state = self.0.lock();
        state.is_cut = true;
        state.directions.iter_mut().for_each(Direction::wake);
    }

    /// Stops the connection without an error, or lets it go on.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.0.lock().directions.iter_mut().for_each(|direction| {
            direction.is_frozen = is_frozen;
            direction.wake();
        });
    }

    /// Stops what one end sends, without an error: 0 for the end that opened the connection.
    pub(crate) fn freeze_from(&self, side: usize) {
        self.0.lock().directions[side].is_frozen = true;
    }

    /// Ends what the end that accepted the connection sends; it still reads.
    pub(crate) fn half_close(&self) {
        let mut state = self.0.lock();
        state.directions[1].is_finished = true;
        state.directions[1].wake();
    }

    /// Returns the bytes that were written in each direction.
    pub(crate) fn total_bytes(&self) -> [u64; 2] {
        let state = self.0.lock();
        [state.directions[0].total_bytes, state.directions[1].total_bytes]
    }
}

/// Returns both ends of a new connection.
pub(crate) fn pipe(
    latency: Duration,
    rng: fastrand::Rng,
    cut_point: Option<Arc<CutPoint>>,
) -> (Pipe, Pipe, Arc<Link>) {
    let state = State {
        directions: Default::default(),
        cut_point,
        is_doomed: false,
        is_cut: false,
        latency,
        rng,
    };
    let link = Arc::new(Link(Mutex::new(state)));
    let end = |side| Pipe { link: Arc::clone(&link), side, arrival: None };
    (end(0), end(1), link)
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = Arc::clone(&self.link);
        loop {
            let mut state = link.0.lock();
            if state.is_cut {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let doomed = state.is_doomed;
            let draw = state.rng.usize(..READ_SIZES.len());
            let direction = &mut state.directions[1 - self.side];
            let arrival = direction.queue.front().map(|(arrival, _)| *arrival);
            match arrival {
                _ if direction.is_frozen => {
                    direction.reader = Some(context.waker().clone());
                    return Poll::Pending;
                }
                None if doomed => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None if direction.is_finished => return Poll::Ready(Ok(())),
                None => {
                    direction.reader = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Some(arrival) if arrival > Instant::now() => {
                    direction.reader = Some(context.waker().clone());
                    drop(state);
                    let mut sleep = Box::pin(tokio::time::sleep_until(arrival));
                    let polled = sleep.as_mut().poll(context);
                    self.arrival = Some(sleep);
                    if polled.is_pending() {
                        return Poll::Pending;
                    }
                }
                Some(_) => {
                    let most = READ_SIZES[draw].min(buffer.remaining());
                    let Some((_, bytes)) = direction.queue.front_mut() else { continue };
                    let length = bytes.len().min(most);
                    buffer.put_slice(&bytes[..length]);
                    bytes.advance(length);
                    if bytes.is_empty() {
                        direction.queue.pop_front();
                    }
                    direction.queued_bytes -= length;
                    if let Some(writer) = direction.writer.take() {
                        writer.wake();
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.link.0.lock();
        if state.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let is_server = self.side == 1;
        let cut = state.cut_point.as_ref().filter(|_| is_server).and_then(|point| point.pass());
        if cut == Some(CutSide::Before) {
            state.is_cut = true;
            state.directions.iter_mut().for_each(Direction::wake);
        }
        if state.is_cut || state.is_doomed {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        state.is_doomed = cut == Some(CutSide::After);
        let arrival = Instant::now() + state.latency;
        let direction = &mut state.directions[self.side];
        if direction.is_finished || direction.is_refused {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = CAPACITY_BYTES.saturating_sub(direction.queued_bytes);
        if room == 0 {
            direction.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let length = room.min(bytes.len());
        direction.queue.push_back((arrival, Bytes::copy_from_slice(&bytes[..length])));
        direction.queued_bytes += length;
        direction.total_bytes += length as u64;
        if let Some(reader) = direction.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.link.0.lock();
        let direction = &mut state.directions[self.side];
        direction.is_finished = true;
        direction.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.link.0.lock();
        state.directions[self.side].is_finished = true;
        state.directions[1 - self.side].is_refused = true;
        state.directions.iter_mut().for_each(Direction::wake);
    }
}

/// The capacity in bytes of a pipe: that of a small socket buffer.
const CAPACITY_BYTES: usize = 64 * 1024;
/// How many bytes one read returns at most; one of these is drawn for each read.
const READ_SIZES: [usize; 8] = [1, 100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 64 << 10, 64 << 10];
