//! Makes a plan that fails smaller: it leaves out clients, kinds of faults, single faults and
//! halves of the writes, and shortens the run, as long as the same guarantee fails.

use std::path::Path;

use crate::plan::Plan;
use crate::runs::child;

/// The search for a smaller plan.
struct Search {
    plan: Plan,
    guarantee: String,
    tries: usize,
}

/// Shrinks the plan of a file, and writes it back. Returns whether it failed at all.
pub(crate) fn shrink(file: &Path, tries: usize) -> bool {
    let plan = Plan::read(file);
    let Some(guarantee) = failure(&plan) else {
        println!("{} fails no more", file.display());
        return false;
    };
    println!("{guarantee} fails; before: {}", size(&plan));
    let mut search = Search { plan, guarantee, tries };
    loop {
        let before = size(&search.plan);
        search.shorten();
        search.leave_out(|plan| &mut plan.clients);
        search.leave_out_kinds();
        search.leave_out(|plan| &mut plan.faults);
        search.leave_out(|plan| &mut plan.writes);
        search.plan.write(file);
        println!("after: {}", size(&search.plan));
        if search.tries == 0 || size(&search.plan) == before {
            return true;
        }
    }
}

impl Search {
    /// Takes a smaller plan if the same guarantee fails with it.
    fn attempt(&mut self, smaller: Plan) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let fails = failure(&smaller).is_some_and(|guarantee| guarantee == self.guarantee);
        if fails {
            self.plan = smaller;
        }
        fails
    }

    /// Ends the faults and writes earlier.
    fn shorten(&mut self) {
        loop {
            let mut smaller = self.plan.clone();
            smaller.duration = smaller.duration.mul_f64(0.7);
            let end = smaller.duration.as_millis() as u64;
            smaller.faults.retain(|strike| strike.at_ms < end);
            smaller.writes.retain(|burst| burst.at_ms < end);
            if !self.attempt(smaller) {
                return;
            }
        }
    }

    /// Leaves out parts of a list: halves at first, then smaller and smaller parts.
    fn leave_out<T>(&mut self, list: impl Fn(&mut Plan) -> &mut Vec<T>) {
        let mut part = list(&mut self.plan).len().div_ceil(2);
        while part > 0 && self.tries > 0 {
            let mut at = 0;
            while at < list(&mut self.plan).len() {
                let mut smaller = self.plan.clone();
                let end = (at + part).min(list(&mut smaller).len());
                list(&mut smaller).drain(at..end);
                if !self.attempt(smaller) {
                    at += part;
                }
            }
            part = if part == 1 { 0 } else { part.div_ceil(2) };
        }
    }

    fn leave_out_kinds(&mut self) {
        let mut kinds = Vec::new();
        for strike in &self.plan.faults {
            if !kinds.contains(&strike.fault) {
                kinds.push(strike.fault);
            }
        }
        for kind in kinds {
            let mut smaller = self.plan.clone();
            smaller.faults.retain(|strike| strike.fault != kind);
            self.attempt(smaller);
        }
    }
}

/// Returns the first guarantee that fails with a plan.
fn failure(plan: &Plan) -> Option<String> {
    let directory = tempfile::tempdir().expect("a directory is made");
    let file = directory.path().join("plan.json");
    plan.write(&file);
    let (output, _) = child("replay", &[file.display().to_string()]);
    let line = output.lines().find(|line| line.contains(" does not hold: "))?;
    let (_, rest) = line.split_once(": ")?;
    rest.split_once(' ').map(|(guarantee, _)| guarantee.to_owned())
}

fn size(plan: &Plan) -> String {
    let seconds = plan.duration.as_secs();
    let (clients, faults, writes) = (plan.clients.len(), plan.faults.len(), plan.writes.len());
    format!("{seconds} s, {clients} clients, {faults} faults, {writes} writes")
}
