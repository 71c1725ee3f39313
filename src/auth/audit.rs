//! Audit events of the reads answered here, in the form of the API server's own log (audit.k8s.io/v1), since it can't tell of them.
//!
//! What is forwarded is in the upstream's log, under the same `Audit-Id`. What Weir answers itself, from a cache or with a refusal, is told
//! here: level Metadata, one JSON object a line. The stages are the upstream's but for RequestReceived, which is left out: it
//! would double the log to tell of requests that never got an answer. So: ResponseComplete; for watches ResponseStarted at their head and
//! ResponseComplete at their end, however that comes; and ResponseStarted alone for who does not authenticate. The one difference: an
//! answer that is given whole is told just before it is sent, so that it can't be sent untold.
//!
//! With [`AuditBuffer::Blocking`] a request whose event finds no room waits, without limit: a log that must be complete means
//! that a stuck disk stops reads, as in kube-apiserver. A disk that fails, full or gone, does not: the events are lost, counted and
//! logged, as there. With [`AuditBuffer::Dropping`] nothing waits.

mod event;
mod json;
pub mod metrics;
mod policy;
mod queue;
mod record;
mod source;
mod writer;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;

use crate::auth::audit::event::Stage;
pub use crate::auth::audit::event::{AuditResponse, AuditSubject, Staleness};
use crate::auth::audit::metrics::{AuditMetrics, LossCause};
use crate::auth::audit::queue::Queue;
use crate::auth::audit::writer::{LogFile, Output, Stdout};
use crate::config::{AuditBuffer, AuditConfig, AuditOutput, AuditRule};

/// The log. Dropped, it writes what it has accepted, but nobody waits for that; see [`AuditLog::close`].
pub struct AuditLog {
    rules: Vec<AuditRule>,
    buffer: AuditBuffer,
    queue: Arc<Queue>,
    metrics: AuditMetrics,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Its file.
    #[error("the audit log {path} cannot be opened; its directory must exist")]
    File {
        /// As configured.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Standard output.
    #[error("the audit log cannot be written to standard output")]
    Stdout(#[source] io::Error),
    /// The thread that writes it.
    #[error("the thread that writes the audit log cannot be started")]
    Thread(#[source] io::Error),
}

impl AuditLog {
    /// Opens it and begins to write; `None` if nothing is to be told.
    pub fn start(
        config: &AuditConfig,
        metrics: AuditMetrics,
    ) -> Result<Option<Arc<Self>>, AuditError> {
        let log = match &config.output {
            None => return Ok(None),
            Some(AuditOutput::Stdout) => {
                Self::start_with(config, metrics, Stdout::open().map_err(AuditError::Stdout)?)
            }
            Some(AuditOutput::File(path)) => {
                let file = LogFile::open(path.clone())
                    .map_err(|source| AuditError::File { path: path.clone(), source })?;
                Self::start_with(config, metrics, file)
            }
        };
        log.map(|log| Some(Arc::new(log)))
    }

    fn start_with(
        config: &AuditConfig,
        metrics: AuditMetrics,
        output: impl Output + 'static,
    ) -> Result<Self, AuditError> {
        let queue = Arc::new(Queue::new(metrics.clone()));
        let (writer, counts) = (queue.clone(), metrics.clone());
        thread::Builder::new()
            .name("weir-audit".to_owned())
            .spawn(move || writer::run(&writer, output, &counts))
            .map_err(AuditError::Thread)?;
        Ok(Self { rules: config.rules.clone(), buffer: config.buffer, queue, metrics })
    }

    /// Whether the policy wants a request told. Cheap; nothing else is to be built if not.
    pub fn should_log(&self, subject: &AuditSubject<'_>) -> bool {
        policy::should_log(&self.rules, subject)
    }

    /// Tells of an answer that is given whole, refusals of watches among them. To be awaited before the answer is sent; the policy is not asked.
    pub async fn response_complete(&self, answer: &AuditResponse<'_>) {
        if let Err(pending) = self.try_enqueue(answer, answer.stages()) {
            self.queue.push(pending.lines, pending.events).await;
        }
    }

    /// Tells of the head of a watch, likewise; and of its end when that is dropped which this returns.
    pub async fn response_started(&self, answer: &AuditResponse<'_>) -> OpenWatch {
        let end = OpenWatch::new(self, answer);
        if let Err(pending) = self.try_enqueue(answer, &[Stage::ResponseStarted]) {
            self.queue.push(pending.lines, pending.events).await;
        }
        end.mark_started()
    }

    /// Writes what was accepted and then nothing more. To be called when the last answer and the last watch have ended. A disk that is
    /// stuck is not waited for beyond [`CLOSE_TIMEOUT`].
    pub async fn close(&self) {
        self.queue.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.queue.ended()).await.is_err() {
            tracing::error!("the audit log cannot be written to its end");
        }
    }

    /// Queues the lines of an answer, or gives them back if they have to wait.
    fn try_enqueue(
        &self,
        answer: &AuditResponse<'_>,
        stages: &[Stage],
    ) -> Result<(), PendingLines> {
        let now = Timestamp::now();
        let events = stages.len() as u64;
        LINES.with_borrow_mut(|lines| {
            lines.clear();
            lines.shrink_to(BUFFER_BYTES_RETAINED_MAX);
            for &stage in stages {
                record::push_line(lines, answer, stage, now);
            }
            match (self.queue.try_push(lines, events), self.buffer) {
                (Ok(()), _) => Ok(()),
                (Err(_full), AuditBuffer::Blocking) => {
                    Err(PendingLines { lines: lines.clone(), events })
                }
                (Err(_full), AuditBuffer::Dropping) => {
                    self.metrics.lost(LossCause::Full, events);
                    Ok(())
                }
            }
        })
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Without what it was configured with.
impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

/// Lines that wait for room.
struct PendingLines {
    lines: Vec<u8>,
    events: u64,
}

/// A watch that was told to have started. Dropped, it tells of the end, and never waits for that: see [`Queue::push_end`]; where
/// events are dropped rather than waited for, so is this.
#[must_use = "dropped, it tells that the watch has ended"]
pub struct OpenWatch {
    queue: Arc<Queue>,
    metrics: AuditMetrics,
    buffer: AuditBuffer,
    /// The line of the end, complete but for its time. Kept small, for watches are many.
    line: Box<[u8]>,
    /// Where that stands.
    time_offset: usize,
    started: bool,
}

impl OpenWatch {
    fn new(log: &AuditLog, answer: &AuditResponse<'_>) -> Self {
        let mut line = Vec::with_capacity(LINE_BYTES_TYPICAL);
        let time =
            record::push_line(&mut line, answer, Stage::ResponseComplete, Timestamp::UNIX_EPOCH);
        Self {
            queue: log.queue.clone(),
            metrics: log.metrics.clone(),
            buffer: log.buffer,
            line: line.into_boxed_slice(),
            time_offset: time,
            started: false,
        }
    }

    /// The start was told, so the end will be.
    fn mark_started(mut self) -> Self {
        self.started = true;
        self
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if !self.started {
            return;
        }
        let mut now = Vec::with_capacity(record::TIME_LENGTH);
        record::push_time(&mut now, Timestamp::now());
        if let Some(time) =
            self.line.get_mut(self.time_offset..self.time_offset + record::TIME_LENGTH)
        {
            time.copy_from_slice(&now);
        }
        match self.buffer {
            AuditBuffer::Blocking => self.queue.push_end(&self.line),
            AuditBuffer::Dropping if self.queue.try_push(&self.line, 1).is_err() => {
                self.metrics.lost(LossCause::Full, 1);
            }
            AuditBuffer::Dropping => {}
        }
    }
}

/// Names nobody.
impl fmt::Debug for OpenWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenWatch").finish_non_exhaustive()
    }
}

thread_local! {
    /// Where lines are composed, so that the queue's lock is held for a copy only.
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Of the above, so much is kept: more than any usual line, little for a thread.
const BUFFER_BYTES_RETAINED_MAX: usize = 16 << 10;

/// A usual line takes less, so that it is composed in one allocation.
const LINE_BYTES_TYPICAL: usize = 1 << 10;

/// How long the end of the process waits for the disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
