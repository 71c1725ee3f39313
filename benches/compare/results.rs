//! The figures of a run, and the file with them. The file has JSON lines:
//!
//! | line | keys |
//! |---|---|
//! | the first: the machine and the arguments | `run`: an object of strings |
//! | a figure | `row`, `server`, `figure` (its last word is the unit), `value` |
//! | a target, at the end | `row`, `target`, `is`, `allowed`, `met` |
//!
//! ```json
//! {"row":"get","server":"weir","figure":"cpu_ms","value":0.028}
//! ```
//!
//! The servers are `upstream`, `weir`, `floor` and `nginx`. The figures of each kind of row:
//!
//! * A read has `bytes` (of the body), `cpu_ms` (per request), `rate` (requests per second),
//!   `p50_ms`, `p99_ms` and `resident_bytes`.
//! * A row of watches has `watches`, `open_s` (until all are open), `memory_per_watch_idle_bytes`,
//!   `memory_per_watch_bytes` (after events), `resident_bytes`, `events`, `deliveries`, `missing`
//!   (deliveries), `ended` (watches that the server ended), `seconds` (of changes), `cpu_s`,
//!   `waited_s` (sum over its threads of the time that they waited for a processor), and, in the
//!   same time, `upstream_cpu_s` and `client_cpu_s`.
//! * Its lags are `lag_p50_ms` and `lag_p99_ms` (from before the change is sent),
//!   `added_lag_p50_ms` and `added_lag_p99_ms` (from when a watch of the upstream itself received
//!   the event).
//! * The row `watch-lag` also has `rate` (changes per second), `event_cpu_ms` and
//!   `event_waited_ms`.
//! * A first sync has `sync_s`, `list_s`, `watch_list_s`, `object_bytes` and
//!   `memory_per_object_bytes`.
//! * Consistent lists have, with the prefixes `forward_` and `auto_` for the two settings, `lists`,
//!   `hits`, `cpu_ms` (per list), `p50_ms`, `p99_ms`, and `lists_per_s` (at the upstream).
//! * The forwarded GET has `p50_us`, `p99_us` and, for Weir, `cpu_us`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use crate::table::{TargetResult, figure};

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) run: BTreeMap<&'static str, String>,
    rows: BTreeMap<(String, &'static str), BTreeMap<String, f64>>,
}

impl Results {
    /// Stores a figure. Ignores infinities and NaN, which mean that it was not measured.
    pub(crate) fn set(&mut self, row: &str, server: &'static str, name: &str, value: f64) {
        if value.is_finite() {
            self.rows.entry((row.to_owned(), server)).or_default().insert(name.to_owned(), value);
        }
    }

    pub(crate) fn get(&self, row: &str, server: &str, name: &str) -> Option<f64> {
        let figures = self
            .rows
            .iter()
            .find(|((row_name, server_name), _)| row_name == row && *server_name == server);
        figures?.1.get(name).copied()
    }

    /// Returns the names and values of a server's figures in a row as text.
    pub(crate) fn figures(&self, row: &str, server: &str) -> Vec<String> {
        let figures = self
            .rows
            .iter()
            .find(|((row_name, server_name), _)| row_name == row && *server_name == server);
        let figures = figures.into_iter().flat_map(|(_, figures)| figures);
        figures.map(|(name, value)| format!("{name} {}", figure(*value))).collect()
    }

    /// Returns the ratio of a figure between the servers `of` and `to`.
    pub(crate) fn ratio(&self, row: &str, name: &str, numerator: &str, to: &str) -> Option<f64> {
        let ratio = self.get(row, numerator, name)? / self.get(row, to, name)?;
        ratio.is_finite().then_some(ratio)
    }

    pub(crate) fn write(&self, path: &Path, targets: &[TargetResult]) {
        let mut text = json!({"run": self.run}).to_string() + "\n";
        for ((row, server), figures) in &self.rows {
            for (figure, value) in figures {
                let line = json!({"row": row, "server": server, "figure": figure, "value": value});
                writeln!(text, "{line}").expect("a text grows");
            }
        }
        for target in targets {
            let line = json!({"row": target.row, "target": target.target, "is": target.is, "allowed": target.allowed, "met": target.met});
            writeln!(text, "{line}").expect("a text grows");
        }
        std::fs::write(path, text).expect("a file");
    }
}

/// Returns a percentile, or NaN if there are no values.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
