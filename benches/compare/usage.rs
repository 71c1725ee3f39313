//! What a server has used: CPU time and resident memory, by `/proc` or by its own metrics.
//!
//! By `/proc`, without the pages of mapped files: those are the program itself, of which a first request touches more, whatever it asks for.

use std::fs;

use crate::client::{Ask, Connection, Protocol};
use crate::cpu;
use crate::server::Server;

/// Where to ask.
#[derive(Clone)]
pub(crate) enum Usage {
    /// A process of this machine.
    Process(u32),
    /// `process_cpu_seconds_total` and `process_resident_memory_bytes`, which kube-apiserver and Weir both serve; Weir's are whole seconds.
    Metrics(Box<Server>, String),
    /// Nowhere: rates and latencies only.
    Unknown,
}

/// CPU time since its start in seconds, and resident memory in bytes; not a number where nobody knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) cpu: f64,
    /// How long its present threads were ready to run and had no processor, in seconds, all together.
    pub(crate) waited: f64,
    pub(crate) resident: f64,
    /// Whether the clock has whole seconds only.
    pub(crate) coarse: bool,
}

/// What takes fewer seconds is not told by a clock of whole ones.
const WHOLE_SECONDS_MIN: f64 = 10.0;

impl Used {
    /// CPU seconds that were used, as this clock tells them; not a number if they are too few for it.
    pub(crate) fn told(self, seconds: f64) -> f64 {
        if self.coarse && seconds < WHOLE_SECONDS_MIN { f64::NAN } else { seconds }
    }
}

impl Usage {
    pub(crate) async fn used(&self) -> Used {
        match self {
            Self::Process(pid) => of_process(*pid),
            Self::Metrics(server, path) => of_metrics(server, path).await,
            Self::Unknown => {
                Used { cpu: f64::NAN, waited: f64::NAN, resident: f64::NAN, coarse: false }
            }
        }
    }

    /// What asking costs the one who is asked, in seconds: nothing by `/proc`, and some milliseconds for kube-apiserver's metrics.
    pub(crate) async fn cost(&self) -> f64 {
        if !matches!(self, Self::Metrics(..)) {
            return 0.0;
        }
        let first = self.used().await;
        (self.used().await.cpu - first.cpu).max(0.0)
    }
}

/// CPU seconds of this process.
pub(crate) fn own_cpu() -> f64 {
    cpu::time_of("/proc/self").as_secs_f64()
}

fn of_process(pid: u32) -> Used {
    let directory = format!("/proc/{pid}");
    let status = fs::read_to_string(format!("{directory}/status")).expect("the process runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = resident.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
    Used {
        cpu: cpu::time_of(&directory).as_secs_f64(),
        waited: waited(&directory).unwrap_or(f64::NAN),
        resident: kibibytes.map_or(f64::NAN, |it| it * 1024.0),
        coarse: false,
    }
}

/// The second figure of each thread's `schedstat`.
fn waited(process: &str) -> Option<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("{process}/task")).ok()? {
        // One that has just ended has none.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').nth(1)?.parse::<f64>().ok()?;
    }
    Some(nanoseconds / 1e9)
}

async fn of_metrics(server: &Server, path: &str) -> Used {
    let connection = Connection::open(server, Protocol::Http1).await;
    let (code, body) = connection.collect(&Ask::get(server, path, "text/plain", false)).await;
    // Not everyone may read an API server's.
    let text = if code.is_success() { String::from_utf8_lossy(&body) } else { "".into() };
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    let cpu = value("process_cpu_seconds_total");
    let resident = value("process_resident_memory_bytes");
    Used { cpu, waited: f64::NAN, coarse: cpu.fract() == 0.0, resident }
}
