//! A buffer of several pieces that is written as one. Large pieces are shared with their owner;
//! small ones are copied between them (`docs/decisions/response-bodies.md`).
//!
//! HTTP/2 and TLS read a [`Rope`] by its slices ([`Buf::chunks_vectored`]): its bytes are copied
//! once, into the records that are encrypted. h2 requests the slices of one frame of 16 KiB at a
//! time, at most sixteen. A frame with more slices is written in parts, each with its own record
//! and system call. So a shared piece has at least [`SHARED_BYTES_MIN`].
//!
//! A shared piece keeps its owner alive until the client has read it. So [`RopeBuilder`] shares a
//! part only if it is at least half of its owner: a rope keeps at most twice its own bytes alive.

use std::io::IoSlice;
use std::sync::Arc;
use std::vec;

use bytes::{Buf, Bytes};

use crate::held_bytes::HeldBytes;

/// The length of a piece of a body that can be cut: as much as a stream buffers for a slow client.
pub const PIECE_BYTES: usize = 64 << 10;

/// Smaller parts are copied, which costs about as much as another slice. Wherever a frame of 16 KiB
/// begins, sixteen slices hold it: at least seven of them are whole shared pieces; the others are
/// the copied bytes between them, and the end of a piece that began before.
pub const SHARED_BYTES_MIN: usize = (16 << 10) / 7 + 1;

/// A buffer of several pieces. A rope of a single `Bytes` allocates nothing and is little larger
/// than that: HTTP/2 reserves room for three ropes in each connection.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// Not empty unless everything was read.
    first: Bytes,
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug)]
struct Rest {
    pieces: vec::IntoIter<Bytes>,
    /// The total length of `pieces` in bytes.
    left: usize,
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        Self { first: bytes, rest: None }
    }
}

impl From<Vec<Bytes>> for Rope {
    fn from(pieces: Vec<Bytes>) -> Self {
        pieces.into_iter().into()
    }
}

impl From<vec::IntoIter<Bytes>> for Rope {
    fn from(mut pieces: vec::IntoIter<Bytes>) -> Self {
        let first = pieces.find(|piece| !piece.is_empty()).unwrap_or_default();
        let left = pieces.as_slice().iter().map(Bytes::len).sum();
        Self { first, rest: (left > 0).then(|| Box::new(Rest { pieces, left })) }
    }
}

impl Rope {
    fn skip_empty(&mut self) {
        while self.first.is_empty()
            && let Some(rest) = &mut self.rest
        {
            match rest.pieces.next() {
                Some(next) => {
                    rest.left -= next.len();
                    self.first = next;
                }
                None => self.rest = None,
            }
        }
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.first.len() + self.rest.as_ref().map_or(0, |rest| rest.left)
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let rest = self.rest.as_ref().map_or(&[][..], |rest| rest.pieces.as_slice());
        let pieces = std::iter::once(&self.first).chain(rest);
        let pieces = pieces.filter(|piece| !piece.is_empty());
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        debug_assert!(count <= self.remaining(), "more than there is");
        while count > 0 && !self.first.is_empty() {
            let here = count.min(self.first.len());
            self.first.advance(here);
            count -= here;
            self.skip_empty();
        }
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        if length <= self.first.len() {
            let bytes = self.first.split_to(length);
            self.skip_empty();
            return bytes;
        }
        let mut bytes = bytes::BytesMut::with_capacity(length);
        bytes::BufMut::put(&mut bytes, self.take(length));
        bytes.freeze()
    }
}

/// Returns a part of `owner`, which keeps all of it.
pub fn share(owner: &Arc<[u8]>, part: &[u8]) -> Bytes {
    Bytes::from_owner(Arc::clone(owner)).slice_ref(part)
}

/// Builds a [`Rope`].
#[derive(Debug, Default)]
pub struct RopeBuilder {
    /// The copied bytes: one allocation. The pieces between shared ones are slices of it.
    copied: Vec<u8>,
    /// The shared pieces, each with the number of bytes copied before it.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

impl RopeBuilder {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.copied.len() + self.shared_bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer for bytes to be copied.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }

    /// Appends a part of `owner`, shared if it is large enough.
    pub fn push_part(&mut self, owner: &Arc<[u8]>, part: &[u8]) {
        if part.len() < SHARED_BYTES_MIN || part.len() < owner.len() / 2 {
            self.copied.extend_from_slice(part);
        } else {
            self.push_shared(share(owner, part));
        }
    }

    /// Appends bytes without copying them.
    pub fn push_shared(&mut self, bytes: Bytes) {
        self.shared_bytes += bytes.len();
        self.shared.push((self.copied.len(), bytes));
    }

    /// Returns the rope.
    pub fn finish(self) -> Rope {
        self.finish_with(Bytes::from)
    }

    /// Returns the rope. Its copied bytes count as held.
    pub fn finish_held(self, held: &HeldBytes) -> Rope {
        self.finish_with(|copied| held.hold(copied))
    }

    fn finish_with(self, into_bytes: impl FnOnce(Vec<u8>) -> Bytes) -> Rope {
        let copied = into_bytes(self.copied);
        if self.shared.is_empty() {
            return copied.into();
        }
        let mut pieces = Vec::with_capacity(self.shared.len() * 2 + 1);
        let mut at = 0;
        for (before, bytes) in self.shared {
            if before > at {
                pieces.push(copied.slice(at..before));
                at = before;
            }
            pieces.push(bytes);
        }
        if copied.len() > at {
            pieces.push(copied.slice(at..));
        }
        pieces.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A rope reads as its pieces in their order, whichever methods read it.
        #[test]
        fn a_rope_reads_as_its_pieces(
            pieces in vec(vec(any::<u8>(), 0..5), 0..8),
            steps in vec((0..9_usize, any::<bool>()), 0..20),
        ) {
            let concatenated = pieces.concat();
            let mut rope = Rope::from(pieces.into_iter().map(Bytes::from).collect::<Vec<_>>());
            let mut read = Vec::new();
            for (step, copy) in steps {
                prop_assert_eq!(rope.remaining(), concatenated.len() - read.len());
                let mut slices = [IoSlice::new(&[]); 64];
                let count = rope.chunks_vectored(&mut slices);
                let slices: Vec<&[u8]> = slices[..count].iter().map(|slice| &**slice).collect();
                prop_assert_eq!(slices.concat(), &concatenated[read.len()..]);
                prop_assert!(slices.iter().all(|slice| !slice.is_empty()));
                prop_assert_eq!(rope.chunk().is_empty(), !rope.has_remaining());
                let step = step.min(rope.remaining());
                if copy {
                    read.extend_from_slice(&rope.copy_to_bytes(step));
                } else {
                    read.extend_from_slice(&concatenated[read.len()..read.len() + step]);
                    rope.advance(step);
                }
            }
            read.extend_from_slice(&rope.copy_to_bytes(rope.remaining()));
            prop_assert_eq!(read, concatenated);
        }

        /// The rope has all parts in their order, and shares only large parts of their owners.
        #[test]
        fn a_builder_keeps_the_order(
            parts in vec((0..3 * SHARED_BYTES_MIN, 0..3 * SHARED_BYTES_MIN, any::<u8>()), 0..9),
        ) {
            let (mut builder, mut concatenated) = (RopeBuilder::default(), Vec::new());
            for (before, length, byte) in parts {
                let mut owner = vec![byte; before];
                owner.resize(before + length, byte.wrapping_add(1));
                let owner = Arc::from(owner);
                builder.buffer().push(byte);
                builder.push_part(&owner, &owner[before..]);
                concatenated.push(byte);
                concatenated.extend_from_slice(&owner[before..]);
                prop_assert_eq!(builder.len(), concatenated.len());
                let is_shared = builder.shared.last().is_some_and(|(_, last)| {
                    last.as_ptr_range().end == owner.as_ptr_range().end
                });
                prop_assert_eq!(is_shared, length >= SHARED_BYTES_MIN && length >= (before + length) / 2);
            }
            let mut rope = builder.finish();
            prop_assert_eq!(rope.copy_to_bytes(rope.remaining()), concatenated);
        }
    }

    #[test]
    fn a_single_piece_is_not_copied() {
        let bytes = Bytes::from(vec![7; 100]);
        let mut rope = Rope::from(bytes.clone());
        assert_eq!(rope.copy_to_bytes(100).as_ptr(), bytes.as_ptr());
        assert!(!rope.has_remaining());
    }
}
