//! The output of a run: its description, each row when it is measured, and at the end the table and
//! the file.

use std::fs::read_to_string;

use crate::args::Compare;
use crate::lag::processors;
use crate::results::Results;
use crate::table::{self, SERVERS, TargetResult};
use crate::targets;

/// Prints and stores the machine and the arguments of the run.
pub(crate) fn describe(args: &Compare, results: &mut Results) {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let run = &mut results.run;
    run.insert("processor", model.unwrap_or_default().trim_matches([' ', ':', '\t']).to_owned());
    run.insert("processors", processors().to_string());
    run.insert("upstream", args.upstream.clone().unwrap_or_else(|| "simulator".to_owned()));
    run.insert("quick", args.quick.to_string());
    run.insert("time", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    run.insert("load_before", load());
    for (name, value) in run {
        println!("{name}: {value}");
    }
}

/// Returns the load averages of the last 1, 5 and 15 minutes. The run itself adds two or three.
fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Prints all figures of a row. Also writes the file, so that it has them if a later row fails.
pub(crate) fn row(args: &Compare, name: &str, results: &Results) {
    println!("{name}");
    for server in SERVERS {
        let figures = results.figures(name, server);
        if !figures.is_empty() {
            println!("  {server:9} {}", figures.join("  "));
        }
    }
    if let Some(out) = &args.out {
        results.write(out, &[]);
    }
}

/// Prints the table and writes the complete file.
pub(crate) fn finish(args: &Compare, results: &mut Results) {
    results.run.insert("load_after", load());
    let lines = targets::lines(results, args.upstream.is_none());
    table::print(&lines);
    if let Some(out) = &args.out {
        let targets: Vec<TargetResult> = lines.into_iter().flat_map(|line| line.targets).collect();
        results.write(out, &targets);
    }
}
