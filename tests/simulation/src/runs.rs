//! The command line: one seed in this process, or many, each in a process of its own.
//!
//! Statics live on between runs, so that a second seed in one process would not repeat alone.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, Subcommand};
use parking_lot::Mutex;

use crate::determinism;
use crate::pipe::{CutPoint, CutSide};
use crate::plan::{ALL_FAULTS, FAULTS, Plan};
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
        /// Runs the small plan of `enumerate`, and cuts a connection at this point of it.
        #[arg(long)]
        cut: Option<u64>,
        /// Which side of that point.
        #[arg(long, value_enum, default_value_t = CutSide::Before)]
        side: CutSide,
    },
    /// Cuts a connection of Weir to its upstream at each point of a short run of a seed, once
    /// before and once after the bytes arrive, each in a run of its own.
    Enumerate {
        seed: u64,
        /// Minutes of writes; two minutes of calm follow.
        #[arg(long, default_value_t = 0.5)]
        minutes: f64,
        /// Takes only each so many-th point.
        #[arg(long, default_value_t = 1)]
        step: usize,
    },
    /// Runs a range of seeds, and prints a line for each one that fails.
    Many {
        first: u64,
        count: u64,
        #[command(flatten)]
        options: Options,
        /// Runs so many of the seeds twice: their traces must have the same hash.
        #[arg(long, default_value_t = 0)]
        twice: u64,
        /// Runs so many processes at once; 0 for one on each processor.
        #[arg(long, default_value_t = 0)]
        jobs: usize,
    },
}

#[derive(Clone, clap::Args)]
struct Options {
    /// Minutes of faults and writes; two minutes of calm follow.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Lets the clients call the API server itself, which must keep every guarantee as well.
    #[arg(long)]
    direct: bool,
    /// Also injects the kinds of faults that Weir is known not to stand yet.
    #[arg(long)]
    all_faults: bool,
}

impl Arguments {
    /// Runs; returns whether everything held.
    pub(crate) fn run(&self) -> bool {
        match &self.command {
            Task::One { seed, options, trace, log, cut, side } => {
                one(*seed, options, trace.as_ref(), *log, cut.map(|at| (at, *side)))
            }
            Task::Enumerate { seed, minutes, step } => enumerate(*seed, *minutes, *step),
            Task::Many { first, count, options, twice, jobs } => {
                let jobs = if *jobs == 0 { processors() } else { *jobs };
                many(*first, *count, options, (*twice, jobs))
            }
        }
    }
}

fn one(
    seed: u64,
    options: &Options,
    file: Option<&PathBuf>,
    log: bool,
    cut: Option<(u64, CutSide)>,
) -> bool {
    determinism::begin(seed);
    if log {
        let filter = tracing_subscriber::EnvFilter::new("weir=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let file = file.map(|path| std::fs::File::create(path).expect("the trace is created"));
    let trace = Trace::new(file);
    let kinds = if options.all_faults { &ALL_FAULTS[..] } else { &FAULTS[..] };
    let plan = match cut {
        Some(_) => Plan::short(seed, options.minutes),
        None => Plan::new(seed, options.minutes, options.direct, kinds),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime is built");
    let (wall, cpu) = (determinism::real_ns(), determinism::cpu_ns());
    let outcome = runtime.block_on(async {
        // The first reading is the zero of virtual time.
        determinism::elapsed_ns();
        world::run(&plan, &trace, CutPoint::new(cut)).await
    });
    let (wall, cpu) = (determinism::real_ns() - wall, determinism::cpu_ns() - cpu);
    let (hash, lines) = trace.finish();
    for violation in &outcome.violations {
        let (guarantee, what) = (violation.guarantee, &violation.what);
        println!("seed {seed}: {guarantee} does not hold: {what}");
    }
    let virtual_s = outcome.virtual_time.as_secs_f64();
    println!("seed {seed}: hash {hash:016x}, {lines} lines, checks {:?}", outcome.counts);
    if cut.is_some() {
        println!("points {}", outcome.cut_points);
    }
    eprintln!(
        "seed {seed}: {virtual_s:.0} virtual seconds in {:.2} s, {:.2} s of processor time",
        wall as f64 / 1e9,
        cpu as f64 / 1e9,
    );
    outcome.violations.is_empty()
}

fn many(first: u64, count: u64, options: &Options, (twice, jobs): (u64, usize)) -> bool {
    let begun = determinism::real_ns();
    let (next, failed) = (AtomicU64::new(first), Mutex::new(BTreeSet::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            let (output, is_success) = child(seed, options, &[]);
            if !is_success {
                failed.lock().insert(seed);
                let arguments = options.arguments().join(" ");
                print!("{output}seed {seed} failed; again: simulation one {seed} {arguments}\n");
            }
            if seed - first < twice && child(seed, options, &[]).0 != output {
                failed.lock().insert(seed);
                println!("seed {seed} does not repeat: two traces of it differ");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    let seconds = (determinism::real_ns() - begun) as f64 / 1e9;
    let hours = count as f64 * (options.minutes + 2.0) / 60.0;
    println!(
        "{count} seeds from {first}: {} failed, {hours:.1} virtual hours in {seconds:.0} s",
        failed.len()
    );
    if !failed.is_empty() {
        println!("failed: {failed:?}");
    }
    failed.is_empty()
}

fn enumerate(seed: u64, minutes: f64, step: usize) -> bool {
    let options = Options { minutes, direct: false, all_faults: false };
    // No run has so many points, so that nothing is cut.
    let (output, is_success) = child(seed, &options, &["--cut".to_owned(), u64::MAX.to_string()]);
    let points = output.lines().find_map(|line| line.strip_prefix("points ")?.parse::<u64>().ok());
    let Some(points) = points.filter(|_| is_success) else {
        print!("{output}");
        println!("seed {seed} fails without a cut");
        return false;
    };
    let mut failed = 0;
    for at in (0..points).step_by(step.max(1)) {
        for side in ["before", "after"] {
            let cut = ["--cut", &at.to_string(), "--side", side].map(str::to_owned);
            let (output, is_success) = child(seed, &options, &cut);
            if !is_success {
                failed += 1;
                print!("{output}");
                let arguments = options.arguments().join(" ");
                println!("again: simulation one {seed} {arguments} {}", cut.join(" "));
            }
        }
    }
    println!("seed {seed}: {points} points, one in {step} of them cut: {failed} runs failed");
    failed == 0
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs a seed in a process of its own; returns what it printed, and whether everything held.
fn child(seed: u64, options: &Options, more: &[String]) -> (String, bool) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("one").arg(seed.to_string()).args(options.arguments()).args(more);
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
        arguments.extend(self.all_faults.then(|| "--all-faults".to_owned()));
        arguments
    }
}
