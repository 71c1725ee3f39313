//! One page of a list, or one object, in the forms that clients ask for: JSON, metadata alone,
//! protobuf.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::protobuf::{Field, bytes_of, fields, text_of, unwrapped};
use crate::caller::Answer;
use crate::resources::Resource;
use crate::write_log::Version;

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Json,
    /// `PartialObjectMetadataList` in JSON.
    Metadata,
    /// Its objects are compared by key, uid and resourceVersion.
    Protobuf,
}

/// A page, as it was answered.
pub(super) struct Page {
    /// Its kind and version.
    pub(super) kind: (String, String),
    pub(super) revision: u64,
    pub(super) token: String,
    pub(super) remaining: Option<usize>,
    pub(super) items: Vec<Item>,
}

pub(super) enum Item {
    Json(Vec<u8>),
    Metadata(Value),
    Protobuf { key: String, uid: String, revision: u64 },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListBody<'a> {
    kind: String,
    api_version: String,
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
    /// Draws a form that a resource has.
    pub(crate) fn draw(rng: &mut fastrand::Rng, resource: &Resource) -> Self {
        match rng.u8(..6) {
            0 => Self::Metadata,
            1 if resource.has_protobuf() => Self::Protobuf,
            _ => Self::Json,
        }
    }

    /// Returns the `Accept` header that asks for a list.
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the `Accept` header that asks for an object, or for a watch.
    pub(crate) fn accept_one(self) -> &'static str {
        match self {
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            _ => self.accept(),
        }
    }

    /// Returns the `Content-Type` of an answer.
    fn content_type(self, is_watch: bool) -> &'static str {
        match self {
            Self::Protobuf if is_watch => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Json | Self::Metadata => "application/json",
        }
    }

    /// Returns what is wrong with the `Content-Type` of an answer.
    pub(super) fn type_problem(self, content_type: &str, is_watch: bool) -> Option<String> {
        let wanted = self.content_type(is_watch);
        (content_type != wanted)
            .then(|| format!("the Content-Type is {content_type}, and not {wanted}"))
    }

    /// Returns what is wrong with the type of a page.
    pub(super) fn page_problem(
        self,
        resource: &Resource,
        page: &Page,
        answer: &Answer,
    ) -> Option<String> {
        let (kind, version) = resource.kind(self == Self::Metadata, true);
        let (shown_kind, shown_version) = &page.kind;
        if *shown_kind != kind || shown_version != version {
            return Some(format!("it is a {shown_kind} of {shown_version}"));
        }
        let content_type = answer.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.type_problem(content_type, false)
    }

    /// Reads one object, which is not in JSON; `None` if it is none of this form.
    pub(super) fn read_one(self, resource: &Resource, body: &[u8]) -> Option<Item> {
        let wanted = resource.kind(self == Self::Metadata, false);
        let is_wanted = |kind: &str, version: &str| wanted == (kind.to_owned(), version);
        if self == Self::Protobuf {
            let (kind, version, object) = unwrapped(body)?;
            return protobuf_item(object).filter(|_| is_wanted(&kind, &version));
        }
        let mut object: Value = serde_json::from_slice(body).ok()?;
        let word = |name: &str| object[name].as_str().unwrap_or_default();
        let is_whole = object.as_object()?.len() > 3;
        if is_whole || !is_wanted(word("kind"), word("apiVersion")) {
            return None;
        }
        Some(Item::Metadata(object.get_mut("metadata")?.take()))
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
            kind: (list.kind, list.api_version),
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
            Self::Json(item) => {
                let wanted = resource.item(&version.json);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let is_same = *item == wanted;
                (!is_same).then(|| format!("an item is {}, and not {}", text(item), text(&wanted)))
            }
            Self::Metadata(item) => {
                let wanted: Value = serde_json::from_slice(&version.json).unwrap_or_default();
                let is_same = wanted["metadata"] == *item;
                (!is_same).then(|| format!("metadata is {item}, and not {}", wanted["metadata"]))
            }
            Self::Protobuf { key, uid, revision } => {
                let is_same =
                    **key == *version.key && *revision == version.revision && *uid == *version.uid;
                let (wanted, at) = (&version.key, version.revision);
                (!is_same).then(|| format!("an item is {key} of {revision}, not {wanted} of {at}"))
            }
        }
    }
}

fn protobuf_page(body: &[u8]) -> Option<Page> {
    let (kind, version, list) = unwrapped(body)?;
    let metadata = bytes_of(list, 1)?;
    let item = |field: (u64, Field<'_>)| match field {
        (2, Field::Bytes(item)) => Some(protobuf_item(item)),
        _ => None,
    };
    Some(Page {
        kind: (kind, version),
        revision: text_of(metadata, 2)?.parse().ok()?,
        token: text_of(metadata, 3).unwrap_or_default(),
        remaining: fields(metadata).find_map(|field| match field {
            (4, Field::Number(count)) => usize::try_from(count).ok(),
            _ => None,
        }),
        items: fields(list).filter_map(item).collect::<Option<_>>()?,
    })
}

pub(super) fn protobuf_item(item: &[u8]) -> Option<Item> {
    let metadata = bytes_of(item, 1)?;
    let key = format!("{}/{}", text_of(metadata, 3)?, text_of(metadata, 1)?);
    let uid = text_of(metadata, 5).unwrap_or_default();
    Some(Item::Protobuf { key, uid, revision: text_of(metadata, 6)?.parse().ok()? })
}
