//! Kubernetes' protobuf, by one table of fields for both directions (`docs/semantics.md` §5.3). The
//! same table gives the JSON of built-in kinds its shape. A kind without a table is not offered in
//! protobuf.

mod core;
mod decode;
mod encode;
mod groups;
mod meta;
mod schema;
mod typed;
mod wire;

use serde_json::{Map, Value};

pub(super) use self::encode::UnknownField;
pub(super) use self::typed::shape;
use self::wire::{fields, put_bytes};

/// The four bytes before every envelope.
const MAGIC: &[u8] = b"k8s\0";

/// Returns whether a kind of this name has a table.
pub(super) fn knows(kind: &str) -> bool {
    schema::message(kind).is_some()
}

/// Encodes the message of an object, without its envelope. It ignores `kind` and `apiVersion` of
/// the JSON.
pub(super) fn message(kind: &str, object: &Value) -> Result<Vec<u8>, UnknownField> {
    let mut out = Vec::new();
    encode::encode_message(&mut out, kind, object)?;
    Ok(out)
}

/// Encodes the message of a list from its metadata and the messages of its items.
pub(super) fn list<'a>(
    metadata: &Value,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, UnknownField> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, &message("ListMeta", metadata)?);
    items.for_each(|item| put_bytes(&mut out, 2, item));
    Ok(out)
}

/// Encodes the message of a `PartialObjectMetadataList` of `meta.k8s.io/v1beta1`, the only list
/// whose items come first.
pub(super) fn partial_list_beta<'a>(
    metadata: &Value,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, UnknownField> {
    let mut out = Vec::new();
    items.for_each(|item| put_bytes(&mut out, 1, item));
    put_bytes(&mut out, 2, &message("ListMeta", metadata)?);
    Ok(out)
}

/// Encodes an envelope: a body, or the object of a watch event.
pub(super) fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(message.len() + 64);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, message);
    // contentEncoding and contentType: always empty, always present.
    put_bytes(&mut out, 3, &[]);
    put_bytes(&mut out, 4, &[]);
    out
}

/// Encodes a watch event around an envelope, without the length that precedes it in a stream.
pub(super) fn watch_event(event: &str, envelope: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(envelope.len() + 8);
    put_bytes(&mut raw, 1, envelope);
    let mut out = Vec::with_capacity(raw.len() + 24);
    put_bytes(&mut out, 1, event.as_bytes());
    put_bytes(&mut out, 2, &raw);
    out
}

/// Decodes a body in Kubernetes' envelope; `None` if it has none, or if its kind has no table.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    let (api_version, kind, message) = open(body)?;
    let mut object = decode::decode_message(&kind, message)?;
    let mut whole = Map::new();
    whole.insert("kind".to_owned(), kind.into());
    whole.insert("apiVersion".to_owned(), api_version.into());
    whole.append(&mut object);
    Some(Value::Object(whole))
}

/// Returns the apiVersion, the kind and the message of an envelope.
fn open(body: &[u8]) -> Option<(String, String, &[u8])> {
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let get =
        |number| envelope.iter().find(|field| field.number == number).map(|field| field.bytes);
    let type_meta = fields(get(1)?)?;
    let word = |number| {
        let field = type_meta.iter().find(|field| field.number == number)?;
        std::str::from_utf8(field.bytes).ok().map(str::to_owned)
    };
    Some((word(1)?, word(2)?, get(2)?))
}
