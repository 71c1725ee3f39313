//! The samples of a recording, before they are encoded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mappings::Mapping;

/// The samples of a recording.
#[derive(Debug)]
pub(super) struct Samples {
    /// When it began, in nanoseconds of Unix time.
    pub(super) start_ns: i64,
    pub(super) length: Duration,
    /// Samples for each second of CPU time.
    pub(super) frequency: u32,
    pub(super) stacks: Vec<Stack>,
    /// The code at the addresses of the stacks, as far as this process has symbols. An inlined
    /// function comes before the one that it is part of.
    pub(super) code: BTreeMap<u64, Vec<Code>>,
    pub(super) mappings: Vec<Mapping>,
}

/// A stack that was seen.
#[derive(Debug)]
pub(super) struct Stack {
    /// The address that was interrupted, then those of the calls, the innermost first.
    pub(super) addresses: Vec<u64>,
    pub(super) thread: String,
    pub(super) count: i64,
}

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: i64,
}
