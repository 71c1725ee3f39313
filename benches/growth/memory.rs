//! Memory an object: resident memory of a process that does nothing but hold so many.

use std::fs;
use std::process::Command;

use weir::codec::object::Object;

use crate::caches::cache;
use crate::curve::{Curve, Law, Series};
use crate::pods::{Pods, Which};

/// This program holds objects, tells what that takes, and ends.
pub(crate) const ROLE: &str = "--hold";

pub(crate) fn grow() -> Curve {
    let point = |count: usize| {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args([ROLE, &count.to_string()])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        (count as f64, text.trim().parse::<f64>().expect("a number"))
    };
    let points = [1_000, 3_000, 10_000, 30_000, 100_000].map(point).to_vec();
    Curve {
        title: "Memory an object of 4.9 KB",
        x: "objects",
        y: "bytes",
        series: vec![Series::new("in the watch cache", Some(Law::Constant), points)],
    }
}

/// In the process of its own.
pub(crate) fn tell(count: usize) {
    let pods = Pods::json();
    let before = resident("self");
    // None is held twice.
    let objects: Vec<Object> = (0..count).map(|it| pods.object(Which::nth(it))).collect();
    let cache = cache(objects);
    println!("{}", (resident("self") - before) / count as f64);
    drop(cache);
}

/// Of a process, in bytes.
pub(crate) fn resident(process: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.expect("it has some") * 1024.0
}
