//! Reads the CPU time and the resident memory of a server from `/proc` or from its own metrics.
//!
//! Memory from `/proc` excludes the pages of mapped files. These are the program itself, of which
//! each new kind of request loads more pages.

use std::fs;

use crate::client::{Connection, PreparedRequest, Protocol};
use crate::cpu;
use crate::server::Server;

/// The source of the figures.
#[derive(Clone)]
pub(crate) enum Usage {
    /// A process on this machine.
    Process(u32),
    /// The server that serves metrics, and their path. kube-apiserver and Weir both have
    /// `process_cpu_seconds_total` and `process_resident_memory_bytes`; Weir's CPU time is in whole
    /// seconds.
    Metrics(Box<Server>, String),
    /// No source. Only rates and latencies can be measured.
    Unknown,
}

/// The CPU time of a server since its start in seconds, and its resident memory in bytes. Unknown
/// values are NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageSample {
    pub(crate) cpu: f64,
    /// The sum over its current threads of the time that they were ready to run but had no
    /// processor, in seconds.
    pub(crate) waited: f64,
    pub(crate) resident: f64,
    /// Whether the CPU time is in whole seconds.
    pub(crate) coarse: bool,
}

/// The shortest CPU time that a clock of whole seconds measures well enough.
const WHOLE_SECONDS_MIN: f64 = 10.0;

impl UsageSample {
    /// Returns `seconds`, or NaN if they are too few for the resolution of this clock.
    pub(crate) fn cpu_if_resolved(self, seconds: f64) -> f64 {
        if self.coarse && seconds < WHOLE_SECONDS_MIN { f64::NAN } else { seconds }
    }
}

impl Usage {
    pub(crate) async fn sample(&self) -> UsageSample {
        match self {
            Self::Process(pid) => sample_process(*pid),
            Self::Metrics(server, path) => sample_metrics(server, path).await,
            Self::Unknown => {
                UsageSample { cpu: f64::NAN, waited: f64::NAN, resident: f64::NAN, coarse: false }
            }
        }
    }

    /// Returns the CPU time in seconds that a sample costs the server: none with `/proc`, some
    /// milliseconds for kube-apiserver's metrics.
    pub(crate) async fn sampling_cost(&self) -> f64 {
        if !matches!(self, Self::Metrics(..)) {
            return 0.0;
        }
        let first = self.sample().await;
        (self.sample().await.cpu - first.cpu).max(0.0)
    }
}

/// Returns the CPU time of this process in seconds.
pub(crate) fn own_cpu() -> f64 {
    cpu::time_of("/proc/self").as_secs_f64()
}

fn sample_process(pid: u32) -> UsageSample {
    let directory = format!("/proc/{pid}");
    let status = fs::read_to_string(format!("{directory}/status")).expect("the process runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes =
        resident.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    UsageSample {
        cpu: cpu::time_of(&directory).as_secs_f64(),
        waited: waited(&directory).unwrap_or(f64::NAN),
        resident: kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1024.0),
        coarse: false,
    }
}

/// Sums the second figure of each thread's `schedstat`, in seconds.
fn waited(process: &str) -> Option<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("{process}/task")).ok()? {
        // A thread that has just ended has no `schedstat`.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').nth(1)?.parse::<f64>().ok()?;
    }
    Some(nanoseconds / 1e9)
}

async fn sample_metrics(server: &Server, path: &str) -> UsageSample {
    let connection = Connection::open(server, Protocol::Http1).await;
    let (code, body) =
        connection.collect(&PreparedRequest::get(server, path, "text/plain", false)).await;
    // The user may lack the permission to read an API server's metrics.
    let text = if code.is_success() { String::from_utf8_lossy(&body) } else { "".into() };
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    let cpu = value("process_cpu_seconds_total");
    let resident = value("process_resident_memory_bytes");
    UsageSample { cpu, waited: f64::NAN, coarse: cpu.fract() == 0.0, resident }
}
