//! The events that wait to be written: one buffer of whole lines, so that to wait costs no allocation and to write no assembly.
//!
//! Bounded in bytes by a semaphore, whose order is also the order of those that wait for room; a line holds its room until it is written or
//! lost. The ends of watches alone may come in beyond it ([`Queue::push_end`]): each was in memory already, kept by its watch, and there
//! can be no more of them than watches that had room for their start.
//!
//! One lock, held for the copy of a line; none is taken under it. The writer sleeps on a condition variable, since it is a thread.

use std::mem;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio_util::sync::CancellationToken;

use crate::auth::audit::metrics::{AuditMetrics, LossCause};

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    free_bytes: Semaphore,
    ended: CancellationToken,
    metrics: AuditMetrics,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    /// The writer sleeps until there is something.
    writer_waits: bool,
    /// What is there is still written.
    closing: bool,
    /// Nothing is any more.
    closed: bool,
}

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<u8>,
    pub(super) events: u64,
    /// The room they hold.
    held_bytes: usize,
}

/// There is no room now.
#[derive(Debug)]
pub(super) struct QueueFull;

impl Queue {
    pub(super) fn new(metrics: AuditMetrics) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            free_bytes: Semaphore::new(QUEUE_BYTES_MAX),
            ended: CancellationToken::new(),
            metrics,
        }
    }

    /// Adds lines if there is room. What comes after the end is lost, and counted.
    pub(super) fn try_push(&self, lines: &[u8], events: u64) -> Result<(), QueueFull> {
        match self.free_bytes.try_acquire_many(permits_for(lines)) {
            Ok(permit) => self.append(lines, events, permit),
            Err(TryAcquireError::NoPermits) => return Err(QueueFull),
            Err(TryAcquireError::Closed) => self.metrics.lost(LossCause::Closed, events),
        }
        Ok(())
    }

    /// Adds lines as soon as there is room. Dropped before that, they are lost, and counted.
    pub(super) async fn push(&self, lines: Vec<u8>, events: u64) {
        self.metrics.waited();
        let mut guard = AbandonGuard { metrics: &self.metrics, events };
        let permit = self.free_bytes.acquire_many(permits_for(&lines)).await;
        guard.events = 0;
        drop(guard);
        match permit {
            Ok(permit) => self.append(&lines, events, permit),
            Err(_closed) => self.metrics.lost(LossCause::Closed, events),
        }
    }

    /// Adds the line of a watch's end, room or not.
    pub(super) fn push_end(&self, line: &[u8]) {
        match self.free_bytes.try_acquire_many(permits_for(line)) {
            Ok(permit) => self.append(line, 1, permit),
            Err(_) => self.append_holding(line, 1, 0),
        }
    }

    fn append(&self, lines: &[u8], events: u64, permit: SemaphorePermit<'_>) {
        let held_bytes = permit.num_permits();
        permit.forget();
        self.append_holding(lines, events, held_bytes);
    }

    fn append_holding(&self, lines: &[u8], events: u64, held_bytes: usize) {
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

    /// Sleeps until there are events and takes them all, in exchange for `batch`; `false` at the end. They hold their room until
    /// [`Queue::release`].
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
            // More may come meanwhile, and be written with them.
            self.work.wait_for(&mut state, LINGER);
        }
        mem::swap(&mut state.batch, batch);
        self.metrics.queued(0);
        true
    }

    /// Gives back the room of a batch.
    pub(super) fn release(&self, batch: &Batch) {
        self.free_bytes.add_permits(batch.held_bytes);
    }

    /// What is there is written, then nothing is any more.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_one();
    }

    /// Nobody takes any more.
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
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Counts what waited in vain: its request was given up, and nothing of the answer left Weir.
struct AbandonGuard<'a> {
    metrics: &'a AuditMetrics,
    events: u64,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        self.metrics.lost(LossCause::Abandoned, self.events);
    }
}

/// A line longer than the whole queue waits until it is empty.
fn permits_for(lines: &[u8]) -> u32 {
    u32::try_from(lines.len().min(QUEUE_BYTES_MAX)).unwrap_or(u32::MAX)
}

/// A buffer for the next batch, without the memory of an unusual one.
fn recycled(mut lines: Vec<u8>) -> Vec<u8> {
    lines.clear();
    lines.shrink_to(BUFFER_BYTES_RETAINED_MAX);
    lines
}

/// Room for lines that are not yet written: ten thousand of the usual length, as kube-apiserver's own buffer has.
pub(super) const QUEUE_BYTES_MAX: usize = 8 << 20;
/// So much is written without waiting for more.
const BATCH_BYTES: usize = 64 << 10;
/// How long the first event of a batch waits for others: it bounds the wake-ups and writes at any rate, and what a crash loses.
const LINGER: Duration = Duration::from_millis(10);
/// Of a buffer, so much is kept for the next batch.
const BUFFER_BYTES_RETAINED_MAX: usize = 1 << 20;
