//! Extracts the metadata and the selectable fields of an object in one pass over its JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::value_position::{ValuePosition, offset_in};
use crate::ingest::error::IngestError;
use crate::object::{Layout, Span};
use weir_api::media_type::Encoding;
use weir_api::selectable::FieldSource;

/// The metadata of an object, and its position if the pass has found it.
pub(super) struct FoundMetadata<'a> {
    pub(super) metadata: Metadata<'a>,
    at: Option<Span>,
}

impl FoundMetadata<'_> {
    pub(super) fn layout(&self, body: &[u8], skip: usize) -> Result<Layout, IngestError> {
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

/// Finds the position of `metadata` in a pass of its own, if the first pass could not.
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
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow, rename = "resourceVersion")]
    pub(super) resource_version: Option<&'a RawValue>,
    /// Sorted, as [`Attrs`](crate::attrs::Attrs) requires.
    #[serde(borrow)]
    pub(super) labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// A string that is copied only if it has escapes. serde always copies a bare `Cow`, whatever its
/// lifetime.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

pub(super) fn text_or_empty<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", |text| &text.0)
}

/// Extracts the `metadata` of an object, and the raw value of each source that it has, in one pass.
/// Only what is extracted must be UTF-8: an API server writes raw JSON of clients, such as managed
/// fields, with whatever bytes its strings have (`docs/semantics.md` §3.6).
pub(super) fn extract<'a>(
    body: &'a [u8],
    sources: &[FieldSource],
    values: &mut [Option<&'a RawValue>],
) -> Option<FoundMetadata<'a>> {
    let paths = sources.iter().enumerate().map(|(n, source)| (n, &*source.path)).collect();
    let mut top = MetadataCollector { body, metadata: None, position: ValuePosition::Unknown };
    let visitor = FieldVisitor { paths, values, top: Some(&mut top) };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    visitor.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    let at = top.position.at_the_end_of(body);
    Some(FoundMetadata { metadata: top.metadata?, at })
}

/// The state for the top level of an object, where `metadata` is.
struct MetadataCollector<'a> {
    body: &'a [u8],
    metadata: Option<Metadata<'a>>,
    position: ValuePosition,
}

/// Visits one level of an object, and descends into the members that paths lead through.
struct FieldVisitor<'w, 'p, 'a> {
    /// The remaining paths from this level, each with the index of its value.
    paths: Paths<'p>,
    values: &'w mut [Option<&'a RawValue>],
    /// Set at the top level only.
    top: Option<&'w mut MetadataCollector<'a>>,
}

impl<'p, 'a> FieldVisitor<'_, 'p, 'a> {
    /// Returns the rest of the paths through `key`, and whether a path ends there.
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

    /// Stores the value of the paths that end at `key`.
    fn store(&mut self, key: &str, raw: &'a RawValue) {
        for (index, path) in &self.paths {
            if let ([step], Some(value)) = (path, self.values.get_mut(*index))
                && **step == *key
            {
                *value = Some(raw);
            }
        }
    }

    /// Accepts a scalar where a path expects an object: the values below it stay absent. The top
    /// level must be an object.
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
                    top.position = ValuePosition::after_key(top.body, &key);
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

/// The value of one key, or the first element of an array. It is parsed only if a path leads
/// through it.
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
            // The value has been parsed once, so this cannot fail.
            drop(visitor.deserialize(&mut serde_json::Deserializer::from_str(raw.get())));
        }
        Ok(())
    }
}

/// The rest of paths, each with the index of its value. No kind has more of them than are stored
/// without an allocation.
type Paths<'p> = SmallVec<[(usize, &'p [Box<str>]); 10]>;
