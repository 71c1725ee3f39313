//! The bytes of a list, in pieces.

use std::sync::Arc;
use std::vec;

use bytes::Buf;

use super::item_format::{ItemFormat, PartialItem};
use crate::codec::object::Object;
use crate::codec::rope::{PIECE_BYTES, Rope, RopeBuilder};

/// A list's bytes, in ropes of at most [`PIECE_BYTES`].
#[derive(Clone, Debug)]
pub struct Pieces {
    format: ItemFormat,
    head: Vec<u8>,
    objects: vec::IntoIter<Arc<Object>>,
    tail: Vec<u8>,
    partial: PartialItem,
    /// Whether an item stands before the next one.
    needs_separator: bool,
    remaining: usize,
}

impl Pieces {
    pub(super) fn new(
        format: ItemFormat,
        head: Vec<u8>,
        objects: Vec<Arc<Object>>,
        tail: Vec<u8>,
        remaining: usize,
    ) -> Self {
        let (objects, partial) = (objects.into_iter(), PartialItem::default());
        Self { format, head, objects, tail, partial, needs_separator: false, remaining }
    }

    /// How many bytes were not handed out yet.
    pub fn len(&self) -> usize {
        self.remaining
    }

    /// Whether all was handed out.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// Appends the next item if there is room for it.
    fn push_item(&mut self, object: &Object, builder: &mut RopeBuilder) -> bool {
        let separator = if self.needs_separator { self.format.separator() } else { b"" };
        let bytes = separator.len() + self.format.len(object);
        // One that does not go into any piece is copied from piece to piece.
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

    /// Appends what there is room for of the item that was cut; whether there was any.
    fn push_partial(&mut self, builder: &mut RopeBuilder) -> bool {
        // What needs_separator the last part goes with it.
        let room = PIECE_BYTES.saturating_sub(builder.len() + self.partial.tail.len());
        let part = self.partial.middle.split_to(room.min(self.partial.middle.len()));
        // A shared part would keep all of it.
        builder.buffer().extend_from_slice(&part);
        if self.partial.middle.is_empty() {
            let PartialItem { tail, .. } = std::mem::take(&mut self.partial);
            builder.buffer().extend_from_slice(tail);
        }
        room > 0
    }
}

impl Iterator for Pieces {
    type Item = Rope;

    fn next(&mut self) -> Option<Rope> {
        let mut builder = RopeBuilder::default();
        builder.buffer().append(&mut self.head);
        while builder.len() < PIECE_BYTES {
            if !self.partial.middle.is_empty() {
                if !self.push_partial(&mut builder) {
                    break;
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
        let rope = builder.finish();
        self.remaining = self.remaining.saturating_sub(rope.remaining());
        rope.has_remaining().then_some(rope)
    }
}

/// Room for what stands before an item's own bytes: a separator, tags, lengths, and the kind of a metadata-only view.
const HEADS_BYTES_MAX: usize = 256;
