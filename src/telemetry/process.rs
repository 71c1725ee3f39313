//! The resources of the host that this process uses, as the system shows them. `/metrics` has the
//! same figures, from Prometheus' own collector.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// The resources that this process uses. A figure that cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessFigures {
    /// The resident memory in bytes.
    pub(crate) resident: Option<f64>,
    /// The part of the resident memory that is mapped files, such as the binary.
    pub(crate) files: Option<f64>,
    /// The open file descriptors.
    pub(crate) descriptors: Option<f64>,
    /// The limit on open file descriptors.
    pub(crate) descriptors_max: Option<f64>,
}

impl ProcessFigures {
    /// Reads the figures.
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            resident: bytes(&status, "VmRSS:"),
            files: bytes(&status, "RssFile:"),
            descriptors: fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64),
            descriptors_max: getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
        }
    }
}

/// Returns a size of `/proc/self/status` in bytes.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?;
    Some(kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_bytes() {
        let status = "Name:\tweir\nRssAnon:\t       6 kB\nRssFile:\t       4 kB\n";
        assert_eq!(bytes(status, "RssFile:"), Some(4096.0));
        assert_eq!((bytes(status, "VmRSS:"), bytes("", "RssFile:")), (None, None));
    }
}
