//! `weir top` on a terminal: drawn over itself at an interval, until q or Ctrl-C.
//!
//! The terminal shows a second screen meanwhile, and keys are read one by one. Both are as before
//! at the end, also after an error.

use std::io::{self, Read, Write as _};
use std::thread;
use std::time::Duration;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::cli::screen::Stdout;

/// A terminal that is drawn over itself.
pub(super) struct LiveScreen {
    stdout: Stdout,
    /// `None` if standard input is no terminal.
    before: Option<Termios>,
    keys: mpsc::Receiver<u8>,
}

impl LiveScreen {
    /// Takes the terminal.
    pub(super) fn open(mut stdout: Stdout) -> io::Result<Self> {
        stdout.print(ENTER)?;
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        let before = key_by_key();
        if before.is_some() {
            // Ends with the process: a read of a terminal cannot be cancelled.
            thread::spawn(move || {
                for key in io::stdin().lock().bytes().map_while(Result::ok) {
                    if sender.blocking_send(key).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { stdout, before, keys })
    }

    /// Draws a text, as far as it fits.
    pub(super) fn draw(&mut self, text: &str) -> io::Result<()> {
        let size = termios::tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        self.stdout.print(&frame(text, size.unwrap_or(SIZE_USUAL)))
    }

    /// Waits for an interval. Returns whether the user wants to quit.
    pub(super) async fn rest(&mut self, interval: Duration) -> bool {
        let end = Instant::now() + interval;
        loop {
            tokio::select! {
                key = self.keys.recv(), if self.before.is_some() => match key {
                    Some(b'q' | b'Q') => return true,
                    // Any other key draws it again at once.
                    Some(_) => return false,
                    None => self.before = None,
                },
                () = sleep_until(end) => return false,
                _ = tokio::signal::ctrl_c() => return true,
            }
        }
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let set = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
            if let Err(error) = set {
                tracing::debug!(%error, "the terminal cannot be set back");
            }
        }
        drop(io::stdout().lock().write_all(LEAVE.as_bytes()));
        drop(io::stdout().lock().flush());
    }
}

/// Lets keys be read one by one, without an echo. Returns the mode before.
fn key_by_key() -> Option<Termios> {
    let before = termios::tcgetattr(io::stdin()).ok()?;
    let mut changed = before.clone();
    changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &changed).ok()?;
    Some(before)
}

/// Returns what draws a text over the last one, in a terminal of this many columns and rows.
fn frame(text: &str, (columns, rows): (usize, usize)) -> String {
    let mut frame = HOME.to_owned();
    let lines = text.lines().take(rows.saturating_sub(1).max(1));
    for line in lines {
        frame.extend(line.chars().take(columns.max(1)));
        frame.push_str(END_OF_LINE);
    }
    frame.push_str(CLEAR_REST);
    frame.push_str(KEYS);
    frame
}

/// The second screen, and no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const CLEAR_REST: &str = "\x1b[J";
const KEYS: &str = "q: quit";
const SIZE_USUAL: (usize, usize) = (120, 40);
/// A user types slowly.
const KEYS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_and_clears_what_was_there() {
        let drawn = frame("äbcdef\nsecond\nthird\nfourth\n", (4, 4));
        assert_eq!(drawn, "\x1b[Häbcd\x1b[K\r\nseco\x1b[K\r\nthir\x1b[K\r\n\x1b[Jq: quit");
        assert!(frame("", (0, 0)).ends_with(KEYS));
    }
}
