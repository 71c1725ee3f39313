//! Where the parts of an object's bytes are.

use crate::api::media_type::Encoding;

/// Where the parts of an object's bytes stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What the bytes are.
    pub encoding: Encoding,
    /// What a list item is made of. In JSON the rest after `{"kind":"Pod","apiVersion":"v1",`, to be led by `{`, or all of a custom
    /// resource; in protobuf the object within its envelope.
    pub item: Span,
    /// The value of `metadata`: an object in JSON, an `ObjectMeta` in protobuf.
    pub metadata: Span,
    /// The digits of `metadata.resourceVersion`.
    pub resource_version: Span,
}

/// A part of an object's bytes. Neither number is above 4 GiB, which no object comes near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub start: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

impl Span {
    /// `None` if a number is too large.
    pub fn new(start: usize, length: usize) -> Option<Self> {
        Some(Self { start: u32::try_from(start).ok()?, length: u32::try_from(length).ok()? })
    }

    /// The part of these bytes; empty if it is none.
    pub fn slice(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end()).unwrap_or_default()
    }

    /// Where it ends.
    pub fn end(self) -> usize {
        self.start as usize + self.length as usize
    }
}
