//! The format of a list's items.

use bytes::Bytes;

use crate::object::Object;
use crate::protobuf::wire::{field_len, push_head};
use crate::rope::{PIECE_BYTES, RopeBuilder, share};
use weir_api::media_type::{Encoding, View};

/// The encoding and the view in which a list writes its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemFormat {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
}

impl ItemFormat {
    /// Returns the bytes between two items.
    pub(crate) fn separator(self) -> &'static [u8] {
        match self.encoding {
            Encoding::Json => b",",
            Encoding::Protobuf => b"",
        }
    }

    /// Returns the length of an item without separators.
    pub(crate) fn len(self, object: &Object) -> usize {
        let length = object.list_item(self.view).len();
        match self.encoding {
            Encoding::Json => length,
            Encoding::Protobuf => field_len(length),
        }
    }

    fn push_head(self, length: usize, out: &mut Vec<u8>) {
        if self.encoding == Encoding::Protobuf {
            push_head(out, ITEMS_TAG, length);
        }
    }

    /// Appends an item.
    pub(crate) fn write(self, object: &Object, out: &mut Vec<u8>) {
        let item = object.list_item(self.view);
        self.push_head(item.len(), out);
        item.write(out);
    }

    /// Appends an item, or only its beginning if `is_cut`. Returns the rest.
    pub(super) fn append_to(
        self,
        object: &Object,
        is_cut: bool,
        builder: &mut RopeBuilder,
    ) -> Option<PartialItem> {
        let item = object.list_item(self.view);
        self.push_head(item.len(), builder.buffer());
        if !is_cut {
            item.append_to(object.record(), builder);
            return None;
        }
        builder.buffer().extend_from_slice(item.head());
        let bytes = item.object_parts().map(|part| share(object.record(), part));
        Some(PartialItem { object_parts: bytes, tail: item.tail() })
    }
}

/// The rest of an item that does not fit into one piece.
#[derive(Clone, Debug)]
pub(super) struct PartialItem {
    object_parts: [Bytes; 2],
    tail: &'static [u8],
}

impl PartialItem {
    /// Whether nothing is left: the item is complete.
    pub(super) fn is_empty(&self) -> bool {
        self.object_parts.iter().all(Bytes::is_empty)
    }

    /// Appends as much as fits into a piece of [`PIECE_BYTES`]. Returns whether there was room.
    /// The bytes are copied: a shared part would keep the whole object alive.
    pub(super) fn append_to(&mut self, builder: &mut RopeBuilder) -> bool {
        // The tail goes into the same piece as the last part.
        let room = PIECE_BYTES.saturating_sub(builder.len() + self.tail.len());
        let mut left = room;
        for chunk in &mut self.object_parts {
            let part = chunk.split_to(left.min(chunk.len()));
            left -= part.len();
            builder.buffer().extend_from_slice(&part);
        }
        if self.is_empty() {
            builder.buffer().extend_from_slice(self.tail);
        }
        room > 0
    }
}

/// The tag of a list's `items`.
const ITEMS_TAG: u8 = 0x12;
