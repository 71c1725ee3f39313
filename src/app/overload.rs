//! Measures this process's own overload: how late timers fire, CPU, memory, file descriptors. Gives
//! memory back while that is short, and looks after responses that nobody reads.
//!
//! The limits are read again each second: the kubelet may change those of a running pod.
//!
//! A timer that fires late stands for all that should have fired meanwhile, so that one long pause
//! counts as what it is. Where `/proc` is missing, what is read from there counts as unused.
//!
//! File descriptors are counted on a blocking thread: with tens of thousands of connections that
//! takes milliseconds, in which a worker of the runtime would serve nobody.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::app::cgroup::Limits;
use crate::cache::registry::Registry;
use crate::flow::overload::{Signals, Stage, StageMachine};
use crate::server::{Compressor, FlowControl, Overload, Stages};
use crate::tasks::spawn_blocking;

/// The parts of Weir that act on a measurement.
pub(super) struct Measured {
    pub(super) overload: Arc<Overload>,
    pub(super) registry: Registry,
    pub(super) compressor: Compressor,
    pub(super) flow_control: Option<Arc<FlowControl>>,
}

impl Measured {
    /// Measures for ever.
    pub(super) async fn run(self, limits: Limits) -> Infallible {
        self.overload.show_memory_limit(limits.memory_bytes());
        let mut gauge = Gauge::new(limits);
        let [mut overall, mut space, mut memory] = [StageMachine::default(); 3];
        let began = Instant::now();
        let mut due = began;
        let mut tick = 0_u32;
        loop {
            due = due.max(Instant::now() - TICK) + TICK;
            tokio::time::sleep_until(due).await;
            gauge.lateness.add(due.elapsed());
            tick = tick.wrapping_add(1);
            if tick.is_multiple_of(TICKS_PER_SECOND) {
                gauge.set_limits(gauge.limits.read_again());
                self.overload.show_memory_limit(gauge.limits.memory_bytes());
                gauge.measure_cpu();
                gauge.count_descriptors();
                self.flow_control.iter().for_each(|flow| flow.tend());
            }
            if tick.is_multiple_of(TICKS_PER_STAGE) {
                let signals = gauge.signals();
                let now = began.elapsed();
                let stages = Stages {
                    overall: overall.observe(now, &signals),
                    space: space.observe(now, &signals.space_only()),
                };
                self.overload.set(stages, &signals);
                let of_memory = memory.observe(now, &signals.memory_only());
                if tick.is_multiple_of(TICKS_PER_SECOND) {
                    self.give_back(of_memory);
                }
            }
        }
    }

    /// Drops what can be made again: parts of histories first, and then whole caches that nobody
    /// uses, and compressed segments.
    fn give_back(&self, stage: Stage) {
        let history_part = match stage {
            Stage::Calm => return,
            Stage::Saving => 2,
            _ => 4,
        };
        self.registry.give_back(history_part, stage >= Stage::InitialStates);
        if stage >= Stage::InitialStates {
            self.compressor.give_back();
        }
    }
}

/// The signals, and what they are made from.
struct Gauge {
    limits: Limits,
    /// The CPUs that this process may use.
    cpus: f64,
    lateness: Lateness,
    /// The CPU time at a time.
    cpu_before: (Instant, Duration),
    cpu: f64,
    /// The part of the file descriptors that was used when they were counted last.
    descriptors: Arc<AtomicU64>,
    /// The count that was begun last.
    counting: Option<JoinHandle<()>>,
}

impl Gauge {
    fn new(limits: Limits) -> Self {
        let cpus = cpus(&limits);
        let cpu_before = (Instant::now(), cpu_time());
        let lateness = Lateness::default();
        let descriptors = Arc::default();
        Self { limits, cpus, lateness, cpu_before, cpu: 0.0, descriptors, counting: None }
    }

    /// Replaces the limits, which the kubelet may change while a pod runs.
    fn set_limits(&mut self, limits: Limits) {
        self.cpus = cpus(&limits);
        self.limits = limits;
    }

    /// Measures the CPU time since the last call.
    fn measure_cpu(&mut self) {
        let (since, before) = std::mem::replace(&mut self.cpu_before, (Instant::now(), cpu_time()));
        let used = self.cpu_before.1.saturating_sub(before).as_secs_f64();
        self.cpu = used / (since.elapsed().as_secs_f64() * self.cpus).max(f64::EPSILON);
    }

    /// Begins to count file descriptors, unless the last count has not ended.
    fn count_descriptors(&mut self) {
        if self.counting.as_ref().is_some_and(|counting| !counting.is_finished()) {
            return;
        }
        let counted = Arc::clone(&self.descriptors);
        let count = move || counted.store(descriptors().to_bits(), Ordering::Relaxed);
        self.counting = Some(spawn_blocking(count));
    }

    fn signals(&self) -> Signals {
        Signals {
            lateness: self.lateness.high(),
            cpu: self.cpu,
            memory: self.limits.memory.as_ref().and_then(|limit| limit.used()).unwrap_or(0.0),
            descriptors: f64::from_bits(self.descriptors.load(Ordering::Relaxed)),
        }
    }
}

/// How late the timers of the last second fired.
#[derive(Debug, Default)]
struct Lateness(VecDeque<Duration>);

impl Lateness {
    /// Adds a timer that fired `late`, and those that it has delayed.
    fn add(&mut self, late: Duration) {
        let mut left = Some(late);
        while let Some(late) = left.filter(|_| self.0.len() < 2 * SAMPLES) {
            self.0.push_back(late);
            left = late.checked_sub(TICK).filter(|left| !left.is_zero());
        }
        let surplus = self.0.len().saturating_sub(SAMPLES);
        self.0.drain(..surplus);
    }

    /// Returns the 90th percentile.
    fn high(&self) -> Duration {
        let mut sorted: Vec<_> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 9 / 10).copied().unwrap_or_default()
    }
}

/// Returns how many CPUs this process may use.
fn cpus(limits: &Limits) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    limits.cpus.map_or(cores, |quota| quota.min(cores))
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before it may have spaces and parentheses.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(USER_TIME).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * CLOCK_TICK_MILLIS)
}

/// Returns the part of the file descriptors that is used.
fn descriptors() -> f64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return 0.0 };
    match fs::read_dir(Path::new("/proc/self/fd")) {
        Ok(open) => open.count() as f64 / limit.max(1) as f64,
        // No descriptor is free to list the directory with.
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => 1.0,
        Err(_) => 0.0,
    }
}

/// Short enough for twenty samples a second, and too long to cost anything that matters.
const TICK: Duration = Duration::from_millis(50);
const TICKS_PER_STAGE: u32 = 2;
const TICKS_PER_SECOND: u32 = 20;
const SAMPLES: usize = 20;
/// The user time in `/proc/self/stat` after the name; the system time follows.
const USER_TIME: usize = 11;
/// Linux shows all times in hundredths of a second (`USER_HZ`).
const CLOCK_TICK_MILLIS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_counts_as_many_late_timers() {
        let mut lateness = Lateness::default();
        (0..SAMPLES).for_each(|_| lateness.add(Duration::from_millis(1)));
        assert_eq!(lateness.high(), Duration::from_millis(1));
        lateness.add(Duration::from_millis(90));
        assert_eq!(lateness.high(), Duration::from_millis(40), "two late timers");
        lateness.add(Duration::from_secs(3));
        assert!(lateness.high() > Duration::from_secs(2), "{:?}", lateness.high());
        (0..SAMPLES).for_each(|_| lateness.add(Duration::ZERO));
        assert_eq!(lateness.high(), Duration::ZERO);
    }

    #[tokio::test]
    async fn limits_that_change_count_at_the_next_measurement() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup");
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(&group).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/\n").unwrap();
        fs::write(group.join("memory.current"), "500\n").unwrap();
        let mut gauge = Gauge::new(Limits::read(root.path()));
        assert_eq!(gauge.signals().memory, 0.0, "there is no limit");
        for (limit, used) in [("1000", 0.5), ("2000", 0.25), ("max", 0.0)] {
            fs::write(group.join("memory.max"), limit).unwrap();
            gauge.set_limits(Limits::read(root.path()));
            assert_eq!(gauge.signals().memory, used, "{limit}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cpu_and_descriptors_are_read() {
        let used = descriptors();
        assert!(used > 0.0 && used <= 1.0, "{used}");
        let before = cpu_time();
        assert!((0..1_000_000).any(|_| cpu_time() > before), "reading takes CPU time");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn descriptors_are_counted_on_another_thread() {
        let mut gauge = Gauge::new(Limits::from_current_process());
        gauge.count_descriptors();
        gauge.counting.take().unwrap().await.unwrap();
        assert!(gauge.signals().descriptors > 0.0);
    }
}
