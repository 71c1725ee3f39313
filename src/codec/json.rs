//! Reads out of an object's JSON what the cache needs, and nothing more.
//!
//! One pass over the bytes, which also makes sure that they are JSON, reads `metadata` and the selectable fields; nothing is decoded that is
//! not kept. Bodies are copied into allocations of their own here and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::api::media_type::{Encoding, META_V1, PARTIAL_OBJECT_METADATA};
use crate::api::resource::{ApiResource, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::FieldSource;
use crate::codec::attrs::Attrs;
pub use crate::codec::ingest::IngestError;
use crate::codec::ingest::key;
use crate::codec::object::{Layout, Object, Span};

/// Takes an object as GET and WATCH show it, copying the bytes into an allocation of its own.
pub fn object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    let skip = match resource.shape {
        Shape::BuiltIn => {
            let prefix = type_prefix(&resource.kind, &resource.gvr.api_version());
            // Another order of keys would break the splice of list items; such a resource is not cached.
            if !bytes.starts_with(prefix.as_bytes()) {
                return Err(IngestError::Malformed);
            }
            prefix.len()
        }
        Shape::Custom => 0,
    };
    ingest(Bytes::copy_from_slice(bytes), skip, resource, resource.selectable.sources())
}

/// Takes a `PartialObjectMetadata`, which stands in lists as everywhere else. It has none of the selectable fields' values.
pub fn partial_object(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    let bytes = bytes.trim_ascii();
    if !bytes.starts_with(type_prefix(PARTIAL_OBJECT_METADATA, META_V1).as_bytes()) {
        return Err(IngestError::Malformed);
    }
    ingest(Bytes::copy_from_slice(bytes), 0, resource, &[])
}

/// Takes an object as a LIST shows it, giving it back the `kind` and `apiVersion` that built-in list items lack.
pub fn list_item(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    match resource.shape {
        Shape::BuiltIn => {
            let prefix = type_prefix(&resource.kind, &resource.gvr.api_version());
            // An item that does carry them is not a typed list's: not ours to splice.
            let members = bytes.strip_prefix(b"{").ok_or(IngestError::Malformed)?;
            if members.starts_with(br#""kind":"#) || members.starts_with(br#""apiVersion":"#) {
                return Err(IngestError::Malformed);
            }
            let body = [prefix.as_bytes(), members].concat().into();
            ingest(body, prefix.len(), resource, resource.selectable.sources())
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
fn type_prefix(kind: &str, api_version: &str) -> String {
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
    let found = extract(&body, sources, &mut values).ok_or(IngestError::Malformed)?;
    let layout = found.layout(&body, skip)?;
    let metadata = &found.metadata;
    let fields: Vec<_> = sources
        .iter()
        .zip(&values)
        .map(|(source, value)| source.rule.value_of(value.map(RawValue::get)))
        .collect();
    let labels = metadata.labels.iter().flatten().map(|(key, value)| (&*key.0, &*value.0));
    let key = key(text_or_empty(&metadata.name), text_or_empty(&metadata.namespace), resource)?;
    let (resource_version, attrs) =
        (parse_resource_version(&body, layout)?, Attrs::new(&fields, labels));
    Ok(Object::new(key, resource_version, attrs, body, layout))
}

/// Where a bookmark's parts stand, its resourceVersion, and its annotations.
pub(crate) fn read_bookmark(body: &[u8]) -> Option<(Layout, ResourceVersion, Annotations<'_>)> {
    let found = extract(body, &[], &mut [])?;
    let layout = found.layout(body, 0).ok()?;
    let resource_version = parse_resource_version(body, layout).ok()?;
    let annotations = match found.metadata.annotations {
        Some(raw) => serde_json::from_str::<Option<_>>(raw.get()).ok()?.unwrap_or_default(),
        None => Annotations::new(),
    };
    Some((layout, resource_version, annotations))
}

pub(crate) type Annotations<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

fn parse_resource_version(body: &[u8], layout: Layout) -> Result<ResourceVersion, IngestError> {
    std::str::from_utf8(layout.resource_version.slice(body))
        .ok()
        .and_then(ResourceVersion::parse)
        .ok_or(IngestError::ResourceVersion)
}

/// The metadata of an object, and where it stands if that was seen on the way.
struct FoundMetadata<'a> {
    metadata: Metadata<'a>,
    at: Option<Span>,
}

impl FoundMetadata<'_> {
    fn layout(&self, body: &[u8], skip: usize) -> Result<Layout, IngestError> {
        let digits = self.metadata.resource_version;
        let digits = digits
            .and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"'))
            .ok_or(IngestError::ResourceVersion)?;
        let digits = offset_in(body, digits).and_then(|at| Span::new(at, digits.len()));
        let item = Span::new(skip, body.len().saturating_sub(skip));
        let (Some(item), Some(metadata), Some(resource_version)) =
            (item, self.at.or_else(|| find_metadata(body)), digits)
        else {
            return Err(IngestError::Malformed);
        };
        Ok(Layout { encoding: Encoding::Json, item, metadata, resource_version })
    }
}

/// Where `metadata` stands in an object in which that could not be seen on the way: by a walk of its own.
fn find_metadata(body: &[u8]) -> Option<Span> {
    #[derive(Deserialize)]
    struct Located<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let located: Located<'_> = serde_json::from_slice(body).ok()?;
    let raw = located.metadata.get();
    Span::new(offset_in(body, raw)?, raw.len())
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Option<&'a RawValue>,
    /// Sorted, as [`Attrs`] wants them.
    #[serde(borrow)]
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    /// Of interest in bookmarks only; skipped in objects, where they can be long.
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

/// A string that is copied only where it has escapes. A bare `Cow` always is, whatever its lifetime.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn text_or_empty<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", |text| &text.0)
}

/// Finds the `metadata` of an object, and the raw value of each source that is there, in one pass over its bytes.
fn extract<'a>(
    body: &'a [u8],
    sources: &[FieldSource],
    values: &mut [Option<&'a RawValue>],
) -> Option<FoundMetadata<'a>> {
    // What is passed over is not looked at otherwise.
    let body = std::str::from_utf8(body).ok()?;
    let paths = sources.iter().enumerate().map(|(n, source)| (n, &*source.path)).collect();
    let mut top = MetadataCollector { body, metadata: None, position: MetadataPosition::Unknown };
    let visitor = FieldVisitor { paths, values, top: Some(&mut top) };
    let mut deserializer = serde_json::Deserializer::from_str(body);
    visitor.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    let at = top.position.at_the_end_of(body);
    Some(FoundMetadata { metadata: top.metadata?, at })
}

/// What is found at the top level only.
struct MetadataCollector<'a> {
    body: &'a str,
    metadata: Option<Metadata<'a>>,
    position: MetadataPosition,
}

/// Where `metadata` stands, told by the keys before and after it: a value of serde's that is read does not tell where it stood, and
/// one that is kept raw to be read later would be passed over twice. Told only where no space stands between, as no upstream writes any.
#[derive(Clone, Copy)]
enum MetadataPosition {
    Unknown,
    /// Its first byte; what follows it was not seen yet.
    From(usize),
    Known(Span),
}

impl MetadataPosition {
    /// Of the value of this key, which is one of `body`.
    fn after_key(body: &str, key: &str) -> Self {
        let begin = offset_in(body.as_bytes(), key).map(|at| at + key.len() + "\":".len());
        let begin = begin.filter(|begin| {
            body.as_bytes().get(..*begin).is_some_and(|lead| lead.ends_with(b"\":"))
                && body.as_bytes().get(*begin) == Some(&b'{')
        });
        begin.map_or(Self::Unknown, Self::From)
    }

    /// The same, once the next key was read.
    fn before_key(self, body: &str, key: &str) -> Self {
        let Self::From(begin) = self else { return self };
        let end = offset_in(body.as_bytes(), key).and_then(|at| at.checked_sub(",\"".len()));
        self.until(end.filter(|end| {
            let rest = body.as_bytes().get(end.saturating_sub(1)..);
            begin < *end && rest.is_some_and(|rest| rest.starts_with(b"},\""))
        }))
    }

    /// The same, where no key followed.
    fn at_the_end_of(self, body: &str) -> Option<Span> {
        let Self::From(begin) = self else {
            return if let Self::Known(span) = self { Some(span) } else { None };
        };
        let end = body.len().checked_sub("}".len());
        let end = end.filter(|end| begin < *end && body.ends_with("}}"));
        if let Self::Known(span) = self.until(end) { Some(span) } else { None }
    }

    fn until(self, end: Option<usize>) -> Self {
        match (self, end) {
            (Self::From(begin), Some(end)) => {
                Span::new(begin, end - begin).map_or(Self::Unknown, Self::Known)
            }
            _ => Self::Unknown,
        }
    }
}

/// One level of an object, walked for those paths that lead through it.
struct FieldVisitor<'w, 'p, 'a> {
    /// The paths that remain from here, each with the index of its value.
    paths: Paths<'p>,
    values: &'w mut [Option<&'a RawValue>],
    /// At the top level, where `metadata` goes.
    top: Option<&'w mut MetadataCollector<'a>>,
}

impl<'p, 'a> FieldVisitor<'_, 'p, 'a> {
    /// What remains of the paths through this key, and whether one ends there.
    fn descend(&self, key: &str) -> (Paths<'p>, bool) {
        let (mut deeper, mut ends) = (Paths::new(), false);
        for (index, path) in &self.paths {
            match path.split_first() {
                Some((step, [])) => ends |= **step == *key,
                Some((step, rest)) if **step == *key => deeper.push((*index, rest)),
                _ => {}
            }
        }
        (deeper, ends)
    }

    /// Hands a value to the paths that end at this key.
    fn store(&mut self, key: &str, raw: &'a RawValue) {
        for (index, path) in &self.paths {
            if let ([step], Some(value)) = (path, self.values.get_mut(*index))
                && **step == *key
            {
                *value = Some(raw);
            }
        }
    }

    /// A value that no path expects, be it of a type that has no members: what stands below it stays absent.
    fn skip_scalar<E: Error>(&self) -> Result<(), E> {
        if self.top.is_some() { Err(E::custom("not an object")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for FieldVisitor<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            if let Some(top) = &mut self.top {
                top.position = top.position.before_key(top.body, &key);
                if key == "metadata" {
                    top.position = MetadataPosition::after_key(top.body, &key);
                    top.metadata = Some(map.next_value()?);
                    continue;
                }
            }
            map.next_value_seed(ValueSeed { visitor: &mut self, key: &key })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        if seq.next_element_seed(ValueSeed { visitor: &mut self, key: "0" })?.is_some() {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.skip_scalar()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.skip_scalar()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.skip_scalar()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.skip_scalar()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.skip_scalar()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.skip_scalar()
    }
}

/// The value of one key, or the first of an array, read only as far as a path leads through it.
struct ValueSeed<'m, 'w, 'p, 'a> {
    visitor: &'m mut FieldVisitor<'w, 'p, 'a>,
    key: &'m str,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let (paths, ends) = self.visitor.descend(self.key);
        if !ends && paths.is_empty() {
            return IgnoredAny::deserialize(deserializer).map(drop);
        }
        if !ends {
            return FieldVisitor { paths, values: self.visitor.values, top: None }
                .deserialize(deserializer);
        }
        let raw = <&RawValue>::deserialize(deserializer)?;
        self.visitor.store(self.key, raw);
        if !paths.is_empty() {
            let visitor = FieldVisitor { paths, values: self.visitor.values, top: None };
            // It was read once, so it can be read again.
            drop(visitor.deserialize(&mut serde_json::Deserializer::from_str(raw.get())));
        }
        Ok(())
    }
}

/// What remains of paths, each with the index of its value. No kind has more of them than stand here without an allocation.
type Paths<'p> = SmallVec<[(usize, &'p [Box<str>]); 10]>;

#[cfg(test)]
pub(crate) mod tests;
