//! What a run tells: what it is of, each row as it comes, and at the end the table and the file.

use std::fs::read_to_string;

use crate::args::Compare;
use crate::lag::processors;
use crate::results::Results;
use crate::table::{self, Judged, SERVERS};
use crate::targets;

/// What the results are of.
pub(crate) fn describe(args: &Compare, results: &mut Results) {
    let all = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all.lines().find_map(|line| line.strip_prefix("model name"));
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

/// How many ran or wanted to, on the average of the last 1, 5 and 15 minutes: a run of its own adds two or three.
fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// All figures of a row. The file has them then too, should the rest fail.
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

/// The end.
pub(crate) fn all(args: &Compare, results: &mut Results) {
    results.run.insert("load_after", load());
    let lines = targets::lines(results, args.upstream.is_none());
    table::print(&lines);
    if let Some(out) = &args.out {
        let judged: Vec<Judged> = lines.into_iter().flat_map(|line| line.judged).collect();
        results.write(out, &judged);
    }
}
