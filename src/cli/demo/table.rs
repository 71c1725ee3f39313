//! The live table of the demo on a terminal: what clients asked of Weir, what the API server saw of
//! it, and how late events arrive.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cli::demo::figures;
use crate::server::ServerFigures;
use crate::simulator::RequestLog;

/// The table, which is drawn over itself.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The lines of the table as it was drawn last.
    lines: usize,
    before: [[u64; 2]; ROWS.len()],
}

impl Table {
    /// Returns the text that draws the table over the last one. `late` are the median and the 99th
    /// percentile. Call this once a second.
    pub(super) fn draw(
        &mut self,
        server: &ServerFigures,
        requests: &RequestLog,
        late: Option<[Duration; 2]>,
    ) -> String {
        let asked = |verb: &str| figures::requests(server, |request| &*request.verb == verb);
        let counts = requests.counts();
        let seen = |wanted: &str| {
            counts.iter().filter(|((verb, _), _)| verb == wanted).map(|(_, count)| count).sum()
        };
        let totals = ROWS.map(|(_, verb)| [asked(verb), seen(verb)]);
        let mut text = String::new();
        if self.lines > 0 {
            text = format!("\x1b[{}A\r\x1b[J", self.lines);
        }
        let mut lines = vec![format!(
            "{:<10}{:>16}{:>12}{:>22}{:>12}",
            "", "clients asked/s", "in all", "API server saw/s", "in all"
        )];
        for (((name, _), totals), before) in ROWS.iter().zip(&totals).zip(&self.before) {
            let [asked, seen] = totals;
            let rates = [0, 1].map(|place| {
                let count = |pair: &[u64; 2]| pair.get(place).copied().unwrap_or_default();
                count(totals).saturating_sub(count(before))
            });
            let [asked_rate, seen_rate] = rates;
            lines.push(format!("{name:<10}{asked_rate:>16}{asked:>12}{seen_rate:>22}{seen:>12}"));
        }
        let open = server.watches;
        let upstream = requests.watches_open();
        lines.push(format!("{:<10}{open:>16}{:>12}{upstream:>22}", "open", ""));
        let events = figures::events(server);
        let late = late.map_or("none measured yet".to_owned(), |[median, most]| {
            format!("half within {} of the change, 99 % within {}", millis(median), millis(most))
        });
        lines.push(format!("{:<10}{events} sent; {late}", "events"));
        for line in &lines {
            // Writing to a string cannot fail.
            let _infallible = writeln!(text, "{line}");
        }
        self.lines = lines.len();
        self.before = totals;
        text
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", 1e3 * duration.as_secs_f64())
}

/// The rows, with the verbs that they count.
const ROWS: [(&str, &str); 3] = [("GET", "get"), ("LIST", "list"), ("WATCH", "watch")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::RequestCount;

    #[test]
    fn the_table_is_drawn_over_itself() {
        let lists = |count| ServerFigures {
            requests: vec![RequestCount { verb: "list".into(), count, ..RequestCount::default() }],
            ..ServerFigures::default()
        };
        let mut table = Table::default();
        let log = RequestLog::default();
        let first = table.draw(&lists(5.0), &log, None);
        assert!(!first.contains('\x1b') && first.contains("none measured yet"), "{first}");
        let late = [Duration::from_micros(1500), Duration::from_millis(4)];
        let second = table.draw(&lists(12.0), &log, Some(late));
        assert!(second.starts_with("\x1b[6A"), "{second:?}");
        let list = second.lines().find(|line| line.starts_with("LIST")).unwrap();
        assert_eq!(list.split_whitespace().collect::<Vec<_>>(), ["LIST", "7", "12", "0", "0"]);
        assert!(
            second.contains("half within 1.5 ms of the change, 99 % within 4.0 ms"),
            "{second}"
        );
        assert!(second.lines().all(|line| line.trim_start_matches("\x1b[6A\r\x1b[J").len() < 90));
    }
}
