//! Output for people: results on standard output, errors on standard error.
//!
//! `print!` panics after the reader closed the pipe (`weir check FILE | head -1`); here a broken
//! pipe ends the output quietly.

use std::io::{self, IsTerminal, Write};

/// Standard output.
#[derive(Debug)]
pub struct Stdout {
    stdout: io::Stdout,
    /// Whether the reader closed the pipe.
    broken: bool,
}

impl Stdout {
    /// The process' standard output.
    pub fn open() -> Self {
        Self { stdout: io::stdout(), broken: false }
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// Writes text and flushes it. Does nothing after the reader closed the pipe.
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

/// Returns a text without control characters, which must not reach the terminal: some texts come
/// from clients, such as their user agents, and from the API server.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Writes one line to standard error. A failure is ignored: no other output is left.
pub fn print_error(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}
