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

use crate::api::resource::{ApiResource, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::FieldSource;
use crate::codec::object::{Key, Object};

/// Why bytes from the upstream could not be taken for an object. Never carries any of the bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    /// Not JSON, or not of the expected shape.
    #[error("the upstream sent an object that cannot be read")]
    Malformed,
    /// `metadata.resourceVersion` is missing or not a `u64`: such a resource is never cached.
    #[error("the upstream sent an object whose resourceVersion is not a number")]
    ResourceVersion,
    /// `metadata.name` is missing, or contains a `/`.
    #[error("the upstream sent an object without a usable name")]
    Name,
}

/// Takes an object as GET and WATCH show it, copying the bytes into an allocation of its own.
pub fn object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    let skip = match resource.shape {
        Shape::BuiltIn => {
            let lead = lead(resource);
            // Another order of keys would break the splice of list items; such a resource is not cached.
            if !bytes.starts_with(lead.as_bytes()) {
                return Err(IngestError::Malformed);
            }
            lead.len()
        }
        Shape::Custom => 0,
    };
    ingest(Bytes::copy_from_slice(bytes), skip, resource)
}

/// Takes an object as a LIST shows it, giving it back the `kind` and `apiVersion` that built-in list items lack.
pub fn list_item(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    match resource.shape {
        Shape::BuiltIn => {
            let lead = lead(resource);
            // An item that does carry them is not a typed list's: not ours to splice.
            let members = bytes.strip_prefix(b"{").ok_or(IngestError::Malformed)?;
            if members.starts_with(br#""kind":"#) || members.starts_with(br#""apiVersion":"#) {
                return Err(IngestError::Malformed);
            }
            ingest([lead.as_bytes(), members].concat().into(), lead.len(), resource)
        }
        Shape::Custom => ingest(Bytes::copy_from_slice(bytes), 0, resource),
    }
}

/// Where a part of `whole` begins in it; `None` if it is not a part of it.
pub(crate) fn offset_in(whole: &[u8], part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset + part.len() <= whole.len()).then_some(offset)
}

/// What leads every typed object, up to and with the comma.
fn lead(resource: &ApiResource) -> String {
    format!(r#"{{"kind":"{}","apiVersion":"{}","#, resource.kind, resource.gvr.api_version())
}

fn ingest(body: Bytes, skip: usize, resource: &ApiResource) -> Result<Object, IngestError> {
    let sources = resource.selectable.sources();
    let mut values: Vec<Option<&RawValue>> = vec![None; sources.len()];
    let metadata = members(&body, sources, &mut values).ok_or(IngestError::Malformed)?;
    let metadata: Metadata<'_> =
        serde_json::from_str(metadata.get()).map_err(|_| IngestError::Malformed)?;

    let digits = metadata
        .resource_version
        .and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"'))
        .ok_or(IngestError::ResourceVersion)?;
    let resource_version = ResourceVersion::parse(digits).ok_or(IngestError::ResourceVersion)?;
    let digits_at = offset_in(&body, digits).and_then(|offset| u32::try_from(offset).ok());
    let digits_length = u8::try_from(digits.len()).ok();
    let (Some(offset), Some(length)) = (digits_at, digits_length) else {
        return Err(IngestError::Malformed);
    };

    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let named = !name.is_empty() && !name.contains('/') && !namespace.contains('/');
    if !named || namespace.is_empty() == resource.namespaced {
        return Err(IngestError::Name);
    }
    let fields = sources
        .iter()
        .zip(&values)
        .map(|(source, value)| source.rule.value_of(value.map(RawValue::get)))
        .collect();
    Ok(Object {
        key: Key::new(namespace, name),
        resource_version,
        labels: metadata
            .labels
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        fields,
        list_item_skip: u32::try_from(skip).map_err(|_| IngestError::Malformed)?,
        resource_version_at: (offset, length),
        body: body.clone(),
    })
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
