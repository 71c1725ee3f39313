//! Reads objects in protobuf.
//!
//! Only the values that a cache needs are extracted. Every object of Kubernetes has its
//! `ObjectMeta` as field 1. An object that could not be spliced later (another envelope than
//! expected, a second metadata field, lengths that are encoded longer than needed) is an error.
//!
//! A string is the bytes that a client sent, which an API server does not check
//! (`docs/semantics.md` §5.3). Only names must be UTF-8, because requests name objects by text.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::envelope::{MAGIC, UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head};
use super::wire::{Field, Fields, Malformed, Value, field_len, length_len, push_head};
use crate::attrs::{self, Attrs};
use crate::ingest::error::IngestError;
use crate::ingest::key::check_names;
use crate::object::{Layout, Object, Span};
use weir_api::media_type::{Encoding, META_V1, PARTIAL_OBJECT_METADATA};
use weir_api::resource::{ApiResource, Representation};
use weir_api::resource_version::ResourceVersion;
use weir_api::selectable::{FieldSource, Scalar};

impl From<Malformed> for IngestError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// Reads an object in the form of GET and WATCH. Copies the bytes.
pub(crate) fn object(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    ingest(bytes, resource, representation)
}

/// Reads an object in the form of a LIST, and adds the envelope that list items lack.
pub(crate) fn list_item(
    raw: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    let head = expected_head(resource, representation);
    let mut body = Vec::with_capacity(head.len() + field_len(raw.len()) + UNKNOWN_TAIL.len());
    body.extend_from_slice(&head);
    push_head(&mut body, UNKNOWN_RAW_TAG, raw.len());
    body.extend_from_slice(raw);
    body.extend_from_slice(UNKNOWN_TAIL);
    ingest(&body, resource, representation)
}

fn expected_head(resource: &ApiResource, representation: Representation) -> Vec<u8> {
    if representation == Representation::MetadataProtobuf {
        envelope_head(META_V1, PARTIAL_OBJECT_METADATA)
    } else {
        envelope_head(&resource.gvr.api_version(), &resource.kind)
    }
}

fn ingest(
    body: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    let head = expected_head(resource, representation);
    if !body.starts_with(&head) {
        return Err(IngestError::Malformed);
    }
    let read = ParsedObject::parse(body)?;
    // Nothing may be between head and item, since a list item would lack it.
    let item = read.layout.item;
    if item.start as usize != head.len() + 1 + length_len(item.length as usize) {
        return Err(IngestError::Malformed);
    }
    let sources = match representation {
        Representation::Protobuf => resource.selectable.sources(),
        _ => &[],
    };
    let raw = item.slice(body);
    let name = |bytes| std::str::from_utf8(bytes).map_err(|_| IngestError::Name);
    let names = (name(read.namespace)?, name(read.name)?);
    check_names(names, resource)?;
    let resource_version = read.resource_version.ok_or(IngestError::ResourceVersion)?;
    let fields = fields(raw, sources)?;
    let attrs = attrs::encode(&fields, read.labels.iter().copied());
    Ok(Object::new(names, resource_version, Attrs::new(&attrs), body, read.layout))
}

/// The values that are extracted from an object or bookmark.
pub(crate) struct ParsedObject<'a> {
    pub(crate) layout: Layout,
    name: &'a [u8],
    namespace: &'a [u8],
    pub(crate) resource_version: Option<ResourceVersion>,
    /// Sorted by key, each key once.
    labels: SmallVec<[Pair<'a>; 8]>,
}

impl<'a> ParsedObject<'a> {
    /// Parses an object in its envelope.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let message = body.strip_prefix(MAGIC).ok_or(Malformed)?;
        let (raw, raw_at) = single_field(message, UNKNOWN_RAW)?.ok_or(Malformed)?;
        let raw_at = raw_at + MAGIC.len();
        if body.get(raw_at + raw.len()..) != Some(UNKNOWN_TAIL) {
            return Err(Malformed);
        }
        let (metadata, metadata_at) = single_field(raw, METADATA)?.ok_or(Malformed)?;
        let metadata_at = metadata_at + raw_at;
        let mut read = Self {
            layout: Layout {
                encoding: Encoding::Protobuf,
                item: Span::new(raw_at, raw.len()).ok_or(Malformed)?,
                metadata: Span::new(metadata_at, metadata.len()).ok_or(Malformed)?,
                ..Layout::default()
            },
            name: b"",
            namespace: b"",
            resource_version: None,
            labels: SmallVec::new(),
        };
        let mut number = None;
        for field in Fields::new(metadata) {
            let field = field?;
            match field.number {
                NAME => read.name = field.bytes()?,
                NAMESPACE => read.namespace = field.bytes()?,
                RESOURCE_VERSION => set_single(&mut number, &field)?,
                LABELS => read.labels.push(map_pair(field.bytes()?)?),
                _ => {}
            }
        }
        // The last value of a key counts, as in every map of protobuf. Reversed, it is the first.
        read.labels.reverse();
        read.labels.sort_by_key(|(key, _)| *key);
        read.labels.dedup_by_key(|(key, _)| *key);
        if let Some((digits, at)) = number {
            let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
            read.resource_version = ResourceVersion::parse(text);
            let at = metadata_at + at;
            read.layout.resource_version = Span::new(at, digits.len()).ok_or(Malformed)?;
        }
        Ok(read)
    }
}

/// Whether the object, whose metadata this is, has an annotation with this value.
pub(crate) fn is_annotated(metadata: &[u8], key: &str, value: &str) -> bool {
    let wanted = (key.as_bytes(), value.as_bytes());
    let annotations = Fields::new(metadata).filter_map(Result::ok);
    let mut annotations = annotations.filter(|field| field.number == ANNOTATIONS);
    annotations.any(|field| field.bytes().and_then(map_pair) == Ok(wanted))
}

/// Returns the bytes of a single field, and their offset.
fn single_field(message: &[u8], number: u32) -> Result<Option<(&[u8], usize)>, Malformed> {
    let mut single = None;
    for field in Fields::new(message) {
        let field = field?;
        if field.number == number {
            set_single(&mut single, &field)?;
        }
    }
    Ok(single)
}

/// Sets the bytes and the offset of a field that must occur at most once and be encoded as a splice
/// encodes it.
fn set_single<'a>(
    single: &mut Option<(&'a [u8], usize)>,
    field: &Field<'a>,
) -> Result<(), Malformed> {
    let is_second = single.replace((field.bytes()?, field.value_start)).is_some();
    if is_second || !field.is_minimal() { Err(Malformed) } else { Ok(()) }
}

/// Parses a pair of a `map<string, string>`.
pub(crate) fn map_pair(message: &[u8]) -> Result<Pair<'_>, Malformed> {
    let (mut key, mut value) = (&b""[..], &b""[..]);
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => key = field.bytes()?,
            2 => value = field.bytes()?,
            _ => {}
        }
    }
    Ok((key, value))
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// Returns the values of the selectable fields, found in one pass. A field whose path is not known
/// is empty and never used.
fn fields<'a>(raw: &'a [u8], sources: &[FieldSource]) -> Result<Vec<Cow<'a, [u8]>>, Malformed> {
    let mut values = vec![None; sources.len()];
    let paths = sources.iter().enumerate();
    let paths = paths.filter_map(|(number, source)| Some((number, source.protobuf?)));
    walk(raw, &paths.collect::<Paths<'_>>(), &mut values)?;
    let values = sources.iter().zip(values);
    Ok(values.map(|(source, value)| source.rule.value_of_scalar(value)).collect())
}

/// The rest of paths of field numbers, each with the index of its value.
type Paths<'p> = SmallVec<[(usize, &'p [u32]); 10]>;

/// Finds the last value at each path.
fn walk<'a>(
    message: &'a [u8],
    paths: &Paths<'_>,
    values: &mut [Option<Scalar<'a>>],
) -> Result<(), Malformed> {
    if paths.is_empty() {
        return Ok(());
    }
    for field in Fields::new(message) {
        let field = field?;
        let mut deeper = Paths::new();
        for (number, path) in paths {
            let Some((step, rest)) = path.split_first() else { continue };
            if *step != field.number {
                continue;
            }
            if !rest.is_empty() {
                deeper.push((*number, rest));
                continue;
            }
            let scalar = match field.value {
                Value::Varint(number) => Scalar::Number(number),
                Value::Bytes(bytes) => Scalar::Text(bytes),
                Value::Fixed => return Err(Malformed),
            };
            if let Some(value) = values.get_mut(*number) {
                *value = Some(scalar);
            }
        }
        if !deeper.is_empty() {
            walk(field.bytes()?, &deeper, values)?;
        }
    }
    Ok(())
}

/// The field `raw` of `Unknown`.
const UNKNOWN_RAW: u32 = 2;
/// The field `metadata` of every object.
const METADATA: u32 = 1;
/// Fields of `ObjectMeta`.
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const RESOURCE_VERSION: u32 = 6;
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
