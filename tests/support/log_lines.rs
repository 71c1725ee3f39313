//! The log of a process, with bounded waits for its lines.

use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The lines of a log as they come, which a thread reads: a read of the pipe itself has no bound.
pub(crate) struct Log(mpsc::Receiver<String>);

impl Log {
    /// Begins to read.
    pub(crate) fn read_from(pipe: ChildStderr) -> Self {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self(receive)
    }

    /// Returns the next line, or `None` when the log has ended.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(LINE_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line for {LINE_TIMEOUT:?}"),
        }
    }

    /// Returns the next line that contains `text`, or `None` if the log ends before it.
    pub(crate) fn wait_for(&self, text: &str) -> Option<String> {
        std::iter::from_fn(|| self.next()).find(|line| line.contains(text))
    }
}

const LINE_TIMEOUT: Duration = Duration::from_secs(60);
