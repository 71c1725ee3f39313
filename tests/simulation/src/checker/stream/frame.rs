//! The frames of a watch, in the form that its client asked for.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::checker::page::{Form, Item, protobuf_item};
use crate::checker::protobuf::{Field, bytes_of, fields, number_of, text_of, unwrapped};
use crate::resources::Resource;
use crate::write_log::Version;

/// The content of a frame of a watch.
#[derive(Debug, PartialEq)]
pub(crate) enum Notice {
    /// An object was added or changed. Only JSON has its bytes.
    Put { key: String, uid: String, bytes: Box<[u8]>, revision: u64 },
    /// An object is gone, or left the selection.
    Deleted { key: String, uid: String, revision: u64 },
    /// Everything up to this resourceVersion was sent; `true` ends the initial state.
    Bookmark(u64, bool),
    /// An ERROR event, with its code.
    Error(u64),
}

/// A frame.
pub(super) struct Frame {
    pub(super) r#type: String,
    pub(super) object: ShownObject,
    pub(super) notice: Notice,
}

/// The object of a frame.
pub(super) enum ShownObject {
    Json(Box<[u8]>),
    /// The object in another form, to be compared as an item of a list.
    Item(Item),
    /// The object of a bookmark or an error.
    Other,
}

#[derive(Deserialize)]
struct JsonFrame<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The parts that every frame with an object has, in each form.
struct Head {
    kind: (String, String),
    key: Option<String>,
    uid: String,
    revision: u64,
    ends_state: bool,
}

/// Reads a frame; `None` if it is none of this form.
pub(super) fn read(form: Form, resource: &Resource, bytes: &[u8]) -> Option<Frame> {
    match form {
        Form::Protobuf => protobuf(resource, bytes),
        form => json(form, resource, bytes),
    }
}

fn json(form: Form, resource: &Resource, line: &[u8]) -> Option<Frame> {
    let JsonFrame { r#type, object } = serde_json::from_slice(line).ok()?;
    let mut value: Value = serde_json::from_str(object.get()).ok()?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if r#type == "ERROR" {
        let is_status = text("/kind")? == "Status" && text("/apiVersion")? == "v1";
        let (code, reason) = (value["code"].as_u64(), text("/reason"));
        return error(code.filter(|_| is_status)?, &reason.unwrap_or_default());
    }
    let name = text("/metadata/name");
    let key = name.and_then(|name| Some(format!("{}/{name}", text("/metadata/namespace")?)));
    let end = value.pointer("/metadata/annotations/k8s.io~1initial-events-end");
    let head = Head {
        kind: (text("/kind")?, text("/apiVersion")?),
        key,
        uid: text("/metadata/uid").unwrap_or_default(),
        revision: text("/metadata/resourceVersion")?.parse().ok()?,
        ends_state: end.is_some(),
    };
    let is_metadata = form == Form::Metadata;
    if is_metadata && value.as_object()?.len() > 3 {
        return None;
    }
    let bytes: Box<[u8]> = object.get().as_bytes().into();
    let object = match is_metadata {
        true => ShownObject::Item(Item::Metadata(value.get_mut("metadata")?.take())),
        false => ShownObject::Json(bytes.clone()),
    };
    head.frame(&resource.kind(is_metadata, false), r#type, object, bytes)
}

/// Reads a `WatchEvent`, whose object is in an envelope in a `RawExtension`.
fn protobuf(resource: &Resource, message: &[u8]) -> Option<Frame> {
    let r#type = text_of(message, 1)?;
    let object = bytes_of(bytes_of(message, 2)?, 1)?;
    let (kind, version, object) = unwrapped(object)?;
    if r#type == "ERROR" {
        let is_status = kind == "Status" && version == "v1";
        let reason = text_of(object, 4).unwrap_or_default();
        return error(number_of(object, 6).filter(|_| is_status)?, &reason);
    }
    let metadata = bytes_of(object, 1)?;
    let text = |number| text_of(metadata, number).filter(|text| !text.is_empty());
    let annotations = fields(metadata).filter_map(|(number, field)| match field {
        Field::Bytes(pair) if number == 12 => text_of(pair, 1),
        _ => None,
    });
    let name = text(1);
    let head = Head {
        kind: (kind, version),
        key: name.and_then(|name| Some(format!("{}/{name}", text(3)?))),
        uid: text(5).unwrap_or_default(),
        revision: text(6)?.parse().ok()?,
        ends_state: annotations.into_iter().any(|key| key == "k8s.io/initial-events-end"),
    };
    let object = protobuf_item(object).map_or(ShownObject::Other, ShownObject::Item);
    head.frame(&resource.kind(false, false), r#type, object, Box::default())
}

/// client-go lists again after a 410 with one of two reasons.
fn error(code: u64, reason: &str) -> Option<Frame> {
    if code == 410 && !matches!(reason, "Expired" | "Gone") {
        return None;
    }
    Some(Frame {
        r#type: "ERROR".to_owned(),
        object: ShownObject::Other,
        notice: Notice::Error(code),
    })
}

impl Head {
    fn frame(
        self,
        (kind, version): &(String, &'static str),
        r#type: String,
        object: ShownObject,
        bytes: Box<[u8]>,
    ) -> Option<Frame> {
        let Self { kind: shown_kind, key, uid, revision, ends_state } = self;
        if shown_kind != (kind.clone(), (*version).to_owned()) {
            return None;
        }
        let notice = match r#type.as_str() {
            "BOOKMARK" => Notice::Bookmark(revision, ends_state),
            "DELETED" => Notice::Deleted { key: key?, uid, revision },
            "ADDED" | "MODIFIED" => Notice::Put { key: key?, uid, bytes, revision },
            _ => return None,
        };
        Some(Frame { r#type, object, notice })
    }
}

impl ShownObject {
    /// Whether it is an object at a revision, which may be that of a later event.
    pub(super) fn is(&self, resource: &Resource, version: &Version, revision: u64) -> bool {
        let at = || {
            let mut wanted: Value = serde_json::from_slice(&version.json).unwrap_or_default();
            wanted["metadata"]["resourceVersion"] = revision.to_string().into();
            wanted
        };
        match self {
            Self::Json(object) if revision == version.revision => **object == *version.json,
            Self::Json(object) => {
                serde_json::from_slice::<Value>(object).is_ok_and(|object| object == at())
            }
            Self::Item(Item::Metadata(object)) => at()["metadata"] == *object,
            Self::Item(item) => {
                let at = Version { revision, ..version.clone() };
                item.problem(resource, &at).is_none()
            }
            Self::Other => false,
        }
    }
}
