//! Takes events off the queue and writes them, as a thread of its own: a disk that is stuck must hold neither a worker nor the end of the
//! process.
//!
//! Each batch is handed to the operating system whole, and no more is waited for: what survives a crash of Weir, but perhaps not one of the
//! machine. A batch that can't be written is lost and counted, as in kube-apiserver, and the next one is tried; an outage is logged once.
//!
//! Rotation is the platform's. The file is opened anew when its path leads elsewhere, looked at before each batch, so that `logrotate` needs
//! no signal; for copy-and-truncate, it is only ever appended to.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::auth::audit::metrics::{AuditMetrics, LossCause};
use crate::auth::audit::queue::{Batch, Queue};

/// Where lines go.
pub(super) trait Output: Send {
    /// Writes lines; after an error, how many bytes of them were written.
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)>;
}

/// Writes until the queue ends.
pub(super) fn run(queue: &Queue, mut output: impl Output, metrics: &AuditMetrics) {
    // Also if it panics: nobody may wait for room for ever.
    let _end = EndOnDrop(queue);
    let mut batch = Batch::default();
    let mut outage = None;
    while queue.next_batch(&mut batch) {
        let lost = match output.write(&batch.lines) {
            Ok(()) => 0,
            Err((written, error)) => {
                let rest = batch.lines.get(written..).unwrap_or_default();
                let lost = memchr::memchr_iter(b'\n', rest).count() as u64;
                metrics.failed();
                if outage.is_none() {
                    tracing::error!(%error, "audit events cannot be written, and are lost until they can be again");
                }
                *outage.get_or_insert(0) += lost;
                lost
            }
        };
        metrics.wrote(batch.events.saturating_sub(lost));
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

/// An open file, and whether a line of it was left without its end.
#[derive(Debug)]
struct Target {
    file: File,
    torn: bool,
}

impl Target {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.torn {
            // The next line must not be read as the rest of that one.
            write_from(&mut self.file, b"\n", &mut 0).map_err(|error| (0, error))?;
            self.torn = false;
        }
        let mut written = 0;
        write_from(&mut self.file, lines, &mut written).map_err(|error| {
            self.torn = written > 0 && lines.get(written - 1) != Some(&b'\n');
            (written, error)
        })
    }
}

/// As `write_all`, but tells how far it came.
fn write_from(file: &mut File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(bytes) => *written += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Standard output may be somebody else's pipe that does not block.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::park_timeout(RETRY_DELAY)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Standard output, past the buffer of the standard library.
#[derive(Debug)]
pub(super) struct Stdout(Target);

impl Stdout {
    pub(super) fn open() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self(Target { file, torn: false }))
    }
}

impl Output for Stdout {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        self.0.write(lines)
    }
}

/// A file by its path.
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

    /// Opens the file anew if it is no longer the one at its path.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(there) if identity(&there) == self.identity => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // It cannot be told; the open one is as good as any.
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
    Ok((Target { file, torn: is_torn(path, &metadata) }, identity(&metadata)))
}

/// Whether a file ends within a line, as a crash leaves it. What cannot be read is taken to be whole.
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

/// Only Weir's own user may read who reads what.
const FILE_MODE: u32 = 0o600;

/// Before a pipe that is full is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
