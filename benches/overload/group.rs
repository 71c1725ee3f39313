//! A control group with limits of memory and CPU, version 1 or 2, made by hand.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group, which is removed on drop, once its process has ended.
pub(crate) struct Group {
    /// Its directories: one for each controller in version 1.
    directories: Vec<PathBuf>,
    is_v2: bool,
}

impl Group {
    /// Makes a group; `None` where that is not allowed. `cpu_percent` is of one processor.
    pub(crate) fn make(memory_bytes: u64, cpu_percent: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("weir-bench-{}", std::process::id());
        let is_v2 = root.join("cgroup.controllers").exists();
        let (period, quota) = (20_000, 20_000 * cpu_percent / 100);
        let files = match is_v2 {
            true => vec![
                (root.join(&name), "memory.max", memory_bytes.to_string()),
                (root.join(&name), "cpu.max", format!("{quota} {period}")),
            ],
            false => vec![
                (
                    root.join("memory").join(&name),
                    "memory.limit_in_bytes",
                    memory_bytes.to_string(),
                ),
                (root.join("cpu").join(&name), "cpu.cfs_period_us", period.to_string()),
                (root.join("cpu").join(&name), "cpu.cfs_quota_us", quota.to_string()),
            ],
        };
        let mut group = Self { directories: Vec::new(), is_v2 };
        for (directory, file, value) in files {
            if !group.directories.contains(&directory) {
                fs::create_dir(&directory).ok()?;
                group.directories.push(directory.clone());
            }
            fs::write(directory.join(file), value).ok()?;
        }
        Some(group)
    }

    /// Returns the directories into which a process writes its own ID.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the most memory that it has used, in MiB, and how often a process was killed.
    pub(crate) fn used(&self) -> (u64, String) {
        let read = |file: &str| {
            let mut texts =
                self.directories.iter().map(|directory| fs::read_to_string(directory.join(file)));
            texts.find_map(Result::ok).unwrap_or_default()
        };
        let (peak, events) = match self.is_v2 {
            true => ("memory.peak", "memory.events"),
            false => ("memory.max_usage_in_bytes", "memory.oom_control"),
        };
        let kills =
            read(events).lines().find(|line| line.starts_with("oom_kill ")).map(str::to_owned);
        (read(peak).trim().parse::<u64>().unwrap_or(0) >> 20, kills.unwrap_or_default())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.directories {
            // A process that was just killed may still be counted; the directory is empty then.
            let removed = fs::remove_dir(directory);
            drop(removed);
        }
    }
}
