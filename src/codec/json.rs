//! Reads objects and bookmarks in JSON.
//!
//! One pass over the bytes validates the JSON and extracts `metadata` and the selectable fields
//! ([`extract`](self::extract::extract)); nothing else is decoded, nor must the rest be UTF-8.

mod extract;
mod value_position;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use self::extract::Text;
use self::extract::{extract, text_or_empty};
pub(crate) use self::value_position::ValuePosition;
use crate::attrs::{self, Attrs};
use crate::ingest::error::IngestError;
use crate::ingest::key::check_names;
use crate::object::{Layout, Object};
use weir_api::media_type::{META_V1, PARTIAL_OBJECT_METADATA};
use weir_api::resource::{ApiResource, Shape};
use weir_api::resource_version::ResourceVersion;
use weir_api::selectable::FieldSource;

/// Reads an object in the form of GET and WATCH. Copies the bytes.
pub fn object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    let skip = match resource.shape {
        Shape::BuiltIn => {
            let prefix = type_prefix(&resource.kind, &resource.gvr.api_version());
            // List items are spliced by this prefix. A resource with another order of keys is not
            // cached.
            if !bytes.starts_with(prefix.as_bytes()) {
                return Err(IngestError::Malformed);
            }
            prefix.len()
        }
        Shape::Custom => 0,
    };
    ingest(bytes, skip, resource, resource.selectable.sources())
}

/// Reads a `PartialObjectMetadata`, which has the same form in lists. Its selectable fields are
/// empty.
pub fn partial_object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    if !bytes.starts_with(type_prefix(PARTIAL_OBJECT_METADATA, META_V1).as_bytes()) {
        return Err(IngestError::Malformed);
    }
    ingest(bytes, 0, resource, &[])
}

/// Reads an object in the form of a LIST, and adds the `kind` and `apiVersion` that built-in list
/// items lack.
pub fn list_item(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    match resource.shape {
        Shape::BuiltIn => {
            let prefix = type_prefix(&resource.kind, &resource.gvr.api_version());
            // An item that has them is not from a typed list; Weir cannot splice it.
            let members = bytes.strip_prefix(b"{").ok_or(IngestError::Malformed)?;
            if members.starts_with(br#""kind":"#) || members.starts_with(br#""apiVersion":"#) {
                return Err(IngestError::Malformed);
            }
            let body = [prefix.as_bytes(), members].concat();
            ingest(&body, prefix.len(), resource, resource.selectable.sources())
        }
        Shape::Custom => ingest(bytes, 0, resource, resource.selectable.sources()),
    }
}

/// Returns the beginning of every typed object, including the comma.
fn type_prefix(kind: &str, api_version: &str) -> String {
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#)
}

fn ingest(
    body: &[u8],
    skip: usize,
    resource: &ApiResource,
    sources: &[FieldSource],
) -> Result<Object, IngestError> {
    // A frame is one line, so an indented object cannot be spliced into one.
    if memchr::memchr(b'\n', body).is_some() {
        return Err(IngestError::Malformed);
    }
    let mut values: Vec<Option<&RawValue>> = vec![None; sources.len()];
    let extracted = extract(body, sources, &mut values).ok_or(IngestError::Malformed)?;
    let layout = extracted.layout(body, skip)?;
    let metadata = &extracted.metadata;
    let fields: Vec<_> = sources
        .iter()
        .zip(&values)
        .map(|(source, value)| source.rule.value_of(value.map(RawValue::get)))
        .collect();
    let labels = metadata.labels.iter().flatten();
    let labels = labels.map(|(key, value)| (key.0.as_bytes(), value.0.as_bytes()));
    let names = (text_or_empty(&metadata.namespace), text_or_empty(&metadata.name));
    check_names(names, resource)?;
    let resource_version = parse_resource_version(body, layout)?;
    let attrs = attrs::encode(&fields, labels);
    Ok(Object::new(names, resource_version, Attrs::new(&attrs), body, layout))
}

pub(crate) fn read_bookmark(body: &[u8]) -> Option<(Layout, ResourceVersion, Annotations<'_>)> {
    #[derive(Deserialize)]
    struct Annotated<'a> {
        #[serde(borrow)]
        annotations: Option<Annotations<'a>>,
    }
    let extracted = extract(body, &[], &mut [])?;
    let layout = extracted.layout(body, 0).ok()?;
    let resource_version = parse_resource_version(body, layout).ok()?;
    let metadata: Annotated<'_> = serde_json::from_slice(layout.metadata.slice(body)).ok()?;
    Some((layout, resource_version, metadata.annotations.unwrap_or_default()))
}

pub(crate) type Annotations<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

fn parse_resource_version(body: &[u8], layout: Layout) -> Result<ResourceVersion, IngestError> {
    std::str::from_utf8(layout.resource_version.slice(body))
        .ok()
        .and_then(ResourceVersion::parse)
        .ok_or(IngestError::ResourceVersion)
}

#[cfg(test)]
pub(crate) mod tests;
