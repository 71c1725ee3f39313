//! The table at the end of a run: lines of figures with their targets and whether these are met.

use crate::server::{FLOOR, NGINX, UPSTREAM, WEIR};

pub(crate) const SERVERS: [&str; 4] = [UPSTREAM, WEIR, FLOOR, NGINX];

/// A figure of all servers, in the order of [`SERVERS`].
pub(crate) struct Line {
    pub(crate) row: String,
    /// The name of the figure, with its unit.
    pub(crate) figure: String,
    values: [String; 4],
    pub(crate) targets: Vec<TargetResult>,
}

/// A target for Weir, and the measured value.
#[derive(Clone)]
pub(crate) struct TargetResult {
    pub(crate) row: String,
    pub(crate) target: String,
    pub(crate) is: f64,
    pub(crate) allowed: f64,
    pub(crate) met: bool,
}

impl Line {
    /// Returns a line with one figure per server. Unknown figures are empty.
    pub(crate) fn new(
        row: &str,
        figure: &str,
        value: impl Fn(&'static str) -> Option<f64>,
    ) -> Self {
        Self::with_several(row, figure, |server| value(server).into_iter().collect())
    }

    /// Returns a line with several figures per server, which keeps the table short.
    pub(crate) fn with_several(
        row: &str,
        figures: &str,
        values: impl Fn(&'static str) -> Vec<f64>,
    ) -> Self {
        let text = |values: Vec<f64>| values.into_iter().map(figure).collect::<Vec<_>>().join(", ");
        let values = SERVERS.map(|server| text(values(server)));
        Self { row: row.to_owned(), figure: figures.to_owned(), values, targets: Vec::new() }
    }

    /// Adds an upper limit as a target, unless a value is unknown.
    pub(crate) fn at_most(mut self, target: &str, is: Option<f64>, allowed: Option<f64>) -> Self {
        self.targets.extend(is.zip(allowed).map(|(is, allowed)| TargetResult {
            row: self.row.clone(),
            target: format!("{target}, at most"),
            is,
            allowed,
            met: is <= allowed,
        }));
        self
    }

    /// Adds a lower limit as a target, unless a value is unknown.
    pub(crate) fn at_least(mut self, target: &str, is: Option<f64>, allowed: Option<f64>) -> Self {
        self.targets.extend(is.zip(allowed).map(|(is, allowed)| TargetResult {
            row: self.row.clone(),
            target: format!("{target}, at least"),
            is,
            allowed,
            met: is >= allowed,
        }));
        self
    }

    fn print(&self) {
        let targets: Vec<_> = self.targets.iter().map(TargetResult::text).collect();
        println!(
            "| {} | {} | {} | {} |",
            self.row,
            self.figure,
            self.values.join(" | "),
            targets.join("; ")
        );
    }
}

impl TargetResult {
    fn text(&self) -> String {
        let verdict = if self.met { "met" } else { "MISSED" };
        format!("{} {}: {}, {verdict}", self.target, figure(self.allowed), figure(self.is))
    }
}

/// Prints all lines that have a figure, then the missed targets.
pub(crate) fn print(lines: &[Line]) {
    println!("\n| row | figure | {} | targets |", SERVERS.join(" | "));
    println!("|---|---|---|---|---|---|---|");
    for line in lines.iter().filter(|line| line.values.iter().any(|value| !value.is_empty())) {
        line.print();
    }
    let targets = lines.iter().flat_map(|line| &line.targets);
    let (met, missed): (Vec<_>, Vec<_>) = targets.partition(|target| target.met);
    println!("\n{} targets met, {} missed", met.len(), missed.len());
    for target in missed {
        println!("  {}: {}", target.row, target.text());
    }
}

/// Formats a value with about three significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}
