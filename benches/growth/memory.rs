//! Memory per object: resident memory of a process that only holds a number of objects.

use std::fs;
use std::process::Command;

use weir::codec::object::Object;

use crate::caches::cache;
use crate::curve::{Curve, Law, Series};
use crate::pods::{PodId, Pods};

/// The argument with which this program holds objects, prints the memory per object and ends.
pub(crate) const ROLE: &str = "--hold";

pub(crate) fn grow() -> Curve {
    let point = |count: usize| {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args([ROLE, &count.to_string()])
            .output()
            .expect("this program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        (count as f64, text.trim().parse::<f64>().expect("a number"))
    };
    let points = [1_000, 3_000, 10_000, 30_000, 100_000].map(point).to_vec();
    Curve {
        title: "Memory per object of 4.9 KB",
        x: "objects",
        y: "bytes",
        series: vec![Series::new("in the watch cache", Some(Law::Constant), points)],
    }
}

/// Prints the memory per object. Runs in the separate process.
pub(crate) fn print_memory_per_object(count: usize) {
    let pods = Pods::json();
    let before = resident("self");
    // The vector moves into the cache, so no object is held twice.
    let objects: Vec<Object> = (0..count).map(|number| pods.object(PodId::nth(number))).collect();
    let cache = cache(objects);
    println!("{}", (resident("self") - before) / count as f64);
    drop(cache);
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident(process: &str) -> f64 {
    status(process, "VmRSS:")
}

/// Returns the most resident memory that a process had, in bytes.
pub(crate) fn peak(process: &str) -> f64 {
    status(process, "VmHWM:")
}

fn status(process: &str, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.expect("memory in kB") * 1024.0
}
