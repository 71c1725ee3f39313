//! The events that wait to be written: one buffer of complete lines, so that queueing allocates
//! nothing and writing needs no further copy.
//!
//! A semaphore bounds the bytes, and also orders the requests that wait for space. A line holds its
//! permits until it is written or lost. Only the ends of watches may exceed the bound
//! ([`Queue::push_end`]): their lines are in memory already, held by the watches, and there are no
//! more of them than watches whose start was queued within the bound.
//!
//! Lock order: one lock, held for the copy of a line; no other lock is taken while holding it. The
//! writer waits on a condition variable, because it is a thread.

use std::mem;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio_util::sync::CancellationToken;

use crate::auth::audit::metrics::{AuditMetrics, LossCause};

/// The queue between requests and the writer thread.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    /// One permit for each byte.
    free_bytes: Semaphore,
    ended: CancellationToken,
    metrics: AuditMetrics,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    /// Whether the writer waits for events.
    writer_waits: bool,
    /// Whether the log is being closed: the queued events are still written.
    closing: bool,
    /// Whether the writer has ended: further events are lost.
    closed: bool,
}

/// Complete lines that are written together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<u8>,
    pub(super) events: u64,
    /// The permits that the lines hold.
    held_bytes: usize,
}

/// Error: the queue is full.
#[derive(Debug)]
pub(super) struct QueueFull;

impl Queue {
    /// Creates an empty queue.
    pub(super) fn new(metrics: AuditMetrics) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            free_bytes: Semaphore::new(QUEUE_BYTES_MAX),
            ended: CancellationToken::new(),
            metrics,
        }
    }

    /// Adds lines if there is space. After the end of the writer they are lost and counted.
    pub(super) fn try_push(&self, lines: &[u8], events: u64) -> Result<(), QueueFull> {
        match self.free_bytes.try_acquire_many(permits_for(lines)) {
            Ok(permit) => self.append(lines, events, permit),
            Err(TryAcquireError::NoPermits) => return Err(QueueFull),
            Err(TryAcquireError::Closed) => self.metrics.lost(LossCause::Closed, events),
        }
        Ok(())
    }

    /// Waits for space and adds lines. If the future is dropped before that, they are lost and
    /// counted.
    pub(super) async fn push(&self, lines: Vec<u8>, events: u64) {
        self.metrics.waits.inc();
        let mut guard = AbandonGuard { metrics: &self.metrics, events };
        let permit = self.free_bytes.acquire_many(permits_for(&lines)).await;
        guard.events = 0;
        drop(guard);
        match permit {
            Ok(permit) => self.append(&lines, events, permit),
            Err(_closed) => self.metrics.lost(LossCause::Closed, events),
        }
    }

    /// Adds the line of a watch's end, even if the queue is full.
    pub(super) fn push_end(&self, line: &[u8]) {
        match self.free_bytes.try_acquire_many(permits_for(line)) {
            Ok(permit) => self.append(line, 1, permit),
            Err(_) => self.append_with_permits(line, 1, 0),
        }
    }

    fn append(&self, lines: &[u8], events: u64, permit: SemaphorePermit<'_>) {
        let held_bytes = permit.num_permits();
        permit.forget();
        self.append_with_permits(lines, events, held_bytes);
    }

    fn append_with_permits(&self, lines: &[u8], events: u64, held_bytes: usize) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            self.metrics.lost(LossCause::Closed, events);
            return;
        }
        let batch = &mut state.batch;
        batch.lines.extend_from_slice(lines);
        batch.events += events;
        batch.held_bytes += held_bytes;
        let bytes = batch.lines.len();
        self.metrics.queued(bytes);
        let full = bytes >= BATCH_BYTES && bytes - lines.len() < BATCH_BYTES;
        let wake = mem::take(&mut state.writer_waits) || full;
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Waits for events and moves all of them into `batch`, whose buffer is reused. Returns false
    /// at the end. The events hold their permits until [`Queue::release`].
    pub(super) fn next_batch(&self, batch: &mut Batch) -> bool {
        *batch = Batch { lines: recycled(mem::take(&mut batch.lines)), events: 0, held_bytes: 0 };
        let mut state = self.state.lock();
        while state.batch.lines.is_empty() {
            if state.closing {
                return false;
            }
            state.writer_waits = true;
            self.work.wait(&mut state);
        }
        state.writer_waits = false;
        if !state.closing && state.batch.lines.len() < BATCH_BYTES {
            // Events that arrive meanwhile are written in the same batch.
            self.work.wait_for(&mut state, LINGER);
        }
        mem::swap(&mut state.batch, batch);
        self.metrics.queued(0);
        true
    }

    /// Releases the permits of a batch.
    pub(super) fn release(&self, batch: &Batch) {
        self.free_bytes.add_permits(batch.held_bytes);
    }

    /// Ends the writer after it has written the queued events.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_one();
    }

    /// Notes that the writer has ended. Events that are still queued are lost and counted.
    pub(super) fn end(&self) {
        let lost = {
            let mut state = self.state.lock();
            state.closed = true;
            mem::take(&mut state.batch).events
        };
        self.metrics.lost(LossCause::Closed, lost);
        self.free_bytes.close();
        self.ended.cancel();
    }

    /// Waits for [`Queue::end`].
    pub(super) async fn until_ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Counts events as lost if the future that waits for space is dropped. No part of their response
/// was sent.
struct AbandonGuard<'a> {
    metrics: &'a AuditMetrics,
    events: u64,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        self.metrics.lost(LossCause::Abandoned, self.events);
    }
}

/// Returns the number of permits for lines. Lines longer than the whole queue wait until it is
/// empty.
fn permits_for(lines: &[u8]) -> u32 {
    u32::try_from(lines.len().min(QUEUE_BYTES_MAX)).unwrap_or(u32::MAX)
}

/// Clears the buffer for the next batch, and frees the memory of an unusually large one.
fn recycled(mut lines: Vec<u8>) -> Vec<u8> {
    lines.clear();
    lines.shrink_to(BUFFER_BYTES_RETAINED_MAX);
    lines
}

/// The maximum size of the queued lines: ten thousand lines of typical length, as many as
/// kube-apiserver's buffer holds.
pub(super) const QUEUE_BYTES_MAX: usize = 8 << 20;
/// The writer waits for more events only below this size.
const BATCH_BYTES: usize = 64 << 10;
/// How long the first event of a batch waits for others. This bounds the rate of wake-ups and
/// writes, and the events that a crash loses.
const LINGER: Duration = Duration::from_millis(10);
/// The capacity of a buffer that is kept for the next batch.
const BUFFER_BYTES_RETAINED_MAX: usize = 1 << 20;
