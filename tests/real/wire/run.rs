//! Sends cases to all servers, tries each difference again, shrinks the first of each kind, and
//! counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::allowed::{self, Look};
use super::case::Case;
use super::compare::{Aspect, Difference, Seen, differences};
use super::shrink;
use super::world::{SIDECAR, World};

/// The differences of one kind.
#[derive(Debug, Default)]
struct Kind {
    count: usize,
    reason: Option<&'static str>,
    /// The first case, shrunk, with what both servers did.
    example: String,
}

/// The report of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    cases: usize,
    writes: usize,
    /// The number of cases for each outcome at the API server.
    labels: BTreeMap<String, usize>,
    kinds: BTreeMap<String, Kind>,
}

impl Report {
    /// Prints everything, and fails if a difference is not allowed.
    pub(crate) fn finish(&self) {
        eprintln!("{} cases on each of two Weirs, {} of them writes", self.cases, self.writes);
        eprintln!("the API server: {:?}", self.labels);
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let allowed = self.kinds.values().filter_map(|kind| Some((kind.reason?, kind.count)));
        allowed.for_each(|(reason, count)| *reasons.entry(reason).or_default() += count);
        reasons.iter().for_each(|(reason, count)| eprintln!("{count:7} allowed: {reason}"));
        let wrong: Vec<_> = self.kinds.iter().filter(|(_, kind)| kind.reason.is_none()).collect();
        for (name, kind) in &wrong {
            eprintln!("{:7} DIFFERENT: {name}\n    {}", kind.count, kind.example);
        }
        let total: usize = wrong.iter().map(|(_, kind)| kind.count).sum();
        assert!(wrong.is_empty(), "{total} differences of {} kinds", wrong.len());
    }
}

/// Runs the cases of these seeds.
pub(crate) async fn run(
    world: &mut World,
    seeds: impl Iterator<Item = u64>,
    generate: fn(u64) -> Case,
) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        let case = generate(seed);
        let began = Instant::now();
        let seen = Box::pin(observe(world, &case, WAIT)).await;
        report.cases += 1;
        report.writes += usize::from(case.is_write());
        *report.labels.entry(seen[0].outcome.label()).or_default() += 1;
        for side in 1..seen.len() {
            for difference in Box::pin(lasting(world, &case, &seen, side)).await {
                Box::pin(note(world, &mut report, (seed, &case), side, &difference)).await;
            }
        }
        if began.elapsed() > SLOW_MIN {
            eprintln!("WIRE_CASE={seed} took {:.0?}: {case}", began.elapsed());
        }
        if report.cases % PROGRESS_EVERY == 0 {
            eprintln!("{} cases, {} kinds", report.cases, report.kinds.len());
        }
    }
    report
}

/// Returns what all servers do with a case.
pub(crate) async fn observe(world: &mut World, case: &Case, wait: Duration) -> [Seen; 3] {
    for _ in 0..SHED_TRIES {
        let outcomes = world.send(case, wait).await;
        let states = match case.is_write() {
            true => Some(world.settle().await),
            false => None,
        };
        // A busy machine is no difference. Clients send such a request again, too.
        let is_shed =
            |outcome: &super::outcome::Outcome| outcome.answer.header("x-weir-shed") == "overload";
        if outcomes.iter().any(is_shed) {
            tokio::time::sleep(SHED_PAUSE).await;
            continue;
        }
        let mut outcomes = outcomes.into_iter();
        return std::array::from_fn(|side| {
            let effect = states.as_ref().map(|states| world.effect(&states[side]));
            Seen { outcome: outcomes.next().unwrap(), effect: effect.unwrap_or_default() }
        });
    }
    panic!("Weir refuses everything because the machine is overloaded");
}

/// Returns the differences of one Weir that show each time.
async fn lasting(
    world: &mut World,
    case: &Case,
    seen: &[Seen; 3],
    side: usize,
) -> Vec<(Difference, [Seen; 2])> {
    let pair = |seen: &[Seen; 3]| [seen[0].clone(), seen[side].clone()];
    let mut differing_pairs: Vec<_> = differences(&seen[0], &seen[side])
        .into_iter()
        .map(|difference| (difference, pair(seen)))
        .collect();
    // An effect counts at once. The allowed ones need no second look.
    let is_sure = |(difference, pair): &(Difference, [Seen; 2])| {
        difference.aspect == Aspect::Effect || reason(case, side, difference, pair).is_some()
    };
    for (pause, wait) in RETRIES {
        if differing_pairs.iter().all(is_sure) {
            break;
        }
        tokio::time::sleep(pause).await;
        let again = observe(world, case, wait).await;
        let differing = differences(&again[0], &again[side]);
        differing_pairs.retain(|one| is_sure(one) || differing.contains(&one.0));
    }
    differing_pairs
}

async fn note(
    world: &mut World,
    report: &mut Report,
    (seed, case): (u64, &Case),
    side: usize,
    (difference, pair): &(Difference, [Seen; 2]),
) {
    let reason = reason(case, side, difference, pair);
    let prefix = reason.map_or(String::new(), |reason| format!("{reason}: "));
    let (protocol, peer) = (case.protocol.name(), world.peers[side].name);
    let name = format!("{prefix}{protocol}, {peer}: {}", difference.kind);
    if let Some(kind) = report.kinds.get_mut(&name) {
        kind.count += 1;
        return;
    }
    let example = match reason {
        Some(_) => String::new(),
        None => {
            let (case, [direct, weir]) = shrink::shrink(world, case, side, difference).await;
            let text = format!(
                "WIRE_CASE={seed} {case}\n      API server: {}\n      Weir: {}",
                direct.summary(),
                weir.summary()
            );
            eprintln!("new: {name}\n    {text}");
            text
        }
    };
    report.kinds.insert(name, Kind { count: 1, reason, example });
}

/// Returns the reason why a difference is allowed.
fn reason(
    case: &Case,
    side: usize,
    difference: &Difference,
    [direct, weir]: &[Seen; 2],
) -> Option<&'static str> {
    allowed::reason(&Look { case, is_sidecar: side == SIDECAR, direct, weir, difference })
}

const PROGRESS_EVERY: usize = 1000;
/// A case with its retries and its shrinking usually takes less.
const SLOW_MIN: Duration = Duration::from_secs(20);
/// How long to wait for a response. Some have no end, and some requests have none.
pub(crate) const WAIT: Duration = Duration::from_secs(3);
/// How long to pause before the same request is sent again: longer than it takes until caches
/// follow; and how long to wait then, longer than a busy machine takes.
const RETRIES: [(Duration, Duration); 2] =
    [(Duration::from_millis(50), WAIT), (Duration::from_millis(400), Duration::from_secs(15))];
const SHED_TRIES: u32 = 60;
const SHED_PAUSE: Duration = Duration::from_secs(2);
