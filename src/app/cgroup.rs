//! The limits of memory and CPU that the control groups of this process set.
//!
//! A container sees its own group as the root of the mounted tree, or, without a namespace for
//! groups, at the path that `/proc/self/cgroup` names. So all directories from that path up to the
//! root are read, as far as they exist, and the lowest limit counts. Groups of version 1 are not
//! read: kubelets refuse them since Kubernetes 1.35.

use std::fs;
use std::path::{Path, PathBuf};

/// The limits of this process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(super) memory: Option<MemoryLimit>,
    /// The CPUs that may be used; `None` without a quota.
    pub(super) cpus: Option<f64>,
}

/// A limit of memory, and where its use is read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemoryLimit {
    pub(super) bytes: u64,
    group: PathBuf,
}

impl Limits {
    /// Reads the limits of this process.
    pub(crate) fn from_current_process() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the limits of this process again. They stay where files cannot be opened, as without a
    /// free descriptor.
    pub(crate) fn read_again(&self) -> Self {
        let again = Self::from_current_process();
        if fs::File::open("/proc/self/cgroup").is_ok() { again } else { self.clone() }
    }

    /// Returns the limit of memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.memory.as_ref().map(|limit| limit.bytes)
    }

    pub(super) fn read(root: &Path) -> Self {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let groups = path.map(|path| groups_of(&root.join(TREE), path)).unwrap_or_default();
        let memory = groups.iter().filter_map(|group| MemoryLimit::of(group));
        Self {
            memory: memory.min_by_key(|limit| limit.bytes),
            cpus: groups.iter().filter_map(|group| quota(group)).min_by(f64::total_cmp),
        }
    }
}

impl MemoryLimit {
    fn of(group: &Path) -> Option<Self> {
        // Without a limit it is "max".
        let bytes = number(&group.join("memory.max"))?;
        Some(Self { bytes, group: group.to_owned() })
    }

    /// Returns the part of the limit that is used. Pages of files do not count where they matter:
    /// the kernel drops them before it ends a process.
    pub(super) fn used(&self) -> Option<f64> {
        let usage = number(&self.group.join("memory.current"))?;
        let part = |bytes: u64| bytes as f64 / self.bytes.max(1) as f64;
        if part(usage) < STATISTICS_FROM {
            return Some(part(usage));
        }
        let statistics = fs::read_to_string(self.group.join("memory.stat")).ok()?;
        let lines = statistics.lines().filter_map(|line| line.split_once(' '));
        let of_files = lines.filter(|(name, _)| matches!(*name, "inactive_file" | "active_file"));
        let files: u64 = of_files.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
        Some(part(usage.saturating_sub(files)))
    }
}

/// Returns the directories of a group and of those above it that exist.
fn groups_of(mount: &Path, path: &str) -> Vec<PathBuf> {
    let group = mount.join(path.trim_start_matches('/'));
    let above = group.ancestors().take_while(|group| group.starts_with(mount));
    above.filter(|group| group.is_dir()).map(Path::to_owned).collect()
}

fn quota(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The mount point of the tree of groups.
const TREE: &str = "sys/fs/cgroup";
/// Below this part the statistics of a group are not worth their reading.
const STATISTICS_FROM: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a directory.
    fn write(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn limits_in_a_container() {
        let root = write(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "900\n"),
            ("sys/fs/cgroup/memory.stat", "anon 500\ninactive_file 200\nactive_file 100\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ]);
        let limits = Limits::read(root.path());
        assert_eq!(limits.cpus, Some(1.5));
        let memory = limits.memory.unwrap();
        assert_eq!((memory.bytes, memory.used()), (1000, Some(0.6)));
    }

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let root = write(&[
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/pods/one/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pods/memory.max", "500\n"),
            ("sys/fs/cgroup/pods/memory.current", "100\n"),
            ("sys/fs/cgroup/pods/cpu.max", "300000 100000\n"),
        ]);
        let limits = Limits::read(root.path());
        assert_eq!(limits.cpus, Some(3.0));
        assert_eq!(limits.memory.and_then(|limit| limit.used()), Some(0.2));
    }

    #[test]
    fn without_limits_there_are_none() {
        let root = write(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(Limits::read(root.path()), Limits { memory: None, cpus: None });
        let nothing = Limits::read(Path::new("/nonexistent"));
        assert_eq!(nothing, Limits { memory: None, cpus: None });
    }
}
