//! The error of a command, with its exit code. `main` prints it once.

use std::fmt;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    cause: anyhow::Error,
}

impl Failure {
    /// The command line or the configuration is wrong: exit code 2.
    pub fn usage(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: USAGE, cause: cause.into() }
    }

    /// Something failed while running: exit code 1.
    pub fn runtime(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: RUNTIME, cause: cause.into() }
    }

    /// A second signal cut a graceful shutdown short: exit code 130, as from a shell.
    pub fn interrupted() -> Self {
        Self { code: INTERRUPTED, cause: anyhow::anyhow!("stopped at once by a second signal") }
    }

    /// The doctor has findings that are worth a warning: exit code 3, so that a pipeline can fail.
    pub fn findings(count: usize) -> Self {
        Self { code: FINDINGS, cause: anyhow::anyhow!("{count} findings are worth a warning") }
    }

    /// Fields that changed need a restart: exit code 3, so that a pipeline can decide.
    pub fn restart(fields: usize) -> Self {
        Self { code: FINDINGS, cause: anyhow::anyhow!("{fields} changed fields need a restart") }
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// The chain of causes on one line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.cause)
    }
}

const RUNTIME: u8 = 1;
const USAGE: u8 = 2;
const FINDINGS: u8 = 3;
const INTERRUPTED: u8 = 130;
