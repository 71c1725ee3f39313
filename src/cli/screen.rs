//! What is written for people: results on standard output, complaints on standard error.
//!
//! `print!` panics when the reader has gone (`weir check FILE | head -1`); a broken pipe here ends
//! the output quietly.

use std::io::{self, IsTerminal, Write};

/// Standard output.
#[derive(Debug)]
pub struct Screen {
    stdout: io::Stdout,
    /// Whether the reader has gone.
    broken: bool,
}

impl Screen {
    /// The process' standard output.
    pub fn stdout() -> Self {
        Self { stdout: io::stdout(), broken: false }
    }

    /// Whether a person is likely to look at it.
    pub fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// Writes text, and flushes it. Does nothing once the reader has gone.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        let mut stdout = self.stdout.lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.broken = true;
                Ok(())
            }
            result => result,
        }
    }
}

/// Writes one line to standard error. If even that fails, there is nobody left to tell.
pub fn complain(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}
