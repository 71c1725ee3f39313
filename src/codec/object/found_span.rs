//! A part of an object's bytes that is looked for when it is first needed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::object::Span;

/// The position of a part, once it was looked for. Eight bytes: every object has one, and few are
/// ever used. Two threads may look at once, and find the same.
#[derive(Debug)]
pub(super) struct FoundSpan(AtomicU64);

impl FoundSpan {
    /// Returns the part. `find` returns an empty one if there is none.
    pub(super) fn get_or_find(&self, find: impl FnOnce() -> Span) -> Span {
        let packed = self.0.load(Ordering::Relaxed);
        if packed != UNKNOWN {
            return unpack(packed);
        }
        let span = find();
        self.0.store(pack(span), Ordering::Relaxed);
        span
    }
}

impl Default for FoundSpan {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

fn pack(span: Span) -> u64 {
    u64::from(span.start) << 32 | u64::from(span.length)
}

fn unpack(packed: u64) -> Span {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
    Span { start: half(packed >> 32), length: half(packed) }
}

/// No part ends after the last offset.
const UNKNOWN: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_looked_for_once() {
        for span in [Span::default(), Span { start: 7, length: 1 << 31 }] {
            let found_span = FoundSpan::default();
            assert_eq!(found_span.get_or_find(|| span), span);
            assert_eq!(found_span.get_or_find(|| unreachable!("it is known")), span);
        }
    }
}
