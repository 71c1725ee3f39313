//! The command line: one seed in this process, or many, each in a process of its own.
//!
//! Statics live on between runs, so that a second seed in one process would not repeat alone.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clap::{Parser, Subcommand, ValueEnum};
use parking_lot::Mutex;

use crate::determinism;
use crate::pipe::{CutPoint, CutSide};
use crate::plan::{Fault, Plan, Scenario};
use crate::shrink;
use crate::trace::Trace;
use crate::world;

/// Runs Weirs, an API server and clients in virtual time, and checks what clients are answered.
#[derive(Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs one seed in this process. Prints its violations and the hash of its trace.
    One {
        seed: u64,
        #[command(flatten)]
        options: Options,
        /// Writes the trace to this file.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Prints Weir's log.
        #[arg(long)]
        log: bool,
        /// Writes the plan to this file if it fails.
        #[arg(long)]
        keep: Option<PathBuf>,
        #[command(flatten)]
        cut: CutOptions,
    },
    /// Runs the plan of a file in this process.
    Replay {
        plan: PathBuf,
        /// Writes the trace to this file.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Prints Weir's log.
        #[arg(long)]
        log: bool,
    },
    /// Replays all plans of a directory, each in a process of its own.
    Regressions { directory: PathBuf },
    /// Makes the plan of a file smaller as long as the same guarantee fails, and writes it back.
    Shrink {
        plan: PathBuf,
        /// How many smaller plans are tried.
        #[arg(long, default_value_t = 200)]
        tries: usize,
    },
    /// Cuts a connection of Weir to its upstream at each point of a short run of a seed, once
    /// before and once after the bytes arrive, each in a run of its own.
    Enumerate {
        seed: u64,
        /// The event in the middle; all scenarios in turn if there is none.
        #[arg(long, value_enum)]
        scenario: Option<Scenario>,
        /// Minutes of writes; six minutes of calm and checks follow.
        #[arg(long, default_value_t = 0.5)]
        minutes: f64,
        /// Takes only every STEPth point.
        #[arg(long, default_value_t = 1)]
        step: usize,
    },
    /// Runs a range of seeds, and prints a line for each one that fails.
    Many {
        first: u64,
        count: u64,
        #[command(flatten)]
        options: Options,
        /// Runs this number of the seeds twice: their traces must have the same hash.
        #[arg(long, default_value_t = 0)]
        twice: u64,
        /// Runs this number of processes at once; 0 for one on each processor.
        #[arg(long, default_value_t = 0)]
        jobs: usize,
        /// Writes the plan of each seed that fails to this directory.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
}

/// A cut at one point of a small plan.
#[derive(Clone, clap::Args)]
struct CutOptions {
    /// Runs the small plan of a scenario.
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// Cuts a connection at this point of it.
    #[arg(long, default_value_t = u64::MAX)]
    cut: u64,
    /// Which side of that point.
    #[arg(long, value_enum, default_value_t = CutSide::Before)]
    side: CutSide,
}

#[derive(Clone, clap::Args)]
struct Options {
    /// Minutes of faults and writes; six minutes of calm and checks follow.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Lets the clients call the API server itself, which must keep every guarantee as well.
    #[arg(long)]
    direct: bool,
    /// Has more load than the API servers carry, whatever the seed.
    #[arg(long)]
    crowd: bool,
    /// Lets the Weirs compare their caches with the API servers twice a minute.
    #[arg(long)]
    verify: bool,
    /// Has faults of these kinds only, and often.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
}

impl Arguments {
    /// Runs; returns whether everything held.
    pub(crate) fn run(&self) -> bool {
        match &self.command {
            Task::One { seed, options, trace, log, keep, cut } => {
                log_if(*log);
                determinism::begin(*seed);
                let plan = match cut.scenario {
                    Some(scenario) => Plan::short(*seed, options.minutes, scenario),
                    None => options.plan(*seed),
                };
                let is_success = run(&plan, trace.as_ref(), Some((cut.cut, cut.side)));
                if let Some(file) = keep.as_ref().filter(|_| !is_success) {
                    plan.write(file);
                }
                is_success
            }
            Task::Replay { plan, trace, log } => {
                log_if(*log);
                let plan = Plan::read(plan);
                determinism::begin(plan.seed);
                run(&plan, trace.as_ref(), None)
            }
            Task::Regressions { directory } => regressions(directory),
            Task::Shrink { plan, tries } => shrink::shrink(plan, *tries),
            Task::Enumerate { seed, scenario, minutes, step } => {
                let scenarios_known = Scenario::value_variants().iter().copied();
                let scenarios = scenario.map_or_else(|| scenarios_known.collect(), |one| vec![one]);
                // All of them run, whatever the first ones find.
                let held = scenarios.iter().filter(|one| enumerate(*seed, **one, *minutes, *step));
                held.count() == scenarios.len()
            }
            Task::Many { first, count, options, twice, jobs, keep } => {
                let jobs = if *jobs == 0 { processors() } else { *jobs };
                many(*first..*first + *count, options, (*twice, jobs), keep.as_ref())
            }
        }
    }
}

/// Prints Weir's log to stderr. Called before a run begins, and on a thread of its own: the hash
/// maps of the log would take the keys of the run's, and it would be another one.
fn log_if(log: bool) {
    let init = || {
        let filter = tracing_subscriber::EnvFilter::new("weir=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    };
    if log {
        std::thread::spawn(init).join().expect("the log begins");
    }
}

/// Runs a plan, and prints its violations and the hash of its trace.
fn run(plan: &Plan, file: Option<&PathBuf>, cut: Option<(u64, CutSide)>) -> bool {
    let file = file.map(|path| std::fs::File::create(path).expect("the trace is created"));
    let trace = Trace::new(file);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime is built");
    let (wall, cpu) = (determinism::real_ns(), determinism::cpu_ns());
    let outcome = runtime.block_on(async {
        // The first reading is the zero of virtual time.
        determinism::elapsed_ns();
        world::run(plan, &trace, CutPoint::new(cut)).await
    });
    let (wall, cpu) = (determinism::real_ns() - wall, determinism::cpu_ns() - cpu);
    let (hash, lines) = trace.finish();
    let seed = plan.seed;
    for violation in &outcome.violations {
        let (guarantee, what) = (violation.guarantee, &violation.what);
        println!("seed {seed}: {guarantee} does not hold: {what}");
    }
    let virtual_s = outcome.virtual_time.as_secs_f64();
    println!("seed {seed}: hash {hash:016x}, {lines} lines, checks {:?}", outcome.counts);
    println!("{POINTS}{}", outcome.cut_points);
    println!("{VIRTUAL_MS}{}", outcome.virtual_time.as_millis());
    eprintln!(
        "seed {seed}: {virtual_s:.0} virtual seconds in {:.2} s, {:.2} s of processor time",
        wall as f64 / 1e9,
        cpu as f64 / 1e9,
    );
    outcome.violations.is_empty()
}

fn regressions(directory: &PathBuf) -> bool {
    let files = std::fs::read_dir(directory).expect("the directory is read");
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let mut plans: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    plans.sort();
    // Two plants may have the same plan, each under its own name.
    let mut different = BTreeSet::new();
    plans.retain(|plan| different.insert(std::fs::read(plan).expect("the plan is read")));
    let failed = AtomicU64::new(0);
    side_by_side(&plans, processors(), |plan| {
        let (output, is_success) = child("replay", &[plan.display().to_string()]);
        if !is_success {
            failed.fetch_add(1, Ordering::Relaxed);
            println!("{output}{} failed", plan.display());
        }
    });
    let failed = failed.into_inner();
    println!("{} regressions: {failed} failed", plans.len());
    failed == 0
}

/// Does the work for each item, for `jobs` of them at once.
fn side_by_side<T: Sync>(items: &[T], jobs: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

fn many(
    seeds: Range<u64>,
    options: &Options,
    (twice, jobs): (u64, usize),
    keep: Option<&PathBuf>,
) -> bool {
    let begun = determinism::real_ns();
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let failed = Mutex::new(BTreeSet::new());
    let virtual_ms = AtomicU64::new(0);
    let run = |seed: u64| {
        let mut arguments = vec![seed.to_string()];
        arguments.extend(options.arguments());
        if let Some(directory) = keep {
            let file = directory.join(format!("{seed}.json"));
            arguments.extend(["--keep".to_owned(), file.display().to_string()]);
        }
        child("one", &arguments)
    };
    side_by_side(&seeds.collect::<Vec<_>>(), jobs, |&seed| {
        let (output, is_success) = run(seed);
        virtual_ms.fetch_add(number(&output, VIRTUAL_MS).unwrap_or(0), Ordering::Relaxed);
        if !is_success {
            failed.lock().insert(seed);
            let arguments = options.arguments().join(" ");
            println!("{output}seed {seed} failed; again: simulation one {seed} {arguments}");
        }
        if seed - first < twice && run(seed).0 != output {
            failed.lock().insert(seed);
            println!("seed {seed} does not repeat: two traces of it differ");
        }
    });
    let failed = failed.into_inner();
    let seconds = (determinism::real_ns() - begun) as f64 / 1e9;
    let hours = virtual_ms.into_inner() as f64 / 3.6e6;
    println!(
        "{count} seeds from {first}: {} failed, {hours:.1} virtual hours in {seconds:.0} s",
        failed.len()
    );
    if !failed.is_empty() {
        println!("failed: {failed:?}");
    }
    failed.is_empty()
}

fn enumerate(seed: u64, scenario: Scenario, minutes: f64, step: usize) -> bool {
    let name = scenario.to_possible_value().map(|value| value.get_name().to_owned());
    let name = name.unwrap_or_default();
    let arguments = |cut: u64, side: &str| {
        let (seed, minutes, cut) = (seed.to_string(), minutes.to_string(), cut.to_string());
        let words = [&seed, "--minutes", &minutes, "--scenario", &name, "--cut", &cut];
        words.iter().chain(&["--side", side]).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    // No run has a point of this number, so that nothing is cut.
    let (output, is_success) = child("one", &arguments(u64::MAX, "before"));
    let Some(points) = number(&output, POINTS).filter(|_| is_success) else {
        print!("{output}");
        println!("seed {seed}, {name}: fails without a cut");
        return false;
    };
    let (mut cuts, mut failed) = (0, 0);
    for at in (0..points).step_by(step.max(1)) {
        for side in ["before", "after"] {
            cuts += 1;
            let arguments = arguments(at, side);
            let (output, is_success) = child("one", &arguments);
            if !is_success {
                failed += 1;
                print!("{output}");
                println!("again: simulation one {}", arguments.join(" "));
            }
        }
    }
    println!("seed {seed}, {name}: {points} points, {cuts} cuts, {failed} runs failed");
    failed == 0
}

/// Returns the number in a line that a run has printed.
fn number(output: &str, name: &str) -> Option<u64> {
    output.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs a command in a process of its own; returns what it printed, and whether everything held.
pub(crate) fn child(task: &str, arguments: &[String]) -> (String, bool) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg(task).args(arguments);
    let output = command.stderr(Stdio::piped()).output().expect("this program starts");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = errors.lines().rev().take(8).collect();
        last.iter().rev().for_each(|line| println!("{line}"));
    }
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

impl Options {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--minutes".to_owned(), self.minutes.to_string()];
        arguments.extend(self.direct.then(|| "--direct".to_owned()));
        arguments.extend(self.crowd.then(|| "--crowd".to_owned()));
        arguments.extend(self.verify.then(|| "--verify".to_owned()));
        for fault in self.faults.iter().filter_map(ValueEnum::to_possible_value) {
            arguments.extend(["--faults".to_owned(), fault.get_name().to_owned()]);
        }
        arguments
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed, self.minutes, self.direct);
        plan.verify = self.verify;
        if self.crowd && plan.crowd.is_none() {
            plan = plan.with_crowd();
        }
        if self.faults.is_empty() { plan } else { plan.with_faults(&self.faults) }
    }
}

/// The beginnings of lines that a run prints for the processes that start it.
const POINTS: &str = "points ";
const VIRTUAL_MS: &str = "virtual milliseconds ";
