//! The last lines of the log, in memory: what an operator can no longer scroll to is still there
//! when somebody asks for help.
//!
//! They are the lines that pass the filter of the log, each a JSON object whatever the log's
//! format is, so that a support bundle takes its listed fields.
//!
//! Memory: [`LINES_MAX`] lines and [`BYTES_MAX`] in all.
//!
//! Lock order: the lines, with no other lock.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// The last lines of the log. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentLines {
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug, Default)]
struct Lines {
    /// The latest is last.
    kept: VecDeque<Box<str>>,
    /// The length of all kept lines.
    bytes: usize,
}

/// Adds a line when it is dropped, so that a line may be written in parts.
#[derive(Debug)]
pub struct LineWriter<'a> {
    lines: &'a RecentLines,
    line: Vec<u8>,
}

impl RecentLines {
    /// Returns the lines, the oldest first, each with its line feed.
    pub fn text(&self) -> String {
        let lines = self.lines.lock();
        let mut text = String::with_capacity(lines.bytes + lines.kept.len());
        for line in &lines.kept {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Returns the memory of the lines in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.lock().bytes
    }

    /// Adds a line. One that is too long is left out, since half a JSON object is of no use.
    fn add(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\n');
        if line.is_empty() {
            return;
        }
        let line = match line.len() <= LINE_BYTES_MAX {
            true => Box::from(line),
            false => {
                format!(r#"{{"message":"a line of {} bytes is left out"}}"#, line.len()).into()
            }
        };
        self.lines.lock().add(line);
    }
}

impl Lines {
    fn add(&mut self, line: Box<str>) {
        self.bytes += line.len();
        self.kept.push_back(line);
        while self.kept.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

impl<'a> MakeWriter<'a> for RecentLines {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { lines: self, line: Vec::new() }
    }
}

impl io::Write for LineWriter<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter<'_> {
    fn drop(&mut self) {
        self.lines.add(&self.line);
    }
}

/// Some minutes of a Weir that has something to say.
pub const LINES_MAX: usize = 1_000;
/// A thousand usual lines.
pub const BYTES_MAX: usize = 256 << 10;
/// An error with a long cause fits, and takes no place of many others.
const LINE_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::logging::recording;

    fn add(lines: &RecentLines, line: &str) {
        writeln!(lines.make_writer(), "{line}").unwrap();
    }

    #[test]
    fn the_last_lines_are_kept() {
        let lines = RecentLines::default();
        for number in 0..LINES_MAX + 5 {
            add(&lines, &format!("line {number}"));
        }
        let text = lines.text();
        assert_eq!(text.lines().count(), LINES_MAX);
        assert!(text.starts_with("line 5\n") && text.ends_with("line 1004\n"), "{text}");
    }

    #[test]
    fn bytes_are_bounded() {
        let lines = RecentLines::default();
        for _ in 0..100 {
            add(&lines, &"x".repeat(LINE_BYTES_MAX));
        }
        assert_eq!(lines.text().lines().count(), BYTES_MAX / LINE_BYTES_MAX);
        assert_eq!(lines.lines.lock().bytes, BYTES_MAX);
        add(&lines, &"x".repeat(LINE_BYTES_MAX + 1));
        let text = lines.text();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["message"], "a line of 8193 bytes is left out");
    }

    #[test]
    fn events_that_pass_the_filter_are_lines_with_their_fields() {
        let lines = RecentLines::default();
        let subscriber = tracing_subscriber::registry()
            .with(EnvFilter::new("info"))
            .with(recording(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let _in = tracing::info_span!("reflector", resource = "v1/pods").entered();
            tracing::warn!(user = "jane \"j\"", count = 3, "a user has\ntwo lines");
            tracing::debug!("not for this log");
        });
        let text = lines.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["user"]), (&"WARN".into(), &"jane \"j\"".into()));
        assert_eq!(
            (&line["count"], &line["message"]),
            (&3.into(), &"a user has\ntwo lines".into())
        );
        assert_eq!(line["span"]["resource"], "v1/pods");
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
        assert!(line["filename"] == file!() && line["line_number"].is_u64(), "{line}");
    }
}
