//! Encodes lists for clients.

use std::sync::Arc;

use prost::Message;

use super::item_format::ItemFormat;
use super::page::ListMeta;
use super::spliced::SplicedList;
use crate::object::Object;
use crate::protobuf::wire::{field_len, push_head};
use crate::protobuf::{self, UNKNOWN_RAW_TAG, UNKNOWN_TAIL};
use weir_api::media_type::{Encoding, Form, META_V1, PARTIAL_OBJECT_METADATA_LIST, View};
use weir_api::resource::{ApiResource, Shape};

/// Encodes a list, in JSON compact and with its trailing newline, as the API server writes it for
/// the shape of the resource (`docs/semantics.md` §3.6, §5.3). The result creates its bytes when
/// they are read.
pub fn encode(
    resource: &ApiResource,
    form: Form,
    meta: &ListMeta,
    objects: Vec<Arc<Object>>,
) -> SplicedList {
    let format = ItemFormat { encoding: form.encoding, view: form.view };
    let items_bytes = objects.iter().map(|object| format.len(object)).sum();
    let (head, tail) = match form.encoding {
        Encoding::Json => {
            let (head, tail) = envelope(resource, form.view, meta, objects.is_empty());
            (head.into_bytes(), tail.into_bytes())
        }
        Encoding::Protobuf => protobuf_envelope(resource, format, meta, items_bytes),
    };
    SplicedList::new(format, head, objects, items_bytes, tail)
}

/// Returns the bytes before the first object, including the length of all objects, and after the
/// last.
fn protobuf_envelope(
    resource: &ApiResource,
    format: ItemFormat,
    meta: &ListMeta,
    items_bytes: usize,
) -> (Vec<u8>, Vec<u8>) {
    // A list of metadata does not show its shard selector, nor does one of custom resources, which
    // is not in protobuf (`docs/semantics.md` §7.4).
    let (mut head, shard) = if format.view.is_metadata() {
        (protobuf::envelope_head(META_V1, PARTIAL_OBJECT_METADATA_LIST), "")
    } else {
        let head = protobuf::envelope_head(&resource.gvr.api_version(), &resource.list_kind);
        (head, &*meta.shard_selector)
    };
    let meta = encode_meta(meta, shard);
    push_head(&mut head, UNKNOWN_RAW_TAG, field_len(meta.len()) + items_bytes);
    push_head(&mut head, LIST_META_TAG, meta.len());
    head.extend_from_slice(&meta);
    (head, UNKNOWN_TAIL.to_vec())
}

/// Encodes the metadata of a list as the API server does.
fn encode_meta(meta: &ListMeta, shard: &str) -> Vec<u8> {
    let message = protobuf::ListMeta {
        self_link: Some(String::new()),
        resource_version: Some(meta.resource_version.to_string()),
        continue_token: Some(meta.continue_token.clone()),
        remaining_item_count: meta
            .remaining_item_count
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
        shard_info: (!shard.is_empty())
            .then(|| protobuf::ShardInfo { selector: Some(shard.to_owned()) }),
    };
    message.encode_to_vec()
}

/// Returns the bytes before the first object and after the last.
fn envelope(
    resource: &ApiResource,
    view: View,
    meta: &ListMeta,
    is_empty: bool,
) -> (String, String) {
    let api_version = resource.gvr.api_version();
    let list_kind = &resource.list_kind;
    match (view.with_managed_fields(), resource.shape) {
        // The API server writes a typed nil slice here, unlike in lists of whole objects.
        (View::Metadata, _) if is_empty => {
            let head = typed_head(PARTIAL_OBJECT_METADATA_LIST, META_V1, meta, "");
            (head + "null", "}\n".to_owned())
        }
        (View::Metadata, _) => {
            let head = typed_head(PARTIAL_OBJECT_METADATA_LIST, META_V1, meta, "");
            (head + "[", "]}\n".to_owned())
        }
        (_, Shape::BuiltIn) => {
            let head = typed_head(list_kind, &api_version, meta, &meta.shard_selector);
            (head + "[", "]}\n".to_owned())
        }
        (_, Shape::Custom) => {
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

/// Returns the beginning of a typed list, up to the value of `items`.
fn typed_head(list_kind: &str, api_version: &str, meta: &ListMeta, shard: &str) -> String {
    // A token is base64url, so it needs no escapes, and a shard selector has none of their
    // characters.
    let ListMeta { resource_version, continue_token, .. } = meta;
    let token = if continue_token.is_empty() {
        String::new()
    } else {
        format!(r#","continue":"{continue_token}""#)
    };
    let remaining = remaining(meta);
    let shard = if shard.is_empty() {
        String::new()
    } else {
        format!(r#","shardInfo":{{"selector":"{shard}"}}"#)
    };
    format!(
        r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{resource_version}"{token}{remaining}{shard}}},"items":"#
    )
}

fn remaining(meta: &ListMeta) -> String {
    meta.remaining_item_count
        .map_or_else(String::new, |count| format!(r#","remainingItemCount":{count}"#))
}

/// The tag of a list's `metadata`.
const LIST_META_TAG: u8 = 0x0a;
