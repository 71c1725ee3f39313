//! The positions of the parts of an object's bytes.

use std::ops::Range;

use weir_api::media_type::Encoding;

/// The positions of the parts of an object's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The encoding of the bytes.
    pub encoding: Encoding,
    /// The part that a list item contains. In JSON the rest after
    /// `{"kind":"Pod","apiVersion":"v1",`, to be preceded by `{`, or all of a custom resource; in
    /// protobuf the object within its envelope.
    pub item: Span,
    /// The value of `metadata`: an object in JSON, an `ObjectMeta` in protobuf.
    pub metadata: Span,
    /// The digits of `metadata.resourceVersion`.
    pub resource_version: Span,
}

/// A part of an object's bytes. Objects are far smaller than 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The offset of its first byte.
    pub start: u32,
    /// Its length in bytes.
    pub length: u32,
}

impl Span {
    /// Creates a span; `None` if a number is too large.
    pub fn new(start: usize, length: usize) -> Option<Self> {
        Some(Self { start: u32::try_from(start).ok()?, length: u32::try_from(length).ok()? })
    }

    /// Returns this part of `bytes`; empty if it is out of range.
    pub fn slice(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end()).unwrap_or_default()
    }

    /// Returns the offsets of its bytes.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end()
    }

    /// Returns the offset after its last byte.
    pub fn end(self) -> usize {
        self.start as usize + self.length as usize
    }
}
