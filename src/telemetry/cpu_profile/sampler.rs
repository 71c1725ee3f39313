//! Takes samples with the crate `pprof`, and finds the symbols of their addresses.
//!
//! Memory: pprof has a table of 16,384 stacks of 128 frames, some 70 MB, which it makes for the
//! first profile of a process and keeps. While a profile ends there are two of them, and the
//! allocator keeps some of what is freed: `docs/decisions/cpu-profiles.md` has the measured sum.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use super::mappings;
use super::samples::{Code, Samples, Stack};

/// A recording, which ends when this is dropped.
pub(super) struct Sampler {
    guard: ProfilerGuard<'static>,
    frequency: u32,
}

impl Sampler {
    pub(super) fn start(frequency: u32) -> Result<Self, pprof::Error> {
        choose_directory();
        let rate = i32::try_from(frequency).unwrap_or(i32::MAX);
        let guard = ProfilerGuardBuilder::default().frequency(rate).blocklist(&BLOCKED).build()?;
        Ok(Self { guard, frequency })
    }

    pub(super) fn finish(self) -> Result<Samples, pprof::Error> {
        let report = self.guard.report().build_unresolved()?;
        // The timer ends before the symbols are looked for.
        drop(self.guard);
        let mut code = BTreeMap::new();
        let mut stacks = Vec::new();
        for (frames, count) in &report.data {
            let mut addresses = Vec::new();
            for frame in &frames.frames {
                let address = frame.ip().addr() as u64;
                if address == 0 {
                    // The unwinder is at the start of the thread.
                    break;
                }
                addresses.push(address);
                code.entry(address).or_insert_with(|| symbols(frame));
            }
            let name = frames.thread_name.get(..frames.thread_name_length).unwrap_or_default();
            let thread = String::from_utf8_lossy(name).into_owned();
            let count = i64::try_from(*count).unwrap_or_default();
            stacks.push(Stack { addresses, thread, count });
        }
        // Its symbols are some ten MB, which nothing else needs.
        backtrace::clear_symbol_cache();
        remove_handler(&mut stacks, &code);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let since = report.timing.start_time.duration_since(SystemTime::UNIX_EPOCH);
        Ok(Samples {
            start_ns: nanoseconds(since.unwrap_or_default()),
            length: report.timing.duration,
            frequency: self.frequency,
            stacks,
            code,
            mappings: mappings::executable(&maps),
        })
    }
}

/// pprof writes stacks that do not fit its table to a temporary file, and needs that file from the
/// start. The root of a container can often not be written, but its `/dev/shm` can.
fn choose_directory() {
    if tempfile::tempfile().is_err() {
        let shared_memory = Path::new("/dev/shm");
        if let Err(chosen) = tempfile::env::override_temp_dir(shared_memory) {
            tracing::debug!(directory = %chosen.display(), "temporary files stay where they are");
        }
    }
}

/// Returns the code at the address of a frame; nothing if its file has no symbols.
fn symbols(frame: &backtrace::Frame) -> Vec<Code> {
    let mut all = Vec::new();
    backtrace::resolve_frame(frame, |symbol| {
        if let Some(name) = symbol.name() {
            let file = symbol.filename().map(Path::as_os_str).map(OsStr::to_string_lossy);
            all.push(Code {
                // Without the hash of the crate.
                function: format!("{name:#}"),
                file: file.unwrap_or_default().into_owned(),
                line: symbol.lineno().map_or(0, i64::from),
            });
        }
    });
    all
}

/// Removes the frames of the signal's handler, with which every stack begins: those up to the
/// handler and to the code of the system that called it. Without symbols they are what all stacks
/// have in common, since each was interrupted somewhere else.
fn remove_handler(stacks: &mut Vec<Stack>, code: &BTreeMap<u64, Vec<Code>>) {
    let is_handler = |address: &u64| {
        let code = code.get(address).map(Vec::as_slice).unwrap_or_default();
        code.iter().any(|code| code.function.contains("perf_signal_handler"))
    };
    let common = common_start(stacks);
    for stack in stacks.iter_mut() {
        let named = stack.addresses.iter().position(is_handler);
        let start = named.map_or(common, |place| place + 2);
        stack.addresses.drain(..start.min(stack.addresses.len()));
    }
    stacks.retain(|stack| !stack.addresses.is_empty());
}

/// Returns how many addresses all stacks begin with.
fn common_start(stacks: &[Stack]) -> usize {
    let Some((first, others)) = stacks.split_first() else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let common = |stack: &Stack| {
        let pairs = first.addresses.iter().zip(&stack.addresses);
        pairs.take_while(|(one, other)| one == other).count()
    };
    others.iter().map(common).min().unwrap_or_default()
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// A thread may hold a lock of these, for which the handler would wait for ever. So the time in
/// them is in no profile.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(addresses: &[u64]) -> Stack {
        Stack { addresses: addresses.to_vec(), thread: String::new(), count: 1 }
    }

    #[test]
    fn the_handler_is_in_no_stack() {
        let handler = Code { function: "perf_signal_handler".to_owned(), ..Code::default() };
        let named = BTreeMap::from([(2, vec![Code::default(), handler])]);
        let left = |code| {
            let mut stacks = vec![stack(&[1, 2, 3, 10, 20]), stack(&[1, 2, 3, 11, 20])];
            remove_handler(&mut stacks, code);
            stacks.into_iter().map(|stack| stack.addresses).collect::<Vec<_>>()
        };
        assert_eq!(left(&named), [[10, 20], [11, 20]]);
        assert_eq!(left(&BTreeMap::new()), [[10, 20], [11, 20]]);
        let mut one = vec![stack(&[1, 2, 3])];
        remove_handler(&mut one, &BTreeMap::new());
        assert_eq!(one.len(), 1, "nothing is known about a single stack");
        remove_handler(&mut Vec::new(), &named);
    }
}
