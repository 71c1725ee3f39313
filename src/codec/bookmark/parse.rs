//! Parses bookmarks in either encoding.

use crate::object::Layout;
use crate::protobuf::object::{ParsedObject, is_annotated};
use crate::{json, protobuf};
use weir_api::resource_version::ResourceVersion;

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

pub(super) const ANNOTATION: &str = "k8s.io/initial-events-end";
