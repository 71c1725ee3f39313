//! Writes the queued events in a thread of its own: a disk that blocks must delay neither a worker
//! nor the end of the process.
//!
//! Each batch is written to the operating system at once, without waiting for the disk (no fsync):
//! a written event survives a crash of Weir, but perhaps not one of the machine. A batch that
//! cannot be written is lost and counted, as in kube-apiserver, and the next one is tried. An
//! outage is logged once.
//!
//! Rotation is left to the platform. Before each batch the path is checked, and reopened if it
//! leads to another file, so that `logrotate` needs no signal. The file is only appended to, so
//! that copy-and-truncate works, too.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::auth::audit::metrics::{AuditMetrics, LossCause};
use crate::auth::audit::queue::{Batch, Queue};

/// The destination of the lines.
pub(super) trait Output: Send {
    /// Writes lines. An error contains the number of bytes that were written before it.
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)>;
}

/// Writes events until the queue is closed.
pub(super) fn run(queue: &Queue, mut output: impl Output, metrics: &AuditMetrics) {
    // Also after a panic, so that no request waits for space for ever.
    let _end = EndOnDrop(queue);
    let mut batch = Batch::default();
    let mut outage = None;
    while queue.next_batch(&mut batch) {
        let lost = match output.write(&batch.lines) {
            Ok(()) => 0,
            Err((written, error)) => {
                let rest = batch.lines.get(written..).unwrap_or_default();
                let lost = memchr::memchr_iter(b'\n', rest).count() as u64;
                metrics.errors.inc();
                if outage.is_none() {
                    tracing::error!(%error, "cannot write audit events; they are lost until writing succeeds again");
                }
                *outage.get_or_insert(0) += lost;
                lost
            }
        };
        metrics.written.inc_by(batch.events.saturating_sub(lost));
        metrics.lost(LossCause::Error, lost);
        if lost == 0
            && let Some(lost) = outage.take()
        {
            tracing::info!(lost, "audit events are written again");
        }
        queue.release(&batch);
    }
}

struct EndOnDrop<'a>(&'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// An open file.
#[derive(Debug)]
struct Target {
    file: File,
    /// Whether the last line is incomplete.
    is_torn: bool,
}

impl Target {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.is_torn {
            // A new line separates the incomplete line from the next one.
            write_from(&mut self.file, b"\n", &mut 0).map_err(|error| (0, error))?;
            self.is_torn = false;
        }
        let mut written = 0;
        write_from(&mut self.file, lines, &mut written).map_err(|error| {
            self.is_torn = written > 0 && lines.get(written - 1) != Some(&b'\n');
            (written, error)
        })
    }
}

/// Does the same as `write_all`, and updates `written` to the number of bytes written.
fn write_from(file: &mut File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(bytes) => *written += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Standard output may be a pipe in non-blocking mode, set by another process.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::park_timeout(RETRY_DELAY)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Standard output without the buffer of the standard library.
#[derive(Debug)]
pub(super) struct Stdout(Target);

impl Stdout {
    pub(super) fn open() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self(Target { file, is_torn: false }))
    }
}

impl Output for Stdout {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        self.0.write(lines)
    }
}

/// A file that is identified by its path.
#[derive(Debug)]
pub(super) struct LogFile {
    path: Arc<Path>,
    target: Target,
    identity: (u64, u64),
}

impl LogFile {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let (target, identity) = open(&path)?;
        Ok(Self { path: path.into(), target, identity })
    }

    /// Opens the path again if it leads to another file.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(current) if identity(&current) == self.identity => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // It is not known whether the file has moved, so the open one stays in use.
            Err(_) => return Ok(()),
        }
        (self.target, self.identity) = open(&self.path)?;
        Ok(())
    }
}

impl Output for LogFile {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        self.reopen_if_moved().map_err(|error| (0, error))?;
        self.target.write(lines)
    }
}

fn open(path: &Path) -> io::Result<(Target, (u64, u64))> {
    let file = File::options().append(true).create(true).mode(FILE_MODE).open(path)?;
    let metadata = file.metadata()?;
    Ok((Target { file, is_torn: is_torn(path, &metadata) }, identity(&metadata)))
}

/// Returns whether a file ends with an incomplete line, as after a crash. A file that cannot be
/// read counts as complete.
fn is_torn(path: &Path, metadata: &Metadata) -> bool {
    if !metadata.is_file() || metadata.len() == 0 {
        return false;
    }
    let mut last = [0];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut last, metadata.len() - 1));
    read.is_ok() && last != *b"\n"
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Only Weir's own user may read the log.
const FILE_MODE: u32 = 0o600;

/// The delay before a write to a full pipe is retried.
const RETRY_DELAY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
