//! Reads the uid of an object from its metadata. The uid is not stored with the object, because
//! only a relist needs it, and only for objects that changed; and shard selectors, whose objects
//! keep its hash.

use std::borrow::Cow;

use serde::Deserialize;

use crate::protobuf::wire::Fields;
use weir_api::media_type::Encoding;

/// Returns the uid in the metadata of an object; `None` if it has none or if it cannot be read.
pub(crate) fn read(metadata: &[u8], encoding: Encoding) -> Option<Cow<'_, str>> {
    match encoding {
        Encoding::Json => serde_json::from_slice::<Metadata<'_>>(metadata).ok()?.uid,
        Encoding::Protobuf => in_protobuf(metadata).map(Cow::Borrowed),
    }
}

fn in_protobuf(metadata: &[u8]) -> Option<&str> {
    let mut uid = None;
    for field in Fields::new(metadata) {
        let field = field.ok()?;
        if field.number == UID {
            uid = Some(field.text().ok()?);
        }
    }
    uid
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
}

/// The protobuf field number of `ObjectMeta.uid`.
const UID: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::json::tests::config_maps;
    use weir_api::selector::shard::{self, ShardField};

    #[test]
    fn reads_the_uid_of_the_object_and_of_nothing_else() {
        let uid = |metadata: &str| {
            let text = format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"a","namespace":"n","resourceVersion":"1"{metadata}}},"uid":"x"}}"#
            );
            let object = json::object(text.as_bytes(), &config_maps()).unwrap();
            object.uid().map(Cow::into_owned)
        };
        assert_eq!(uid(r#","ownerReferences":[{"uid":"o"}],"uid":"u""#).as_deref(), Some("u"));
        assert_eq!(uid(""), None);
    }

    #[test]
    fn shard_selectors_hash_the_uid_or_the_namespace() {
        let text = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}"#;
        let object = json::object(text, &config_maps()).unwrap();
        for _ in 0..2 {
            assert_eq!(object.shard_hash(ShardField::Uid), shard::hash(b"u"));
            assert_eq!(object.shard_hash(ShardField::Namespace), shard::hash(b"n"));
        }
    }

    #[test]
    fn reads_it_from_protobuf() {
        let metadata = b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x03uid\x38\x00";
        assert_eq!(in_protobuf(metadata), Some("uid"));
        assert_eq!(in_protobuf(b"\x0a\x01a"), None);
        for length in 0..metadata.len() {
            let _cut_anywhere = in_protobuf(&metadata[..length]);
        }
    }
}
