//! The bytes of a list, created piece by piece.

use std::sync::Arc;
use std::vec;

use bytes::Buf;

use super::item_format::{ItemFormat, PartialItem};
use crate::held_bytes::HeldBytes;
use crate::object::Object;
use crate::rope::{PIECE_BYTES, Rope, RopeBuilder, SHARED_BYTES_MIN};

/// An iterator over a list's bytes, in ropes of at most [`PIECE_BYTES`].
#[derive(Clone, Debug)]
pub struct Pieces {
    format: ItemFormat,
    head: Vec<u8>,
    objects: vec::IntoIter<Arc<Object>>,
    tail: Vec<u8>,
    /// The rest of an item that was cut.
    partial: Option<PartialItem>,
    /// Whether a separator comes before the next item.
    needs_separator: bool,
    remaining: usize,
    /// Counts the copied bytes of pieces.
    held: Option<HeldBytes>,
}

impl Pieces {
    pub(super) fn new(
        format: ItemFormat,
        head: Vec<u8>,
        objects: Vec<Arc<Object>>,
        tail: Vec<u8>,
        remaining: usize,
    ) -> Self {
        let (objects, partial) = (objects.into_iter(), None);
        Self { format, head, objects, tail, partial, needs_separator: false, remaining, held: None }
    }

    /// Counts what is copied into pieces as held.
    pub fn held_by(self, held: HeldBytes) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Returns the number of bytes that were not returned yet.
    pub fn len(&self) -> usize {
        self.remaining
    }

    /// Whether all bytes were returned.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// Appends the next item if it fits. Returns whether it did.
    fn push_item(&mut self, object: &Object, builder: &mut RopeBuilder) -> bool {
        let separator = if self.needs_separator { self.format.separator() } else { b"" };
        let bytes = separator.len() + self.format.len(object);
        // An item that is larger than a piece is copied piece by piece.
        let is_cut = bytes > PIECE_BYTES;
        let needed = if is_cut { HEADS_BYTES_MAX } else { bytes };
        if !builder.is_empty() && builder.len() + needed > PIECE_BYTES {
            return false;
        }
        builder.buffer().extend_from_slice(separator);
        self.partial = self.format.append_to(object, is_cut, builder);
        self.needs_separator = true;
        true
    }
}

impl Iterator for Pieces {
    type Item = Rope;

    fn next(&mut self) -> Option<Rope> {
        let mut builder = RopeBuilder::default();
        let next = self.objects.as_slice().first();
        if next.is_some_and(|object| self.format.len(object) < SHARED_BYTES_MIN) {
            // Most objects are small and will be copied.
            builder.buffer().reserve_exact(PIECE_BYTES.min(self.remaining));
        }
        builder.buffer().extend_from_slice(&std::mem::take(&mut self.head));
        while builder.len() < PIECE_BYTES {
            if let Some(partial) = &mut self.partial {
                if !partial.append_to(&mut builder) {
                    break;
                }
                if partial.is_empty() {
                    self.partial = None;
                }
            } else if let Some(object) = self.objects.as_slice().first().cloned() {
                if !self.push_item(&object, &mut builder) {
                    break;
                }
                self.objects.next();
            } else {
                if builder.is_empty() || builder.len() + self.tail.len() <= PIECE_BYTES {
                    builder.buffer().append(&mut self.tail);
                }
                break;
            }
        }
        let rope = match &self.held {
            Some(held) => builder.finish_held(held),
            None => builder.finish(),
        };
        self.remaining = self.remaining.saturating_sub(rope.remaining());
        rope.has_remaining().then_some(rope)
    }
}

/// Room for the bytes before an item's own bytes: a separator, tags, lengths, and the kind of a
/// metadata-only view.
const HEADS_BYTES_MAX: usize = 256;
