//! The trace of a run: a line for each event that does not depend on addresses in memory, and the
//! hash of all lines. Equal seeds must have equal hashes.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::determinism;

/// The trace of a run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    hash: u64,
    lines: u64,
    file: Option<BufWriter<std::fs::File>>,
}

impl Trace {
    /// Creates a trace, which is also written to a file if there is one.
    pub(crate) fn new(file: Option<std::fs::File>) -> Self {
        let file = file.map(BufWriter::new);
        Self(Arc::new(Mutex::new(Inner { hash: FNV_OFFSET, lines: 0, file })))
    }

    /// Adds a line with the virtual time before it.
    pub(crate) fn line(&self, text: &str) {
        let time = determinism::elapsed_ns();
        let line = format!("{:.6} {text}\n", time as f64 / 1e9);
        let mut inner = self.0.lock();
        inner.lines += 1;
        inner.hash = fnv(inner.hash, line.as_bytes());
        if let Some(file) = &mut inner.file {
            // A trace that cannot be written changes nothing of the run.
            drop(file.write_all(line.as_bytes()));
        }
    }

    /// Returns the hash and the number of the lines so far, and writes what is buffered.
    pub(crate) fn finish(&self) -> (u64, u64) {
        let mut inner = self.0.lock();
        if let Some(file) = &mut inner.file {
            drop(file.flush());
        }
        (inner.hash, inner.lines)
    }
}

/// Adds bytes to an FNV-1a hash.
pub(crate) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Where an FNV-1a hash begins.
pub(crate) const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
