//! The figures of a run, and the file that they are written to: JSON lines, to be read line by line into any table and plotted.
//!
//! | line | keys |
//! |---|---|
//! | the first: what was run, and where | `run`: an object of texts |
//! | a figure | `row`, `server` (`upstream`, `weir`, `floor`, `nginx`), `figure` (its unit is its last word), `value` |
//! | a target, at the end | `row`, `target`, `is`, `allowed`, `met` |
//!
//! ```json
//! {"row":"get","server":"weir","figure":"cpu_ms","value":0.028}
//! ```
//!
//! Figures of a read: `bytes` of the body; `cpu_ms` a request, `rate` (requests a second), `p50_ms`, `p99_ms`, `resident_bytes`. Of watches:
//! `watches`, `open_s` (until all are open), `memory_per_watch_idle_bytes`, `memory_per_watch_bytes` (after events), `resident_bytes`, `events`,
//! `deliveries`, `missing`, `ended` (watches that the server ended), `seconds` (of changes), `cpu_s`, `waited_s` (its threads for a processor,
//! all together), `upstream_cpu_s`, `client_cpu_s` (in that time), `lag_p50_ms`, `lag_p99_ms` (from before the change was sent), `added_lag_p50_ms`, `added_lag_p99_ms` (from when a watch of the
//! upstream alone read it), `rate` (changes a second, where it was chosen), `event_cpu_ms`, `event_waited_ms`. Of a first sync: `sync_s`, `list_s`, `watch_list_s`,
//! `object_bytes`, `memory_per_object_bytes`. Of what is
//! forwarded: `p50_us`, `p99_us`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use crate::table::{Judged, figure};

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) run: BTreeMap<&'static str, String>,
    rows: BTreeMap<(String, &'static str), BTreeMap<String, f64>>,
}

impl Results {
    /// What is no number was not measured.
    pub(crate) fn set(&mut self, row: &str, server: &'static str, name: &str, value: f64) {
        if value.is_finite() {
            self.rows.entry((row.to_owned(), server)).or_default().insert(name.to_owned(), value);
        }
    }

    pub(crate) fn get(&self, row: &str, server: &str, name: &str) -> Option<f64> {
        let found = self.rows.iter().find(|((it, of), _)| it == row && *of == server);
        found?.1.get(name).copied()
    }

    /// All of a server in a row, to be read.
    pub(crate) fn figures(&self, row: &str, server: &str) -> Vec<String> {
        let found = self.rows.iter().find(|((it, of), _)| it == row && *of == server);
        let figures = found.into_iter().flat_map(|(_, figures)| figures);
        figures.map(|(name, value)| format!("{name} {}", figure(*value))).collect()
    }

    /// Of one server to another's.
    pub(crate) fn ratio(&self, row: &str, name: &str, of: &str, to: &str) -> Option<f64> {
        let ratio = self.get(row, of, name)? / self.get(row, to, name)?;
        ratio.is_finite().then_some(ratio)
    }

    pub(crate) fn write(&self, path: &Path, judged: &[Judged]) {
        let mut text = json!({"run": self.run}).to_string() + "\n";
        for ((row, server), figures) in &self.rows {
            for (figure, value) in figures {
                let line = json!({"row": row, "server": server, "figure": figure, "value": value});
                writeln!(text, "{line}").expect("a text grows");
            }
        }
        for it in judged {
            let line = json!({"row": it.row, "target": it.target, "is": it.is, "allowed": it.allowed, "met": it.met});
            writeln!(text, "{line}").expect("a text grows");
        }
        std::fs::write(path, text).expect("a file");
    }
}

/// The value below which so many of a hundred are; `NaN` of none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
