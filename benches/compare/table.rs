//! The table that a run ends with: lines of figures, and below each what is asked of it and whether that is met.

use crate::server::{FLOOR, NGINX, UPSTREAM, WEIR};

pub(crate) const SERVERS: [&str; 4] = [UPSTREAM, WEIR, FLOOR, NGINX];

/// A figure of all servers, in the order of [`SERVERS`].
pub(crate) struct Line {
    pub(crate) row: String,
    /// With its unit.
    pub(crate) figure: String,
    values: [String; 4],
    pub(crate) judged: Vec<Judged>,
}

/// What is asked of Weir, and what is.
#[derive(Clone)]
pub(crate) struct Judged {
    pub(crate) row: String,
    pub(crate) target: String,
    pub(crate) is: f64,
    pub(crate) allowed: f64,
    pub(crate) met: bool,
}

impl Line {
    /// A figure that is not known is empty.
    pub(crate) fn new(
        row: &str,
        figure: &str,
        value: impl Fn(&'static str) -> Option<f64>,
    ) -> Self {
        Self::of_several(row, figure, |server| value(server).into_iter().collect())
    }

    /// Several figures of a server, where a line each would be too long a table.
    pub(crate) fn of_several(
        row: &str,
        figures: &str,
        values: impl Fn(&'static str) -> Vec<f64>,
    ) -> Self {
        let text = |values: Vec<f64>| values.into_iter().map(figure).collect::<Vec<_>>().join(", ");
        let values = SERVERS.map(|server| text(values(server)));
        Self { row: row.to_owned(), figure: figures.to_owned(), values, judged: Vec::new() }
    }

    /// What is not known is not judged.
    pub(crate) fn at_most(mut self, target: &str, is: Option<f64>, allowed: Option<f64>) -> Self {
        self.judged.extend(is.zip(allowed).map(|(is, allowed)| Judged {
            row: self.row.clone(),
            target: format!("{target}, at most"),
            is,
            allowed,
            met: is <= allowed,
        }));
        self
    }

    pub(crate) fn at_least(mut self, target: &str, is: Option<f64>, allowed: Option<f64>) -> Self {
        self.judged.extend(is.zip(allowed).map(|(is, allowed)| Judged {
            row: self.row.clone(),
            target: format!("{target}, at least"),
            is,
            allowed,
            met: is >= allowed,
        }));
        self
    }

    fn print(&self) {
        let judged: Vec<_> = self.judged.iter().map(Judged::text).collect();
        println!(
            "| {} | {} | {} | {} |",
            self.row,
            self.figure,
            self.values.join(" | "),
            judged.join("; ")
        );
    }
}

impl Judged {
    fn text(&self) -> String {
        let verdict = if self.met { "met" } else { "MISSED" };
        format!("{} {}: {}, {verdict}", self.target, figure(self.allowed), figure(self.is))
    }
}

/// All lines of which anything is known.
pub(crate) fn print(lines: &[Line]) {
    println!("\n| row | figure | {} | targets |", SERVERS.join(" | "));
    println!("|---|---|---|---|---|---|---|");
    for line in lines.iter().filter(|line| line.values.iter().any(|it| !it.is_empty())) {
        line.print();
    }
    let judged = lines.iter().flat_map(|line| &line.judged);
    let (met, missed): (Vec<_>, Vec<_>) = judged.partition(|it| it.met);
    println!("\n{} targets met, {} missed", met.len(), missed.len());
    for it in missed {
        println!("  {}: {}", it.row, it.text());
    }
}

/// With three digits that count.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}
