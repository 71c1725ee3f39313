//! Why a command failed, and with which exit code. Printed once, by `main`.

use std::fmt;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    cause: anyhow::Error,
}

impl Failure {
    /// What the user wrote can't be followed: exit code 2.
    pub fn usage(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: USAGE, cause: cause.into() }
    }

    /// Something failed while running: exit code 1.
    pub fn runtime(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: RUNTIME, cause: cause.into() }
    }

    /// A second signal cut a graceful stop short: exit code 130, as a shell would give.
    pub fn interrupted() -> Self {
        Self { code: INTERRUPTED, cause: anyhow::anyhow!("stopped at once by a second signal") }
    }

    /// See the constructors.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// The causes, chained on one line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.cause)
    }
}

const RUNTIME: u8 = 1;
const USAGE: u8 = 2;
const INTERRUPTED: u8 = 130;
