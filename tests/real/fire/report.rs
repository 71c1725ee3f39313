//! The report of a run: violations, counts by phase, states that were listed, consistent starts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::objects::Scope;

/// All that is known of one run.
#[derive(Default)]
pub(super) struct Report {
    violations: Mutex<Vec<String>>,
    counts: Mutex<BTreeMap<String, (usize, usize)>>,
    lists: Mutex<Vec<Listed>>,
    starts: Mutex<Vec<Start>>,
    faults: Mutex<Faults>,
}

/// A state that a list had.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) scope: Scope,
    pub(super) at: u64,
    pub(super) digest: u64,
    /// The history that it must be of, if it is known.
    pub(super) history: Option<usize>,
    pub(super) what: String,
}

/// A watch that had to begin with the present state.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) began: Instant,
    /// Until the bookmark that ends the initial state.
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Cached,
    Forwarded,
    Failed(u16),
}

#[derive(Default)]
struct Faults {
    /// Name, begin and end.
    windows: Vec<(String, Instant, Option<Instant>)>,
    /// Each moment at which something broke or came back.
    changes: Vec<Instant>,
}

impl Report {
    pub(super) fn violation(&self, what: &str) {
        let mut violations = self.violations.lock();
        if violations.len() < SHOWN {
            eprintln!("VIOLATION during {}: {what}", self.phase());
        }
        violations.push(what.to_owned());
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// Counts something, apart for the time of faults and the calm between.
    pub(super) fn count(&self, what: &str) {
        let calm = self.phase() == CALM;
        let mut counts = self.counts.lock();
        let (in_faults, in_calm) = counts.entry(what.to_owned()).or_default();
        *if calm { in_calm } else { in_faults } += 1;
    }

    pub(super) fn listed(&self, listed: Listed) {
        self.lists.lock().push(listed);
    }

    pub(super) fn lists(&self) -> Vec<Listed> {
        self.lists.lock().clone()
    }

    pub(super) fn started(&self, start: Start) {
        self.starts.lock().push(start);
    }

    pub(super) fn begin_fault(&self, name: &str) {
        self.change();
        self.faults.lock().windows.push((name.to_owned(), Instant::now(), None));
    }

    pub(super) fn end_fault(&self) {
        self.change();
        if let Some((_, _, end)) = self.faults.lock().windows.last_mut() {
            *end = Some(Instant::now());
        }
    }

    /// Notes that something breaks or comes back now.
    pub(super) fn change(&self) {
        self.faults.lock().changes.push(Instant::now());
    }

    fn phase(&self) -> String {
        match self.faults.lock().windows.last() {
            Some((name, _, None)) => name.clone(),
            Some((name, _, Some(end))) if end.elapsed() < CHANGE_DURATION => {
                format!("after {name}")
            }
            _ => CALM.to_owned(),
        }
    }

    /// Prints the counts, and the consistent starts by when they were.
    pub(super) fn print(&self) {
        eprintln!("{:>9} {:>9}", "in faults", "in calm");
        for (what, (in_faults, in_calm)) in &*self.counts.lock() {
            eprintln!("{in_faults:>9} {in_calm:>9}  {what}");
        }
        let mut classes: BTreeMap<&str, Vec<Start>> = BTreeMap::new();
        for start in &*self.starts.lock() {
            classes.entry(self.class_of(start)).or_default().push(start.clone());
        }
        for (class, mut starts) in classes {
            let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
            starts.iter().for_each(|start| *outcomes.entry(start.outcome).or_default() += 1);
            starts.retain(|start| !matches!(start.outcome, Outcome::Failed(_)));
            starts.sort_by_key(|start| start.took);
            let at = |quantile: f64| {
                let n = (starts.len() as f64 * quantile).ceil() as usize;
                starts.get(n.max(1) - 1).map_or(Duration::ZERO, |start| start.took)
            };
            eprintln!(
                "consistent starts {class}: {outcomes:?}, p50 {:.2?}, p99 {:.2?}, longest {:.2?}",
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }

    fn class_of(&self, start: &Start) -> &'static str {
        let faults = self.faults.lock();
        let end = start.began + start.took;
        let near = |change: &&Instant| start.began < **change + CHANGE_DURATION && end > **change;
        if faults.changes.iter().any(|change| near(&change)) {
            return "within 5 s of a change";
        }
        let during = |(_, begin, over): &(String, Instant, Option<Instant>)| {
            end > *begin && over.is_none_or(|over| start.began < over)
        };
        if faults.windows.iter().any(during) { "while a fault lasts" } else { "in calm" }
    }
}

const CALM: &str = "calm";
/// The time after each change that does not count as calm.
const CHANGE_DURATION: Duration = Duration::from_secs(5);
const SHOWN: usize = 30;
