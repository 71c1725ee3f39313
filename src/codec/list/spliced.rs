//! A list put together from what stands before its items, the items, and what stands after; and its bytes, made as they are taken.
//!
//! What waits for a client are references to the objects and the few bytes around them, no copy of the list; a piece is spliced when the
//! connection has room for it, and shares the objects' own bytes. So the same list for many clients is in memory once, and a client that takes
//! long holds on to no more than the objects that it was promised and that were replaced since. That is at most what a copy would
//! be, and [`crate::codec::rope`] keeps it so for what was handed out.

use std::sync::Arc;
use std::vec;

use bytes::{Buf, Bytes};

use crate::api::media_type::{Encoding, View};
use crate::codec::object::Object;
use crate::codec::protobuf::wire::{field_len, push_head};
use crate::codec::rope::{PIECE_BYTES, Rope, RopeBuilder};

/// How a list writes its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemFormat {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
}

impl ItemFormat {
    /// What stands between two items.
    pub(crate) fn separator(self) -> &'static [u8] {
        match self.encoding {
            Encoding::Json => b",",
            Encoding::Protobuf => b"",
        }
    }

    /// How long an item is, separators aside.
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

    /// Appends an item, or only its beginning if it is to be cut; what must follow is returned.
    fn append_to(self, object: &Object, is_cut: bool, builder: &mut RopeBuilder) -> PartialItem {
        let item = object.list_item(self.view);
        self.push_head(item.len(), builder.buffer());
        builder.buffer().extend_from_slice(item.head());
        if is_cut {
            return PartialItem { middle: object.body.slice_ref(item.middle()), tail: item.tail() };
        }
        builder.push_part(&object.body, item.middle());
        builder.buffer().extend_from_slice(item.tail());
        PartialItem::default()
    }
}

/// The rest of an item that does not go into one piece.
#[derive(Clone, Debug, Default)]
struct PartialItem {
    middle: Bytes,
    tail: &'static [u8],
}

/// A list; see the module.
#[derive(Clone, Debug)]
pub struct SplicedList {
    format: ItemFormat,
    head: Vec<u8>,
    objects: Vec<Arc<Object>>,
    tail: Vec<u8>,
    length: usize,
}

impl SplicedList {
    /// Of items whose lengths come to `items_bytes`, separators aside.
    pub(super) fn new(
        format: ItemFormat,
        head: Vec<u8>,
        objects: Vec<Arc<Object>>,
        items_bytes: usize,
        tail: Vec<u8>,
    ) -> Self {
        let separators = format.separator().len() * objects.len().saturating_sub(1);
        let length = head.len() + items_bytes + separators + tail.len();
        Self { format, head, objects, tail, length }
    }

    /// How many bytes it has. Never none.
    #[expect(clippy::len_without_is_empty, reason = "there is always an envelope")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// How its items are written.
    pub fn item_format(&self) -> ItemFormat {
        self.format
    }

    /// The objects that are its items.
    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// What stands before the first item.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What stands after the last item.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// All of it in one.
    pub fn concat(self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length);
        for mut piece in self {
            while piece.has_remaining() {
                all.extend_from_slice(piece.chunk());
                piece.advance(piece.chunk().len());
            }
        }
        all
    }
}

impl IntoIterator for SplicedList {
    type Item = Rope;
    type IntoIter = Pieces;

    fn into_iter(self) -> Pieces {
        let Self { format, head, objects, tail, length } = self;
        let objects = objects.into_iter();
        Pieces {
            format,
            head,
            objects,
            tail,
            partial: PartialItem::default(),
            needs_separator: false,
            remaining: length,
        }
    }
}

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

/// The tag of a list's `items`.
const ITEMS_TAG: u8 = 0x12;

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::api::media_type::Form;
    use crate::api::resource_version::ResourceVersion;
    use crate::codec::json::tests::config_maps;
    use crate::codec::list::tests::config_map;
    use crate::codec::list::{ListMeta, encode};
    use crate::codec::rope::SHARED_BYTES_MIN;

    /// Mostly of some KB, some tiny, some larger than a piece.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![0..200_usize, 1_000..6_000_usize, 30_000..70_000_usize, 130_000..300_000_usize]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_are_small_and_whole_together(
            sizes in vec(size(), 0..40),
            encoding in prop_oneof![Just(Encoding::Json), Just(Encoding::Protobuf)],
            view in prop_oneof![Just(View::Full), Just(View::Metadata)],
        ) {
            let objects: Vec<_> = (0..sizes.len())
                .zip(&sizes)
                .map(|(index, bytes)| config_map(encoding, index, &"x".repeat(*bytes)))
                .collect();
            let meta = ListMeta { resource_version: ResourceVersion(100), ..ListMeta::default() };
            let form = Form { encoding, view, pretty: false };
            let list = encode(&config_maps(), form, &meta, objects.clone());
            let format = list.format;
            let mut expected = list.head.clone();
            for (index, object) in objects.iter().enumerate() {
                let before = expected.len();
                format.write(object, &mut expected);
                prop_assert_eq!(expected.len() - before, format.len(object));
                if index + 1 < objects.len() {
                    expected.extend_from_slice(format.separator());
                }
            }
            expected.extend_from_slice(&list.tail);
            prop_assert_eq!(list.len(), expected.len());
            prop_assert_eq!(list.clone().concat(), &*expected);
            let mut left = list.into_iter();
            let mut length = 0;
            while let Some(mut piece) = left.next() {
                prop_assert!(piece.remaining() <= PIECE_BYTES);
                length += piece.remaining();
                prop_assert_eq!(left.len(), expected.len() - length);
                // However large its frames are, what h2 asks for at a time is one.
                while piece.has_remaining() {
                    let mut slices = [IoSlice::new(&[]); 16];
                    let count = piece.chunks_vectored(&mut slices);
                    let frame: usize = slices[..count].iter().map(|slice| slice.len()).sum();
                    prop_assert!(frame >= piece.remaining().min(FRAME_BYTES));
                    piece.advance(piece.remaining().min(FRAME_BYTES));
                }
            }
            prop_assert!(left.is_empty());
        }
    }

    const FRAME_BYTES: usize = 16 << 10;

    #[test]
    fn an_objects_bytes_are_shared() {
        let sizes = [SHARED_BYTES_MIN, 2 * SHARED_BYTES_MIN, PIECE_BYTES / 2];
        let objects: Vec<_> = (0..sizes.len())
            .map(|index| config_map(Encoding::Json, index, &"x".repeat(sizes[index])))
            .collect();
        let meta = ListMeta { resource_version: ResourceVersion(100), ..ListMeta::default() };
        let list = encode(&config_maps(), Form::JSON, &meta, objects.clone());
        let piece = list.into_iter().next().unwrap();
        let mut slices = [IoSlice::new(&[]); 16];
        let count = piece.chunks_vectored(&mut slices);
        for object in objects {
            let own = object.body.as_ptr_range();
            assert!(slices[..count].iter().any(|slice| own.contains(&slice.as_ptr())));
        }
    }
}
