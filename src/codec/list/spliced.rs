//! A list of references to objects, whose bytes are created when they are read.
//!
//! While a list waits for a client, it holds references to the objects and the few bytes around
//! them, not a copy. A piece is spliced when the connection has room for it, and shares the
//! objects' own bytes. So the same list for many clients is in memory once, and a slow client keeps
//! alive only the objects of its list that were replaced meanwhile. That is at most the size of a
//! copy; for pieces that were returned already, [`crate::rope`] keeps the same bound.

use std::sync::Arc;

use bytes::Buf;

use super::item_format::ItemFormat;
use super::pieces::Pieces;
use crate::object::Object;
use crate::rope::Rope;

/// An encoded list: the bytes before and after its items, and references to its objects.
#[derive(Clone, Debug)]
pub struct SplicedList {
    pub(crate) format: ItemFormat,
    pub(crate) head: Vec<u8>,
    objects: Vec<Arc<Object>>,
    pub(crate) tail: Vec<u8>,
    length: usize,
}

impl SplicedList {
    /// Creates a list. `items_bytes` is the length of all items without separators.
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

    /// Returns its length in bytes, which is never zero.
    #[expect(clippy::len_without_is_empty, reason = "there is always an envelope")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the objects that are its items.
    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// Returns all bytes in one vector.
    pub fn concat(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length);
        for mut piece in self {
            while piece.has_remaining() {
                bytes.extend_from_slice(piece.chunk());
                piece.advance(piece.chunk().len());
            }
        }
        bytes
    }
}

impl IntoIterator for SplicedList {
    type Item = Rope;
    type IntoIter = Pieces;

    fn into_iter(self) -> Pieces {
        let Self { format, head, objects, tail, length } = self;
        Pieces::new(format, head, objects, tail, length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::json::tests::config_maps;
    use crate::list::tests::config_map;
    use crate::list::{ListMeta, encode};
    use crate::rope::{PIECE_BYTES, SHARED_BYTES_MIN};
    use weir_api::media_type::{Encoding, Form, View};
    use weir_api::resource_version::ResourceVersion;

    /// Mostly some KB, some tiny, some larger than a piece.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![0..200_usize, 1_000..6_000_usize, 30_000..70_000_usize, 130_000..300_000_usize]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_pieces_of_a_list_are_small_and_join_to_the_plain_list(
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
                // h2 reads one frame at a time, whatever the size of its frames.
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
            let body = object.body().as_ptr_range();
            assert!(slices[..count].iter().any(|slice| body.contains(&slice.as_ptr())));
        }
    }
}
