//! An object that a cache cannot hold: its name, its namespace, its labels or the fields that
//! selectors need cannot be read, or its bytes cannot be spliced
//! (`docs/decisions/unreadable-objects.md`).
//!
//! Such an object is rare and does not belong on a hot path. So this is a second, lenient pass over
//! bytes that the first one has refused. It says as much of the object as the cache needs to leave
//! it, and it alone, to the API server.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::protobuf::MAGIC;
use crate::protobuf::wire::Fields;
use weir_api::media_type::Encoding;
use weir_api::resource_version::ResourceVersion;

/// An object that cannot be read: its identity and resourceVersion, no data. So `Debug` shows it
/// all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableObject {
    /// Its namespace; empty if it has none, or an unknown one.
    pub namespace: Arc<str>,
    /// Its name, with U+FFFD for what is not UTF-8; empty if it is unknown. Other objects may have
    /// the same.
    pub name: Arc<str>,
    /// Its uid, which no other object has; never empty.
    pub uid: Arc<str>,
    /// Its `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
}

impl UnreadableObject {
    /// Returns its namespace and name, each empty if it is unknown.
    pub fn names(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// Describes an object, in the form of GET and WATCH or of a LIST. Returns `None` if its uid or
    /// resourceVersion cannot be read: its changes and its end could not be noticed.
    pub fn describe(bytes: &[u8], encoding: Encoding) -> Option<Self> {
        let metadata = match encoding {
            Encoding::Json => in_json(bytes),
            Encoding::Protobuf => in_protobuf(bytes),
        }?;
        let Metadata { name, namespace, uid, resource_version } = metadata;
        let text = |text: Option<String>| text.unwrap_or_default().into();
        Some(Self {
            namespace: text(namespace),
            name: text(name),
            uid: uid.filter(|uid| !uid.is_empty())?.into(),
            resource_version: ResourceVersion::parse(&resource_version?)?,
        })
    }
}

/// The members of `metadata` as far as they are text.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[serde(deserialize_with = "text")]
    name: Option<String>,
    #[serde(deserialize_with = "text")]
    namespace: Option<String>,
    #[serde(deserialize_with = "text")]
    uid: Option<String>,
    #[serde(deserialize_with = "text")]
    resource_version: Option<String>,
}

fn in_json(bytes: &[u8]) -> Option<Metadata> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text).ok().map(|Object { metadata }| metadata)
}

/// Reads a string, or nothing from any other value.
fn text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

/// A message may be in several parts, of which the last of each field counts.
fn in_protobuf(bytes: &[u8]) -> Option<Metadata> {
    let fields = |message| Fields::new(message).map_while(Result::ok);
    let raw = match bytes.strip_prefix(MAGIC) {
        Some(envelope) => {
            let raw = fields(envelope).filter(|field| field.number == UNKNOWN_RAW).last()?;
            raw.bytes().ok()?
        }
        None => bytes,
    };
    let mut read = Metadata::default();
    let parts = fields(raw).filter(|field| field.number == METADATA);
    for field in parts.filter_map(|part| part.bytes().ok()).flat_map(fields) {
        let member = match field.number {
            NAME => &mut read.name,
            NAMESPACE => &mut read.namespace,
            UID => &mut read.uid,
            RESOURCE_VERSION => &mut read.resource_version,
            _ => continue,
        };
        *member = field.bytes().ok().map(|text| String::from_utf8_lossy(text).into_owned());
    }
    Some(read)
}

/// The field `raw` of `Unknown`.
const UNKNOWN_RAW: u32 = 2;
/// The field `metadata` of every object.
const METADATA: u32 = 1;
/// Fields of `ObjectMeta`.
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &[u8]) -> Option<UnreadableObject> {
        UnreadableObject::describe(text, Encoding::Json)
    }

    #[test]
    fn what_is_text_is_read() {
        let read = json(
            b"{\"metadata\":{\"name\":\"r\xff\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"7\",\"labels\":{\"a\":1}},\"x\":\"\xfe\"}",
        );
        let read = read.unwrap();
        assert_eq!((&*read.name, &*read.namespace, &*read.uid), ("r\u{fffd}", "n", "u"));
        assert_eq!(read.resource_version, ResourceVersion(7));
        let odd = json(
            br#"{"metadata":{"name":7,"namespace":{},"labels":[],"uid":"u","resourceVersion":"8"}}"#,
        );
        let odd = odd.unwrap();
        assert_eq!((&*odd.name, &*odd.namespace, odd.resource_version.0), ("", "", 8));
    }

    #[test]
    fn an_object_without_identity_is_not_described() {
        for text in [
            r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}"#,
            r#"{"metadata":{"name":"a","namespace":"n","uid":"","resourceVersion":"7"}}"#,
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u"}}"#,
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"x"}}"#,
            r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}"#,
            r#"{"metadata":7}"#,
            "[]",
            "",
        ] {
            assert_eq!(json(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), envelope in any::<bool>()) {
            let bytes = if envelope { [MAGIC, &bytes].concat() } else { bytes };
            for encoding in [Encoding::Json, Encoding::Protobuf] {
                let _described = UnreadableObject::describe(&bytes, encoding);
            }
        }
    }
}
