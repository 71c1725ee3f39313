//! Adds the initial-events-end annotation to a bookmark, or removes it. With it goes the one that
//! 1.32 and 1.33 put beside it: an empty list of the resource, encoded as the watch is.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::object::Layout;
use crate::protobuf::object::{ParsedObject, is_annotated, map_pair};
use crate::protobuf::wire::{Field, Fields, push_head};
use crate::{json, protobuf, splice};
use weir_api::resource_version::ResourceVersion;

/// Removes the annotations.
pub(super) fn remove(object: &[u8]) -> Option<Vec<u8>> {
    if protobuf::is_protobuf(object) {
        remove_from_protobuf(object)
    } else {
        remove_from_json(object)
    }
}

/// Adds the annotation in the position in which the API server's encoder would write it.
pub(super) fn add(object: &[u8]) -> Option<Vec<u8>> {
    if protobuf::is_protobuf(object) { add_to_protobuf(object) } else { add_to_json(object) }
}

/// Also removes `annotations` if no other one is left.
fn remove_from_json(object: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(object).ok()?;
    let text = without_blueprint(text).map_or(Cow::Borrowed(text), Cow::Owned);
    let only_pair = format!(r#""annotations":{{{ANNOTATION_PAIR}}}"#);
    [format!(",{only_pair}"), format!("{only_pair},"), only_pair]
        .into_iter()
        .chain([format!(",{ANNOTATION_PAIR}"), format!("{ANNOTATION_PAIR},")])
        .find(|part| text.contains(part.as_str()))
        .map(|part| text.replacen(&part, "", 1).into_bytes())
}

/// Returns a bookmark without the empty list; `None` if it has none. Keys are sorted, so that
/// another pair is before it. The value is in base64.
fn without_blueprint(text: &str) -> Option<String> {
    let (before, after) = text.split_once(&format!(r#","{BLUEPRINT}":""#))?;
    let (_, after) = after.split_once('"')?;
    Some([before, after].concat())
}

fn add_to_json(object: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(object).ok()?;
    if let Some((before, after)) = text.split_once(r#""annotations":{"#) {
        // The keys of a map are sorted. A zero object has few annotations.
        let (pairs, rest) = after.split_once('}')?;
        let mut pairs: Vec<_> = pairs.split(',').filter(|pair| !pair.is_empty()).collect();
        pairs.push(ANNOTATION_PAIR);
        pairs.sort_unstable();
        return Some(
            format!(r#"{before}"annotations":{{{}}}{rest}"#, pairs.join(",")).into_bytes(),
        );
    }
    let annotations = format!(r#""annotations":{{{ANNOTATION_PAIR}}}"#);
    let end = if text.starts_with(r#"{"apiVersion":"#) {
        text.replacen(r#""metadata":{"#, &format!(r#""metadata":{{{annotations},"#), 1)
    } else {
        // The position after the closing quote of the digits.
        let digits_end = parse_bookmark(object)?.layout.resource_version.end() + 1;
        let (before, after) = text.split_at_checked(digits_end)?;
        // Before 1.34 there is a zero time.
        let (time, after) = match after.strip_prefix(ZERO_TIME) {
            Some(after) => (ZERO_TIME, after),
            None => ("", after),
        };
        format!("{before}{time},{annotations}{after}")
    };
    Some(end.into_bytes())
}

fn remove_from_protobuf(object: &[u8]) -> Option<Vec<u8>> {
    let layout = parse_bookmark(object)?.layout;
    let metadata = layout.metadata.slice(object);
    let mut kept = Vec::with_capacity(metadata.len());
    let mut fields = Fields::new(metadata).peekable();
    while let Some(field) = fields.next() {
        let field = field.ok()?;
        let end = match fields.peek() {
            Some(next) => next.ok()?.start,
            None => metadata.len(),
        };
        if !is_removed(&field)? {
            kept.extend_from_slice(metadata.get(field.start..end)?);
        }
    }
    Some(splice::with_metadata(object, layout, &kept))
}

/// Returns the bookmark that ends the initial events of a watch of metadata alone: the empty list
/// is one of metadata. `None` if there is none.
pub(super) fn for_metadata(end: &[u8]) -> Option<Vec<u8>> {
    if protobuf::is_protobuf(end) {
        let metadata = parse_bookmark(end)?.layout.metadata.slice(end);
        memchr::memmem::find(metadata, BLUEPRINT.as_bytes())?;
        let with_end = add_pair_to_protobuf(&remove_from_protobuf(end)?, ANNOTATION, "true")?;
        let list = [
            &*protobuf::envelope_head("meta.k8s.io/v1", "PartialObjectMetadataList"),
            EMPTY_LIST,
            protobuf::UNKNOWN_TAIL,
        ];
        return add_pair_to_protobuf(&with_end, BLUEPRINT, &STANDARD.encode(list.concat()));
    }
    let text = std::str::from_utf8(end).ok()?;
    let (before, after) = text.split_once(&format!(r#""{BLUEPRINT}":""#))?;
    let (_, after) = after.split_once('"')?;
    let list = STANDARD.encode(EMPTY_LIST_JSON);
    Some(format!(r#"{before}"{BLUEPRINT}":"{list}"{after}"#).into_bytes())
}

fn add_to_protobuf(object: &[u8]) -> Option<Vec<u8>> {
    add_pair_to_protobuf(object, ANNOTATION, "true")
}

fn add_pair_to_protobuf(object: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let layout = parse_bookmark(object)?.layout;
    let metadata = layout.metadata.slice(object);
    // Before the first field with a higher number, or the first annotation with a greater key: the
    // API server sorts both.
    let mut at = metadata.len();
    for field in Fields::new(metadata) {
        let field = field.ok()?;
        let after = match field.number.cmp(&ANNOTATIONS) {
            Ordering::Less => false,
            Ordering::Equal => map_pair(field.bytes().ok()?).ok()?.0 > key.as_bytes(),
            Ordering::Greater => true,
        };
        if after {
            at = field.start;
            break;
        }
    }
    let mut pair = Vec::new();
    for (tag, text) in [(KEY_TAG, key), (VALUE_TAG, value)] {
        push_head(&mut pair, tag, text.len());
        pair.extend_from_slice(text.as_bytes());
    }
    let (before, after) = metadata.split_at_checked(at)?;
    let mut with = before.to_vec();
    push_head(&mut with, ANNOTATIONS_TAG, pair.len());
    with.extend_from_slice(&pair);
    with.extend_from_slice(after);
    Some(splice::with_metadata(object, layout, &with))
}

fn is_removed(field: &Field<'_>) -> Option<bool> {
    if field.number != ANNOTATIONS {
        return Some(false);
    }
    let (key, _) = map_pair(field.bytes().ok()?).ok()?;
    Some([ANNOTATION, BLUEPRINT].iter().any(|removed| removed.as_bytes() == key))
}

/// The number of `ObjectMeta.annotations`, its tag, and the tags of a map's pairs.
const ANNOTATIONS: u32 = 12;
const ANNOTATIONS_TAG: u8 = 0x62;
const KEY_TAG: u8 = 0x0a;
const VALUE_TAG: u8 = 0x12;

const ZERO_TIME: &str = r#","creationTimestamp":null"#;

/// `InitialEventsListBlueprintAnnotationKey` of 1.32 and 1.33.
const BLUEPRINT: &str = "kubernetes.io/initial-events-list-blueprint";
/// An empty list of metadata in JSON.
const EMPTY_LIST_JSON: &str = concat!(
    r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":null}"#,
    "\n"
);
/// The same in protobuf: the raw bytes, which are those of its metadata.
const EMPTY_LIST: &[u8] = b"\x12\x08\x0a\x06\x0a\0\x12\0\x1a\0";
const ANNOTATION_PAIR: &str = r#""k8s.io/initial-events-end":"true""#;

pub(super) struct ParsedBookmark {
    pub(super) layout: Layout,
    pub(super) resource_version: ResourceVersion,
    pub(super) initial_events_end: bool,
}

pub(super) fn parse_bookmark(object: &[u8]) -> Option<ParsedBookmark> {
    if protobuf::is_protobuf(object) {
        let read = ParsedObject::parse(object).ok()?;
        let metadata = read.layout.metadata.slice(object);
        return Some(ParsedBookmark {
            layout: read.layout,
            resource_version: read.resource_version?,
            initial_events_end: is_annotated(metadata, ANNOTATION, "true"),
        });
    }
    let (layout, resource_version, annotations) = json::read_bookmark(object)?;
    let initial_events_end = annotations.get(ANNOTATION).is_some_and(|value| value == "true");
    Some(ParsedBookmark { layout, resource_version, initial_events_end })
}

const ANNOTATION: &str = "k8s.io/initial-events-end";
