//! Makes a case smaller while it shows the same difference.

use std::time::{Duration, Instant};

use super::case::Case;
use super::compare::{Difference, Seen, differences};
use super::run::{WAIT, observe};
use super::world::World;

/// Returns the smallest case of those tried, and what both servers do with it.
pub(crate) async fn shrink(
    world: &mut World,
    case: &Case,
    side: usize,
    difference: &Difference,
) -> (Case, [Seen; 2]) {
    let seen = observe(world, case, WAIT).await;
    let (mut best, mut sides) = (case.clone(), [seen[0].clone(), seen[side].clone()]);
    let deadline = Instant::now() + DURATION_MAX;
    let mut progress = true;
    while progress && Instant::now() < deadline {
        progress = false;
        for smaller in smaller(&best) {
            if Instant::now() > deadline {
                break;
            }
            let seen = observe(world, &smaller, WAIT).await;
            let kinds = differences(&seen[0], &seen[side]);
            if kinds.iter().any(|one| one.kind == difference.kind) {
                (best, sides) = (smaller, [seen[0].clone(), seen[side].clone()]);
                progress = true;
                break;
            }
        }
    }
    (best, sides)
}

/// Returns cases with less in them, those with much less first.
fn smaller(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    if !case.body.is_empty() {
        let mut without = Case { body: Vec::new(), ..case.clone() };
        let of_body = ["content-length", "content-type", "transfer-encoding", "expect"];
        without.fields.retain(|field| !of_body.iter().any(|name| field.is(name)));
        cases.push(without);
    }
    if case.fields.len() > FIELDS_MAX {
        let mut without = case.clone();
        without.fields.truncate(case.fields.len() / 2);
        return vec![without];
    }
    for at in (0..case.fields.len()).rev() {
        // Without these, most cases are refused for another reason.
        let field = &case.fields[at];
        if field.value != super::http1::BEARER.as_bytes() && !field.is("host") {
            let mut without = case.clone();
            without.fields.remove(at);
            cases.push(without);
        }
    }
    for at in 0..case.script.frames.len() {
        let mut without = case.clone();
        without.script.frames.remove(at);
        cases.push(without);
    }
    let mut length = case.target.len() / 2;
    while length > 0 {
        let starts = (0..case.target.len()).step_by(length);
        for start in starts {
            let mut without = case.clone();
            without.target.drain(start..(start + length).min(case.target.len()));
            cases.push(without);
        }
        length /= 2;
    }
    cases
}

/// Limit on the time for one example.
const DURATION_MAX: Duration = Duration::from_secs(5);
/// More are taken away by halves.
const FIELDS_MAX: usize = 100;
