//! An object in one of its forms, cut from its stored bytes: all of it or its metadata, alone or as
//! a list item, with or without the fields of its managers, with its own resourceVersion or another
//! one.
//!
//! Nothing is decoded: a [`Layout`] has the positions of the parts, and
//! [`crate::managed_fields`] finds what a view drops.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::object::{Layout, Span};
use crate::protobuf::wire::{field_len, length_len, push_head};
use crate::protobuf::{UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head};
use crate::rope::RopeBuilder;
use weir_api::media_type::{Encoding, META_V1, PARTIAL_OBJECT_METADATA, View};
use weir_api::resource_version::ResourceVersion;

/// Bytes in four pieces: those before the object's own, the own before and after what is dropped,
/// and those after them.
#[derive(Clone, Debug)]
pub struct Splice<'a> {
    head: SmallVec<[u8; HEAD_BYTES]>,
    object_parts: [&'a [u8]; 2],
    tail: &'static [u8],
}

impl<'a> Splice<'a> {
    /// Returns an object in a view, in the form of GET and WATCH (in JSON without a newline).
    /// `dropped` is a part of its metadata that is left out; an empty one drops nothing.
    pub fn in_view(body: &'a [u8], layout: Layout, view: View, dropped: Span) -> Self {
        if dropped.length == 0 && !view.is_metadata() {
            return Self { head: SmallVec::new(), object_parts: [body, b""], tail: b"" };
        }
        let (whole, metadata) = (0..body.len(), layout.metadata.range());
        match (layout.encoding, view.is_metadata()) {
            (Encoding::Json, false) => Self {
                head: SmallVec::new(),
                object_parts: around(body, whole, dropped),
                tail: b"",
            },
            (Encoding::Protobuf, false) => {
                let length = kept_len(layout, dropped);
                let after = layout.item.end().saturating_sub(metadata.end);
                let envelope = body.get(..start_of_field(layout.item)).unwrap_or_default();
                let mut head = SmallVec::from_slice(envelope);
                push_head(&mut head, UNKNOWN_RAW_TAG, field_len(length) + after);
                push_head(&mut head, METADATA_TAG, length);
                let rest = layout.metadata.start as usize..body.len();
                Self { head, object_parts: around(body, rest, dropped), tail: b"" }
            }
            (Encoding::Json, true) => {
                let mut head = SmallVec::new();
                for part in [
                    r#"{"kind":""#,
                    PARTIAL_OBJECT_METADATA,
                    r#"","apiVersion":""#,
                    META_V1,
                    r#"","metadata":"#,
                ] {
                    head.extend_from_slice(part.as_bytes());
                }
                Self { head, object_parts: around(body, metadata, dropped), tail: b"}" }
            }
            (Encoding::Protobuf, true) => {
                let envelope = envelope_head(META_V1, PARTIAL_OBJECT_METADATA);
                let mut head = SmallVec::from_vec(envelope);
                let length = kept_len(layout, dropped);
                push_head(&mut head, UNKNOWN_RAW_TAG, field_len(length));
                push_head(&mut head, METADATA_TAG, length);
                Self { head, object_parts: around(body, metadata, dropped), tail: UNKNOWN_TAIL }
            }
        }
    }

    /// Returns an object in a view, in the form of a LIST. `dropped` is as in [`Self::in_view`].
    pub fn list_item(body: &'a [u8], layout: Layout, view: View, dropped: Span) -> Self {
        let item = layout.item.range();
        match (layout.encoding, view.is_metadata()) {
            (Encoding::Json, false) => {
                let head = if layout.item.start == 0 { &b""[..] } else { b"{" };
                Self { head: head.into(), object_parts: around(body, item, dropped), tail: b"" }
            }
            // The items of a metadata-only list are complete objects.
            (Encoding::Json, true) => Self::in_view(body, layout, view, dropped),
            (Encoding::Protobuf, false) if dropped.length == 0 => Self {
                head: SmallVec::new(),
                object_parts: [layout.item.slice(body), b""],
                tail: b"",
            },
            (Encoding::Protobuf, is_metadata) => {
                let metadata = layout.metadata.range();
                let end = if is_metadata { metadata.end } else { item.end };
                let mut head = SmallVec::new();
                push_head(&mut head, METADATA_TAG, kept_len(layout, dropped));
                Self { head, object_parts: around(body, metadata.start..end, dropped), tail: b"" }
            }
        }
    }

    /// Returns the bytes before the object's own.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the object's own bytes, before and after those that the view drops.
    pub fn object_parts(&self) -> [&'a [u8]; 2] {
        self.object_parts
    }

    /// Returns the bytes after the object's own.
    pub fn tail(&self) -> &'static [u8] {
        self.tail
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        let [before, after] = self.object_parts;
        self.head.len() + before.len() + after.len() + self.tail.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends its bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let [before, after] = self.object_parts;
        for part in [&self.head, before, after, self.tail] {
            out.extend_from_slice(part);
        }
    }

    /// Appends its bytes to a rope, which shares the object's own where they are long. `record` is
    /// what they were cut from.
    pub(crate) fn append_to(&self, record: &Arc<[u8]>, builder: &mut RopeBuilder) {
        let [before, after] = self.object_parts;
        builder.buffer().extend_from_slice(&self.head);
        builder.push_part(record, before);
        // Most views drop nothing.
        if !after.is_empty() {
            builder.push_part(record, after);
        }
        builder.buffer().extend_from_slice(self.tail);
    }

    /// Returns its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.write(&mut out);
        out
    }
}

/// Returns the length of the metadata without what is dropped.
fn kept_len(layout: Layout, dropped: Span) -> usize {
    layout.metadata.length.saturating_sub(dropped.length) as usize
}

/// Returns the bytes of `range` before and after `dropped`.
fn around(body: &[u8], range: Range<usize>, dropped: Span) -> [&[u8]; 2] {
    if dropped.length == 0 {
        return [body.get(range).unwrap_or_default(), b""];
    }
    let gap = dropped.range();
    [range.start..gap.start, gap.end..range.end].map(|part| body.get(part).unwrap_or_default())
}

/// Returns the offset of the tag of a field, given its value. Tag and length have the shortest
/// encoding.
fn start_of_field(value: Span) -> usize {
    (value.start as usize).saturating_sub(1 + length_len(value.length as usize))
}

/// Replaces the resourceVersion in an object, for the DELETED event of an object that left a
/// selector (`docs/semantics.md` §5.5) and for bookmarks. In protobuf the lengths of all fields
/// that contain it may change.
pub fn with_resource_version(
    body: &[u8],
    layout: Layout,
    resource_version: ResourceVersion,
) -> (Vec<u8>, Layout) {
    let digits = resource_version.to_string();
    match layout.encoding {
        Encoding::Json => replace_in_json(body, layout, digits.as_bytes()),
        Encoding::Protobuf => replace_in_protobuf(body, layout, digits.as_bytes()),
    }
}

fn replace_in_json(body: &[u8], layout: Layout, digits: &[u8]) -> (Vec<u8>, Layout) {
    let at = layout.resource_version;
    let new = replace(body, at, digits);
    let layout = Layout {
        resource_version: resize(at, at.length, digits.len()),
        metadata: resize(layout.metadata, at.length, digits.len()),
        item: resize(layout.item, at.length, digits.len()),
        ..layout
    };
    (new, layout)
}

fn replace_in_protobuf(body: &[u8], layout: Layout, digits: &[u8]) -> (Vec<u8>, Layout) {
    let (at, metadata) = (layout.resource_version, layout.metadata);
    // The length of at most 20 digits is the byte before them. It changes with them.
    let in_metadata = relative_to(at, metadata);
    let with_length =
        Span { start: in_metadata.start.saturating_sub(1), length: in_metadata.length + 1 };
    let length = u8::try_from(digits.len()).unwrap_or_default();
    let new_metadata = replace(metadata.slice(body), with_length, &[&[length], digits].concat());
    let (new, layout) = replace_metadata_in_protobuf(body, layout, &new_metadata);
    let start = layout.metadata.start as usize + in_metadata.start as usize;
    (new, Layout { resource_version: Span::new(start, digits.len()).unwrap_or_default(), ..layout })
}

/// Replaces the `ObjectMeta` of an object in protobuf.
pub(super) fn with_metadata(body: &[u8], layout: Layout, metadata: &[u8]) -> Vec<u8> {
    replace_metadata_in_protobuf(body, layout, metadata).0
}

/// The caller must set the position of the resourceVersion.
fn replace_metadata_in_protobuf(body: &[u8], layout: Layout, new: &[u8]) -> (Vec<u8>, Layout) {
    let (metadata, item) = (layout.metadata, layout.item);
    let (new_item, metadata_at) =
        replace_field(item.slice(body), relative_to(metadata, item), METADATA_TAG, new);
    let (new_body, item_at) = replace_field(body, item, UNKNOWN_RAW_TAG, &new_item);
    let span = |start: usize, length: usize| Span::new(start, length).unwrap_or_default();
    let layout = Layout {
        item: span(item_at, new_item.len()),
        metadata: span(item_at + metadata_at, new.len()),
        ..layout
    };
    (new_body, layout)
}

/// Replaces a field's value, and its tag and length, which must have the shortest encoding. Also
/// returns the offset of the new value.
fn replace_field(bytes: &[u8], value: Span, tag: u8, new: &[u8]) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(bytes.len() + new.len());
    out.extend_from_slice(bytes.get(..start_of_field(value)).unwrap_or_default());
    push_head(&mut out, tag, new.len());
    let at = out.len();
    out.extend_from_slice(new);
    out.extend_from_slice(bytes.get(value.end()..).unwrap_or_default());
    (out, at)
}

fn replace(bytes: &[u8], at: Span, new: &[u8]) -> Vec<u8> {
    let before = bytes.get(..at.start as usize).unwrap_or_default();
    let after = bytes.get(at.end()..).unwrap_or_default();
    [before, new, after].concat()
}

fn resize(span: Span, old: u32, new: usize) -> Span {
    let grown =
        (span.length - old.min(span.length)).saturating_add(u32::try_from(new).unwrap_or(0));
    Span { length: grown, ..span }
}

fn relative_to(inner: Span, outer: Span) -> Span {
    Span { start: inner.start.saturating_sub(outer.start), length: inner.length }
}

/// The tag of every object's `metadata`.
const METADATA_TAG: u8 = 0x0a;
/// The longest head, which is that of a metadata-only object in either encoding.
const HEAD_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::json::tests::{POD, pods, widgets};

    #[test]
    fn metadata_in_json_is_a_splice() {
        let pod = json::object(POD.as_bytes(), &pods()).unwrap();
        let (before, _) = POD.split_once(r#","spec""#).unwrap();
        let (_, metadata) = before.split_once(r#""metadata":"#).unwrap();
        let expected = format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#
        );
        assert_eq!(pod.in_view(View::Metadata).to_vec(), expected.as_bytes());
        assert_eq!(pod.list_item(View::Metadata).to_vec(), expected.as_bytes());
    }

    #[test]
    fn a_custom_resources_metadata_keeps_its_bytes() {
        let text = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w","namespace":"n","resourceVersion":"5"}}"#;
        let widget = json::partial_object(text.as_bytes(), &widgets()).unwrap();
        assert_eq!(widget.in_view(View::Metadata).to_vec(), text.as_bytes());
        let full = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","resourceVersion":"5"}}"#;
        assert!(json::partial_object(full.as_bytes(), &widgets()).is_err());
    }

    #[test]
    fn json_with_a_longer_number_keeps_its_layout() {
        let pod = json::object(POD.as_bytes(), &pods()).unwrap();
        let (body, layout) = with_resource_version(pod.body(), pod.layout, ResourceVersion(10_000));
        let read = json::object(&body, &pods()).unwrap();
        assert_eq!(read.resource_version, ResourceVersion(10_000));
        assert_eq!(layout, read.layout);
    }
}
