//! Lists spliced together for a client.

use std::sync::Arc;

use bytes::Bytes;

use super::{CHUNK_BYTES, ListMeta};
use crate::api::media_type::{Encoding, Form, MetaVersion, PARTIAL_OBJECT_METADATA_LIST, View};
use crate::api::resource::{ApiResource, Shape};
use crate::codec::object::Object;
use crate::codec::protobuf::wire::{field_len, push_head};
use crate::codec::protobuf::{self, UNKNOWN_RAW_TAG, UNKNOWN_TAIL};
use crate::codec::splice::Splice;

/// Splices a list, in JSON compact and with its trailing newline, exactly as the upstream writes it for the resource's shape
/// (semantics.md §3.6, §5.3), gathered into chunks of about [`CHUNK_BYTES`].
pub fn encode(
    resource: &ApiResource,
    form: Form,
    meta: &ListMeta,
    objects: &[Arc<Object>],
) -> Vec<Bytes> {
    match form.encoding {
        Encoding::Json => encode_json(resource, form.view, meta, objects),
        Encoding::Protobuf => encode_protobuf(resource, form.view, meta, objects),
    }
}

fn encode_json(
    resource: &ApiResource,
    view: View,
    meta: &ListMeta,
    objects: &[Arc<Object>],
) -> Vec<Bytes> {
    let (head, tail) = envelope(resource, view, meta, objects.is_empty());
    let total: usize = objects.iter().map(|object| object.body.len() + 1).sum();
    let mut chunks = Chunks::new(head.len() + total + tail.len());
    chunks.current.extend_from_slice(head.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        let item = object.list_item(view);
        chunks.make_room(item.len() + 2);
        if index > 0 {
            chunks.current.push(b',');
        }
        item.write(&mut chunks.current);
    }
    chunks.current.extend_from_slice(tail.as_bytes());
    chunks.finish()
}

fn encode_protobuf(
    resource: &ApiResource,
    view: View,
    meta: &ListMeta,
    objects: &[Arc<Object>],
) -> Vec<Bytes> {
    let head = match view {
        View::Full => protobuf::envelope_head(&resource.gvr.api_version(), &resource.list_kind),
        View::Metadata(version) => {
            protobuf::envelope_head(version.api_version(), PARTIAL_OBJECT_METADATA_LIST)
        }
    };
    // One kind of list numbers its fields the other way round.
    let items_first = view == View::Metadata(MetaVersion::V1Beta1);
    let (meta_tag, items_tag) =
        if items_first { (ITEMS_TAG, LIST_META_TAG) } else { (LIST_META_TAG, ITEMS_TAG) };
    let meta = protobuf::encode_list_meta(meta);
    // The length of all comes before the first.
    let items: Vec<Splice<'_>> = objects.iter().map(|object| object.list_item(view)).collect();
    let raw = field_len(meta.len()) + items.iter().map(|item| field_len(item.len())).sum::<usize>();
    let mut chunks = Chunks::new(head.len() + field_len(raw) + UNKNOWN_TAIL.len());
    chunks.current.extend_from_slice(&head);
    push_head(&mut chunks.current, UNKNOWN_RAW_TAG, raw);
    let push_meta = |chunk: &mut Vec<u8>| {
        push_head(chunk, meta_tag, meta.len());
        chunk.extend_from_slice(&meta);
    };
    if !items_first {
        push_meta(&mut chunks.current);
    }
    for item in &items {
        chunks.make_room(field_len(item.len()));
        push_head(&mut chunks.current, items_tag, item.len());
        item.write(&mut chunks.current);
    }
    if items_first {
        push_meta(&mut chunks.current);
    }
    chunks.current.extend_from_slice(UNKNOWN_TAIL);
    chunks.finish()
}

/// What a list is gathered in.
struct Chunks {
    full: Vec<Bytes>,
    current: Vec<u8>,
}

impl Chunks {
    /// For about so many bytes in all.
    fn new(total: usize) -> Self {
        let full = Vec::with_capacity(total / CHUNK_BYTES + 1);
        Self { full, current: Vec::with_capacity(total.min(CHUNK_BYTES * 2)) }
    }

    /// Before so many bytes more.
    fn make_room(&mut self, bytes: usize) {
        if self.current.len() >= CHUNK_BYTES {
            self.full.push(Bytes::from(std::mem::take(&mut self.current)));
            self.current.reserve(CHUNK_BYTES + bytes);
        }
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.full.push(Bytes::from(self.current));
        self.full
    }
}

/// What stands before the first object and after the last.
fn envelope(
    resource: &ApiResource,
    view: View,
    meta: &ListMeta,
    is_empty: bool,
) -> (String, String) {
    let api_version = resource.gvr.api_version();
    let list_kind = &resource.list_kind;
    match (view, resource.shape) {
        // A typed nil slice, unlike the objects' own lists.
        (View::Metadata(version), _) if is_empty => {
            let head = typed_head(PARTIAL_OBJECT_METADATA_LIST, version.api_version(), meta);
            (head + "null", "}\n".to_owned())
        }
        (View::Metadata(version), _) => {
            let head = typed_head(PARTIAL_OBJECT_METADATA_LIST, version.api_version(), meta);
            (head + "[", "]}\n".to_owned())
        }
        (View::Full, Shape::BuiltIn) => {
            (typed_head(list_kind, &api_version, meta) + "[", "]}\n".to_owned())
        }
        (View::Full, Shape::Custom) => {
            let ListMeta { resource_version, continue_token, .. } = meta;
            let remaining = remaining(meta);
            (
                format!(r#"{{"apiVersion":"{api_version}","items":["#),
                format!(
                    r#"],"kind":"{list_kind}","metadata":{{"continue":"{continue_token}"{remaining},"resourceVersion":"{resource_version}"}}}}{}"#,
                    '\n'
                ),
            )
        }
    }
}

/// Up to the value of `items`.
fn typed_head(list_kind: &str, api_version: &str, meta: &ListMeta) -> String {
    // A token is base64url: nothing in it needs an escape.
    let ListMeta { resource_version, continue_token, .. } = meta;
    let token = if continue_token.is_empty() {
        String::new()
    } else {
        format!(r#","continue":"{continue_token}""#)
    };
    let remaining = remaining(meta);
    format!(
        r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{resource_version}"{token}{remaining}}},"items":"#
    )
}

fn remaining(meta: &ListMeta) -> String {
    meta.remaining_item_count
        .map_or_else(String::new, |count| format!(r#","remainingItemCount":{count}"#))
}

/// The fields' tags: of a string, bytes or message.
const LIST_META_TAG: u8 = 0x0a;
const ITEMS_TAG: u8 = 0x12;
