//! The audit log: events of the requests that Weir answers itself, in the format of the API
//! server's own log (audit.k8s.io/v1). The API server does not see these requests.
//!
//! Forwarded requests are in the upstream's log, under the same `Audit-Id`. Requests that Weir
//! answers, from a cache or with a refusal, are logged here, at level Metadata, one JSON object a
//! line. The stages are those of the upstream except RequestReceived, which would double the size
//! of the log only to show requests without a response. So a request has ResponseComplete; a watch
//! has ResponseStarted when its response begins and ResponseComplete when it ends for any reason; a
//! request that does not authenticate has only ResponseStarted. One thing differs from upstream: a
//! complete response is logged just before it is sent, so that no response is sent without its
//! event.
//!
//! With [`AuditBuffer::Blocking`] a request waits without limit while the queue is full: if the log
//! must be complete, a disk that blocks stops reads, as in kube-apiserver. A disk that returns
//! errors does not: the events are lost, counted and logged, as there. With
//! [`AuditBuffer::Dropping`] nothing waits.

mod event;
mod json;
pub mod metrics;
mod policy;
mod queue;
mod record;
mod source;
mod writer;

use std::cell::RefCell;
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

/// The audit log. When it is dropped, accepted events are still written, but nothing waits for
/// them; see [`AuditLog::close`].
pub struct AuditLog {
    rules: Vec<AuditRule>,
    buffer: AuditBuffer,
    queue: Arc<Queue>,
    metrics: AuditMetrics,
}

/// Why the log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("the audit log {path} cannot be opened; its directory must exist")]
    File {
        /// The path from the configuration.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Standard output cannot be used.
    #[error("the audit log cannot be written to standard output")]
    Stdout(#[source] io::Error),
    /// The writer thread cannot be started.
    #[error("the thread that writes the audit log cannot be started")]
    Thread(#[source] io::Error),
}

impl AuditLog {
    /// Opens the output and starts the writer thread. Returns `None` if no output is configured.
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
        Ok(Self { rules: config.policy.rules.clone(), buffer: config.buffer, queue, metrics })
    }

    /// Returns whether the policy logs a request. Cheap; call this before building an
    /// [`AuditResponse`].
    pub fn should_log(&self, subject: &AuditSubject<'_>) -> bool {
        policy::should_log(&self.rules, subject)
    }

    /// Logs a complete response, which includes a refused watch. Await this before the response is
    /// sent. Does not check the policy.
    pub async fn response_complete(&self, response: &AuditResponse<'_>) {
        if let Err(pending) = self.try_enqueue(response, response.stages()) {
            self.queue.push(pending.lines, pending.events).await;
        }
    }

    /// Logs the start of a watch's response in the same way. The end is logged when the returned
    /// guard is dropped.
    pub async fn response_started(&self, response: &AuditResponse<'_>) -> OpenWatch {
        let watch = OpenWatch::new(self, response);
        if let Err(pending) = self.try_enqueue(response, &[Stage::ResponseStarted]) {
            self.queue.push(pending.lines, pending.events).await;
        }
        watch.mark_started()
    }

    /// Writes the accepted events and ends the log. Call this after the last response and the last
    /// watch have ended. Waits at most [`CLOSE_TIMEOUT`] for a disk that blocks.
    pub async fn close(&self) {
        self.queue.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.queue.until_ended()).await.is_err() {
            tracing::error!("the audit log was not written completely before the time-out");
        }
    }

    /// Queues the lines of a response. Returns them if they have to wait for space.
    fn try_enqueue(
        &self,
        response: &AuditResponse<'_>,
        stages: &[Stage],
    ) -> Result<(), PendingLines> {
        let now = Timestamp::now();
        let events = stages.len() as u64;
        LINES.with_borrow_mut(|lines| {
            lines.clear();
            lines.shrink_to(BUFFER_BYTES_RETAINED_MAX);
            for &stage in stages {
                record::push_line(lines, response, stage, now);
            }
            match (self.queue.try_push(lines, events), self.buffer) {
                (Ok(()), _) => Ok(()),
                (Err(_), AuditBuffer::Blocking) => {
                    Err(PendingLines { lines: lines.clone(), events })
                }
                (Err(_), AuditBuffer::Dropping) => {
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

// Shows nothing of the configured rules, which may name users.
crate::api::opaque!(AuditLog);

/// Lines that wait for space in the queue.
struct PendingLines {
    lines: Vec<u8>,
    events: u64,
}

/// A watch whose start was logged. Dropping it logs the end and never waits: with
/// [`AuditBuffer::Blocking`] the event is queued even if the queue is full ([`Queue::push_end`]),
/// with [`AuditBuffer::Dropping`] it is then dropped.
#[must_use = "the end of the watch is logged when this is dropped"]
pub struct OpenWatch {
    queue: Arc<Queue>,
    metrics: AuditMetrics,
    buffer: AuditBuffer,
    /// The line of the end, complete except for its time. Small, because there may be many watches.
    line: Box<[u8]>,
    /// The offset of the time in the line.
    time_offset: usize,
    started: bool,
}

impl OpenWatch {
    fn new(log: &AuditLog, response: &AuditResponse<'_>) -> Self {
        let mut line = Vec::with_capacity(LINE_BYTES_TYPICAL);
        let time =
            record::push_line(&mut line, response, Stage::ResponseComplete, Timestamp::UNIX_EPOCH);
        Self {
            queue: log.queue.clone(),
            metrics: log.metrics.clone(),
            buffer: log.buffer,
            line: line.into_boxed_slice(),
            time_offset: time,
            started: false,
        }
    }

    /// Notes that the start was logged, so that the end will be.
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

// Shows no field, because the line names the user.
crate::api::opaque!(OpenWatch);

thread_local! {
    /// The buffer in which lines are written, so that the queue's lock is held only for a copy.
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The capacity of the buffer that is kept for the next line: more than a typical line needs, and
/// little memory for a thread.
const BUFFER_BYTES_RETAINED_MAX: usize = 16 << 10;

/// More than a typical line needs, so that one allocation is enough.
const LINE_BYTES_TYPICAL: usize = 1 << 10;

/// How long the process waits for the disk when it stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
