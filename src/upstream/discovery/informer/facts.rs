//! The facts that an informer keeps of each object, read from lists and events in JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::upstream::error::UpstreamError;

/// The facts that are kept of an object.
pub(in crate::upstream::discovery) trait Facts:
    DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    /// Returns what counts for an object that cannot be read; `None` if it counts as absent. One
    /// such object must not hide the others.
    fn unreadable() -> Option<Self>;
}

/// An object of a list or of an event.
pub(super) struct NamedFacts<T> {
    pub(super) name: String,
    pub(super) resource_version: String,
    /// `None` if the object counts as absent.
    pub(super) facts: Option<T>,
}

/// Reads a list. Returns its resourceVersion, and the facts by name.
pub(in crate::upstream::discovery) fn parse_list<T: Facts>(
    body: &[u8],
    path: &str,
) -> Result<(String, BTreeMap<String, T>), UpstreamError> {
    let malformed = || UpstreamError::Malformed(format!("the list {path}"));
    // The API server keeps bytes that are no UTF-8 in the fields that a client manages.
    let body = String::from_utf8_lossy(body);
    let list: List<'_> = serde_json::from_str(&body).map_err(|_| malformed())?;
    let mut facts = BTreeMap::new();
    for item in list.items {
        let object = parse_object(item.get().as_bytes()).ok_or_else(malformed)?;
        facts.extend(object.facts.map(|facts| (object.name, facts)));
    }
    Ok((list.metadata.resource_version, facts))
}

/// Reads an object; `None` if it has no name.
pub(super) fn parse_object<T: Facts>(body: &[u8]) -> Option<NamedFacts<T>> {
    let Named { metadata } = serde_json::from_slice(body).ok()?;
    let Metadata { name, resource_version } = metadata;
    let facts = serde_json::from_slice(body).ok().or_else(T::unreadable);
    Some(NamedFacts { name, resource_version, facts })
}

/// Reads the resourceVersion of a bookmark.
pub(super) fn parse_bookmark(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: ListMeta,
    }
    Some(serde_json::from_slice::<Bookmark>(body).ok()?.metadata.resource_version)
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Deserialize)]
    struct Size {
        size: u8,
    }

    impl Facts for Size {
        fn unreadable() -> Option<Self> {
            None
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_hide_no_other_object() {
        let list = b"{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[\
            {\"metadata\":{\"name\":\"odd\",\"managedFields\":[{\"fieldsV1\":{\"f:\xff\":{}}}]},\"size\":1},\
            {\"metadata\":{\"name\":\"other\"},\"size\":2}]}";
        let (version, facts) = parse_list::<Size>(list, "/x").unwrap();
        assert_eq!(version, "7");
        assert_eq!(
            facts,
            [("odd".into(), Size { size: 1 }), ("other".into(), Size { size: 2 })].into()
        );
    }
}
