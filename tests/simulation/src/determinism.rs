//! Clock and entropy of the process, so that a seed decides everything.
//!
//! Weir and its dependencies read the clocks and ask for entropy in many places: hash maps, tokio's
//! `select!`, moka, h2, uuids. All of them end in three functions of the C library. This program
//! defines these functions itself, which the linker prefers. Once [`begin`] was called, clocks show
//! the virtual time of the runtime, and entropy comes from the seed.
//!
//! This is the only place with `unsafe`.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use libc::{c_int, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};
use tokio::time::Instant;

/// Makes clocks virtual and entropy repeatable from here on.
pub(crate) fn begin(seed: u64) {
    ENTROPY.store(seed, Ordering::Relaxed);
    IS_VIRTUAL.store(true, Ordering::Relaxed);
    fastrand::seed(seed);
}

/// Moves the wall clock by some seconds; timers do not notice.
pub(crate) fn shift_wall_clock(seconds: i64) {
    WALL_SHIFT_S.fetch_add(seconds, Ordering::Relaxed);
}

/// Returns the virtual time since the start of the run, in nanoseconds.
pub(crate) fn elapsed_ns() -> u64 {
    // The runtime's clock is read only once: reading it can ask for the time again.
    let is_outer = IS_READING.try_with(|reading| !reading.replace(true)).unwrap_or(false);
    if !is_outer {
        return ELAPSED_NS.load(Ordering::Relaxed);
    }
    if tokio::runtime::Handle::try_current().is_ok() {
        let now = Instant::now();
        let elapsed = now.duration_since(*BEGIN.get_or_init(|| now)).as_nanos();
        ELAPSED_NS.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    let _ = IS_READING.try_with(|reading| reading.set(false));
    ELAPSED_NS.load(Ordering::Relaxed)
}

/// Returns the real monotonic clock, in nanoseconds: for the speed of the simulation.
pub(crate) fn real_ns() -> u64 {
    let now = kernel_clock(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

/// Returns the processor time of this process, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let now = kernel_clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

fn kernel_clock(clock: clockid_t) -> timespec {
    let mut out = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to the pointer, which is valid for that.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut out) };
    out
}

/// The next pseudo-random word (SplitMix64).
fn entropy() -> u64 {
    let state = ENTROPY.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mut word = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Fills a buffer of the C library's caller.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
unsafe fn fill(buffer: *mut c_void, length: size_t) {
    // SAFETY: by the contract of the function.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        let word = entropy().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's: `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(
    buffer: *mut c_void,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if !IS_VIRTUAL.load(Ordering::Relaxed) {
        // SAFETY: the arguments are the caller's.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as ssize_t };
    }
    // SAFETY: by the contract of the function.
    unsafe { fill(buffer, length) };
    length as ssize_t
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's: `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getentropy(buffer: *mut c_void, length: size_t) -> c_int {
    // SAFETY: by the contract of the function.
    let filled = unsafe { getrandom(buffer, length, 0) };
    if filled == length as ssize_t { 0 } else { -1 }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's: `out` must be valid for a write, or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    let is_virtual = IS_VIRTUAL.load(Ordering::Relaxed);
    let is_wall = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
    let is_monotonic = matches!(
        clock,
        libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
    );
    if !is_virtual || !(is_wall || is_monotonic) {
        // SAFETY: the arguments are the caller's.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) as c_int };
    }
    let elapsed = elapsed_ns();
    let base = if is_wall { WALL_START_S } else { MONOTONIC_START_S };
    let shift = if is_wall { WALL_SHIFT_S.load(Ordering::Relaxed) } else { 0 };
    let seconds = base + shift + (elapsed / NS_PER_S) as i64;
    let time = timespec { tv_sec: seconds, tv_nsec: (elapsed % NS_PER_S) as i64 };
    if !out.is_null() {
        // SAFETY: by the contract of the function.
        unsafe { out.write(time) };
    }
    0
}

const NS_PER_S: u64 = 1_000_000_000;
/// 2026-01-01T00:00:00Z.
const WALL_START_S: i64 = 1_767_225_600;
const MONOTONIC_START_S: i64 = 1_000_000;

static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);
static ENTROPY: AtomicU64 = AtomicU64::new(0);
static ELAPSED_NS: AtomicU64 = AtomicU64::new(0);
static WALL_SHIFT_S: AtomicI64 = AtomicI64::new(0);
static BEGIN: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}
