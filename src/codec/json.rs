//! Reads out of an object's JSON what the cache needs, and nothing more.
//!
//! One pass finds `metadata` and the selectable fields' parents as raw slices; nothing is decoded that is not
//! kept. Bodies are copied into allocations of their own here and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::media_type::{Encoding, META_V1, PARTIAL_OBJECT_METADATA};
use crate::api::resource::{ApiResource, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::FieldSource;
pub use crate::codec::ingest::IngestError;
use crate::codec::ingest::key;
use crate::codec::object::{Layout, Object, Span};

/// Takes an object as GET and WATCH show it, copying the bytes into an allocation of its own.
pub fn object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    let skip = match resource.shape {
        Shape::BuiltIn => {
            let lead = lead(&resource.kind, &resource.gvr.api_version());
            // Another order of keys would break the splice of list items; such a resource is not cached.
            if !bytes.starts_with(lead.as_bytes()) {
                return Err(IngestError::Malformed);
            }
            lead.len()
        }
        Shape::Custom => 0,
    };
    ingest(Bytes::copy_from_slice(bytes), skip, resource, resource.selectable.sources())
}

/// Takes a `PartialObjectMetadata`, which stands in lists as everywhere else. It has none of the selectable fields' values.
pub fn partial_object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    if !bytes.starts_with(lead(PARTIAL_OBJECT_METADATA, META_V1).as_bytes()) {
        return Err(IngestError::Malformed);
    }
    ingest(Bytes::copy_from_slice(bytes), 0, resource, &[])
}

/// Takes an object as a LIST shows it, giving it back the `kind` and `apiVersion` that built-in list items lack.
pub fn list_item(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    match resource.shape {
        Shape::BuiltIn => {
            let lead = lead(&resource.kind, &resource.gvr.api_version());
            // An item that does carry them is not a typed list's: not ours to splice.
            let members = bytes.strip_prefix(b"{").ok_or(IngestError::Malformed)?;
            if members.starts_with(br#""kind":"#) || members.starts_with(br#""apiVersion":"#) {
                return Err(IngestError::Malformed);
            }
            let body = [lead.as_bytes(), members].concat().into();
            ingest(body, lead.len(), resource, resource.selectable.sources())
        }
        Shape::Custom => {
            ingest(Bytes::copy_from_slice(bytes), 0, resource, resource.selectable.sources())
        }
    }
}

/// Where a part of `whole` begins in it; `None` if it is not a part of it.
pub(crate) fn offset_in(whole: &[u8], part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset + part.len() <= whole.len()).then_some(offset)
}

/// What leads every typed object, up to and with the comma.
fn lead(kind: &str, api_version: &str) -> String {
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#)
}

fn ingest(
    body: Bytes,
    skip: usize,
    resource: &ApiResource,
    sources: &[FieldSource],
) -> Result<Object, IngestError> {
    // A frame is a line: what is indented can't be spliced into one.
    if memchr::memchr(b'\n', &body).is_some() {
        return Err(IngestError::Malformed);
    }
    let mut values: Vec<Option<&RawValue>> = vec![None; sources.len()];
    let metadata = members(&body, sources, &mut values).ok_or(IngestError::Malformed)?;
    let (layout, metadata) = read(&body, metadata, skip)?;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let fields = sources
        .iter()
        .zip(&values)
        .map(|(source, value)| source.rule.value_of(value.map(RawValue::get)))
        .collect();
    Ok(Object {
        key: key(name, namespace, resource)?,
        resource_version: digits(&body, layout)?,
        labels: metadata
            .labels
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        fields,
        layout,
        body: body.clone(),
    })
}

/// Where a bookmark's parts stand, its resourceVersion, and its annotations.
pub(crate) fn read_bookmark(body: &[u8]) -> Option<(Layout, ResourceVersion, Annotations<'_>)> {
    let metadata = members(body, &[], &mut [])?;
    let (layout, metadata) = read(body, metadata, 0).ok()?;
    let resource_version = digits(body, layout).ok()?;
    let annotations = match metadata.annotations {
        Some(raw) => serde_json::from_str::<Option<_>>(raw.get()).ok()?.unwrap_or_default(),
        None => Annotations::new(),
    };
    Some((layout, resource_version, annotations))
}

pub(crate) type Annotations<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

fn digits(body: &[u8], layout: Layout) -> Result<ResourceVersion, IngestError> {
    std::str::from_utf8(layout.resource_version.of(body))
        .ok()
        .and_then(ResourceVersion::parse)
        .ok_or(IngestError::ResourceVersion)
}

fn read<'a>(
    body: &[u8],
    raw: &'a RawValue,
    skip: usize,
) -> Result<(Layout, Metadata<'a>), IngestError> {
    let metadata: Metadata<'_> =
        serde_json::from_str(raw.get()).map_err(|_| IngestError::Malformed)?;
    let digits = metadata
        .resource_version
        .and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"'))
        .ok_or(IngestError::ResourceVersion)?;
    let span = |part: &str| Span::new(offset_in(body, part)?, part.len());
    let item = Span::new(skip, body.len().saturating_sub(skip));
    let (Some(item), Some(at), Some(digits)) = (item, span(raw.get()), span(digits)) else {
        return Err(IngestError::Malformed);
    };
    let layout = Layout { encoding: Encoding::Json, item, metadata: at, resource_version: digits };
    Ok((layout, metadata))
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Option<&'a RawValue>,
    /// Sorted, as [`Object::labels`] wants them.
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    /// Of interest in bookmarks only; skipped in objects, where they can be long.
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

/// Finds the raw `metadata` of an object, and the raw value of each source that is there.
fn members<'a>(
    body: &'a [u8],
    sources: &[FieldSource],
    values: &mut [Option<&'a RawValue>],
) -> Option<&'a RawValue> {
    let paths: Vec<_> = sources.iter().enumerate().map(|(n, source)| (n, &*source.path)).collect();
    let mut metadata = None;
    let walk = Walk { paths, values, metadata: Some(&mut metadata) };
    walk.deserialize_from(body)?;
    metadata
}

/// One level of an object, walked for those paths that lead through it.
struct Walk<'w, 'a> {
    /// The paths that remain from here, each with the index of its value.
    paths: Vec<(usize, &'w [Box<str>])>,
    values: &'w mut [Option<&'a RawValue>],
    /// At the top level, where `metadata` goes.
    metadata: Option<&'w mut Option<&'a RawValue>>,
}

impl<'a> Walk<'_, 'a> {
    fn deserialize_from(self, json: &'a [u8]) -> Option<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        deserializer.deserialize_any(self).ok()?;
        deserializer.end().ok()
    }

    /// Hands a member's value to the paths that name it.
    fn take(&mut self, key: &str, raw: &'a RawValue) {
        let mut deeper = Vec::new();
        for (index, path) in &self.paths {
            match path.split_first() {
                Some((step, [])) if **step == *key => {
                    if let Some(value) = self.values.get_mut(*index) {
                        *value = Some(raw);
                    }
                }
                Some((step, rest)) if **step == *key => deeper.push((*index, rest)),
                _ => {}
            }
        }
        if !deeper.is_empty() {
            let walk = Walk { paths: deeper, values: self.values, metadata: None };
            // A value of another type than the path expects has no such field: the value stays absent.
            walk.deserialize_from(raw.get().as_bytes());
        }
    }

    fn wants(&self, key: &str) -> bool {
        self.paths.iter().any(|(_, path)| path.first().is_some_and(|step| **step == *key))
    }
}

impl<'de> Visitor<'de> for Walk<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let metadata = self.metadata.is_some() && key == "metadata";
            if !metadata && !self.wants(&key) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let raw = map.next_value::<&'de RawValue>()?;
            if metadata && let Some(found) = &mut self.metadata {
                **found = Some(raw);
            }
            self.take(&key, raw);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        if let Some(first) = seq.next_element::<&'de RawValue>()? {
            self.take("0", first);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
