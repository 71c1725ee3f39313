//! Finds `metadata.managedFields` in an object's bytes, so that a view can leave them out
//! (`docs/decisions/managed-fields.md`).
//!
//! The rest of the object is an object without managed fields, as the API server would write it. In
//! an object that no API server writes (white space around the member, the member twice, other
//! fields before the metadata or between those of protobuf) nothing is found, and the view shows
//! them.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::json::{Text, ValuePosition};
use crate::object::{Layout, Span};
use crate::protobuf::wire::{Fields, Value, length_len};
use weir_api::media_type::Encoding;

/// Returns the part of an object's bytes to leave out, with the comma beside it in JSON; empty if
/// there is none.
pub(crate) fn find(body: &[u8], layout: Layout) -> Span {
    let metadata = layout.metadata.slice(body);
    let range = match layout.encoding {
        Encoding::Json => find_member(metadata),
        Encoding::Protobuf => find_fields(metadata).filter(|_| is_first(layout)),
    };
    let range = range.and_then(|(start, end)| {
        Span::new(start + layout.metadata.start as usize, end.checked_sub(start)?)
    });
    range.unwrap_or_default()
}

/// Returns the first offset and the end of the member in an object of JSON.
fn find_member(metadata: &[u8]) -> Option<(usize, usize)> {
    let finder = MemberFinder { metadata };
    let value = serde_json::Deserializer::from_slice(metadata).deserialize_map(finder).ok()??;
    let (value_start, value_end) = (value.start as usize, value.end());
    let start = metadata.get(..value_start)?.strip_suffix(KEY.as_bytes())?.len();
    match metadata.get(start.checked_sub(1)?)? {
        b',' => Some((start - 1, value_end)),
        b'{' if metadata.get(value_end) == Some(&b',') => Some((start, value_end + 1)),
        b'{' => Some((start, value_end)),
        _ => None,
    }
}

/// Finds the position of the value of the one member `managedFields`. The value need not be UTF-8
/// (`docs/semantics.md` §3.6).
struct MemberFinder<'a> {
    metadata: &'a [u8],
}

impl<'de> Visitor<'de> for MemberFinder<'de> {
    type Value = Option<Span>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut position, mut is_seen) = (ValuePosition::Unknown, false);
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            position = position.before_key(self.metadata, &key);
            if key == "managedFields" {
                if std::mem::replace(&mut is_seen, true) {
                    return Err(A::Error::duplicate_field("managedFields"));
                }
                position = ValuePosition::after_key(self.metadata, &key);
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(position.at_the_end_of(self.metadata))
    }
}

/// Whether nothing is between the beginning of an item of protobuf and its metadata.
fn is_first(layout: Layout) -> bool {
    let Layout { item, metadata, .. } = layout;
    let value_start = item.start as usize + 1 + length_len(metadata.length as usize);
    value_start == metadata.start as usize
}

/// Returns the first offset and the end of the fields in an `ObjectMeta` of protobuf.
fn find_fields(metadata: &[u8]) -> Option<(usize, usize)> {
    let mut range: Option<(usize, usize)> = None;
    for field in Fields::new(metadata) {
        let field = field.ok()?;
        if field.number != MANAGED_FIELDS {
            continue;
        }
        let Value::Bytes(bytes) = field.value else { return None };
        let start = match range {
            None => field.start,
            Some((start, end)) if end == field.start => start,
            Some(_) => return None,
        };
        range = Some((start, field.value_start + bytes.len()));
    }
    range
}

/// The key as the API server writes it.
const KEY: &str = r#""managedFields":"#;
/// The field of `ObjectMeta`.
const MANAGED_FIELDS: u32 = 17;

#[cfg(test)]
mod tests;
