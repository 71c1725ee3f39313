//! Runs a program for its output, within a time and a size.
//!
//! The program is the leader of a process group of its own, so that its children can be killed with
//! it: a shell script that hangs usually waits for a child. A child that the program left behind
//! may keep the output open; it is killed a moment after the program ended.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

/// Why there is no output.
#[derive(Debug)]
pub(super) enum ProcessError {
    /// It could not be started.
    Start(io::Error),
    /// It ended without success.
    Failed(ExitStatus),
    /// Its output or its end could not be read.
    Output(io::Error),
    /// Its output is too large.
    TooLong,
    /// It did not end in time, and was killed.
    Hung,
}

/// Runs `command` and returns what it wrote to its standard output. It has no standard input, and
/// its standard error is dropped, which may contain credentials.
pub(super) async fn output(
    mut command: Command,
    time_max: Duration,
    max_bytes: u64,
) -> Result<Vec<u8>, ProcessError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(ProcessError::Start)?;
    let mut group = GroupGuard::new(&child);
    let stdout = child.stdout.take();
    match tokio::time::timeout(time_max, read(&mut child, stdout, max_bytes, &mut group)).await {
        Ok(result) => result,
        Err(_) => {
            group.kill();
            // Removes the entry from the process table.
            child.wait().await.map_err(ProcessError::Output)?;
            Err(ProcessError::Hung)
        }
    }
}

async fn read(
    child: &mut Child,
    stdout: Option<ChildStdout>,
    max_bytes: u64,
    group: &mut GroupGuard,
) -> Result<Vec<u8>, ProcessError> {
    let mut output = Vec::new();
    let status = {
        let mut limited = stdout.map(|stdout| stdout.take(max_bytes + 1));
        let reading = async {
            match &mut limited {
                Some(limited) => limited.read_to_end(&mut output).await.map(drop),
                None => Ok(()),
            }
        };
        let mut reading = std::pin::pin!(reading);
        let status = tokio::select! {
            read = &mut reading => {
                read.map_err(ProcessError::Output)?;
                None
            }
            status = child.wait() => Some(status.map_err(ProcessError::Output)?),
        };
        match status {
            // Its output is in the pipe. Only a child of it can keep the pipe open.
            Some(status) => {
                if let Ok(read) = tokio::time::timeout(OPEN_MAX, &mut reading).await {
                    read.map_err(ProcessError::Output)?;
                } else {
                    group.kill();
                }
                Some(status)
            }
            None => None,
        }
    };
    if output.len() as u64 > max_bytes {
        return Err(ProcessError::TooLong);
    }
    let status = match status {
        Some(status) => status,
        None => child.wait().await.map_err(ProcessError::Output)?,
    };
    group.has_ended();
    if status.success() { Ok(output) } else { Err(ProcessError::Failed(status)) }
}

/// Kills a process group when it is dropped before its leader has ended.
struct GroupGuard(Option<Pid>);

impl GroupGuard {
    fn new(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    fn kill(&mut self) {
        if let Some(group) = self.0.take()
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "the processes of an exec plugin have ended already");
        }
    }

    fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long the output may stay open after the program has ended.
const OPEN_MAX: Duration = Duration::from_secs(1);
