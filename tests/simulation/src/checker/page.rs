//! One page of a list, in the forms that clients ask for: JSON, metadata alone, protobuf.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::resources::Resource;
use crate::write_log::Version;

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Json,
    /// `PartialObjectMetadataList` in JSON.
    Metadata,
    /// Its objects are compared by key and resourceVersion.
    Protobuf,
}

/// A page, as it was answered.
pub(super) struct Page {
    pub(super) revision: u64,
    pub(super) token: String,
    pub(super) remaining: Option<usize>,
    pub(super) items: Vec<Item>,
}

pub(super) enum Item {
    Json(Vec<u8>),
    Metadata(Value),
    Protobuf { key: String, revision: u64 },
}

#[derive(Deserialize)]
struct ListBody<'a> {
    metadata: ListMetadata,
    /// `null` in an empty list of metadata.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: String,
    remaining_item_count: Option<usize>,
}

impl Form {
    /// Returns the `Accept` header that asks for it.
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Reads a page; `None` if it is none.
    pub(super) fn read(self, body: &[u8]) -> Option<Page> {
        if self == Self::Protobuf {
            return protobuf_page(body);
        }
        let list: ListBody<'_> = serde_json::from_slice(body).ok()?;
        let item = |item: &&RawValue| match self {
            Self::Metadata => {
                let mut item: Value = serde_json::from_str(item.get()).ok()?;
                Some(Item::Metadata(item.get_mut("metadata")?.take()))
            }
            _ => Some(Item::Json(item.get().as_bytes().to_vec())),
        };
        Some(Page {
            revision: list.metadata.resource_version.parse().ok()?,
            token: list.metadata.token,
            remaining: list.metadata.remaining_item_count,
            items: list.items.iter().flatten().map(item).collect::<Option<_>>()?,
        })
    }
}

impl Item {
    /// Returns what is wrong with the item, if it is this version of an object.
    pub(super) fn problem(&self, resource: &Resource, version: &Version) -> Option<String> {
        match self {
            Self::Json(shown) => {
                let wanted = resource.item(&version.json);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let is_same = *shown == wanted;
                (!is_same).then(|| format!("an item is {}, and not {}", text(shown), text(&wanted)))
            }
            Self::Metadata(shown) => {
                let wanted: Value = serde_json::from_slice(&version.json).unwrap_or_default();
                let is_same = wanted["metadata"] == *shown;
                (!is_same).then(|| format!("metadata is {shown}, and not {}", wanted["metadata"]))
            }
            Self::Protobuf { key, revision } => {
                let is_same = **key == *version.key && *revision == version.revision;
                let (wanted, at) = (&version.key, version.revision);
                (!is_same).then(|| format!("an item is {key} of {revision}, not {wanted} of {at}"))
            }
        }
    }
}

fn protobuf_page(body: &[u8]) -> Option<Page> {
    let list = bytes_of(body.strip_prefix(b"k8s\0")?, 2)?;
    let metadata = bytes_of(list, 1)?;
    let item = |field: (u64, Field<'_>)| match field {
        (2, Field::Bytes(item)) => Some(protobuf_item(item)),
        _ => None,
    };
    Some(Page {
        revision: text_of(metadata, 2)?.parse().ok()?,
        token: text_of(metadata, 3).unwrap_or_default(),
        remaining: fields(metadata).find_map(|field| match field {
            (4, Field::Number(count)) => usize::try_from(count).ok(),
            _ => None,
        }),
        items: fields(list).filter_map(item).collect::<Option<_>>()?,
    })
}

fn protobuf_item(item: &[u8]) -> Option<Item> {
    let metadata = bytes_of(item, 1)?;
    let key = format!("{}/{}", text_of(metadata, 3)?, text_of(metadata, 1)?);
    Some(Item::Protobuf { key, revision: text_of(metadata, 6)?.parse().ok()? })
}

/// A field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message with their numbers, up to the first one that cannot be read.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = number(&mut message)?;
        let value = number(&mut message)?;
        match tag & 7 {
            0 => Some((tag >> 3, Field::Number(value))),
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                message = rest;
                Some((tag >> 3, Field::Bytes(bytes)))
            }
            _ => None,
        }
    })
}

fn bytes_of(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|field| match field {
        (number, Field::Bytes(bytes)) if number == wanted => Some(bytes),
        _ => None,
    })
}

fn text_of(message: &[u8], wanted: u64) -> Option<String> {
    String::from_utf8(bytes_of(message, wanted)?.to_vec()).ok()
}

/// Reads a number of variable length.
fn number(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
