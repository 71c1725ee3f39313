//! The `Accept` headers and the queries of lists and watches.

use super::list_watch::{ListRequest, WatchRequest};
use crate::api::resource::Representation;
use crate::upstream::TrafficClass;
use crate::upstream::fetch::{MATCH_NOTHING, encode_query};

/// Returns the `Accept` header. The kind of a metadata-only response differs between lists and
/// watches (`docs/semantics.md` §8.1).
pub(super) fn accept(representation: Representation, class: TrafficClass) -> &'static str {
    let watch = matches!(class, TrafficClass::Stream);
    match (representation, watch) {
        (Representation::Json, _) => "application/json",
        (Representation::Protobuf, _) => "application/vnd.kubernetes.protobuf",
        (Representation::MetadataJson, false) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataJson, true) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataProtobuf, false) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataProtobuf, true) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
    }
}

pub(super) fn list_query(request: &ListRequest) -> String {
    let mut query = Vec::new();
    if let Some(limit) = request.limit {
        query.push(format!("limit={limit}"));
    }
    if !request.continue_token.is_empty() {
        query.push(format!("continue={}", encode_query(&request.continue_token)));
    }
    if let Some(resource_version) = request.resource_version {
        query.push(format!("resourceVersion={resource_version}"));
    }
    if !request.resource_version_match.is_empty() {
        query.push(format!("resourceVersionMatch={}", request.resource_version_match));
    }
    query.join("&")
}

pub(super) fn watch_query(request: &WatchRequest) -> String {
    let mut query =
        format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}", request.timeout_seconds);
    if let Some(resource_version) = request.resource_version {
        query.push_str(&format!("&resourceVersion={resource_version}"));
    }
    if request.send_initial_events {
        query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    }
    if request.match_nothing {
        query.push_str(MATCH_NOTHING);
    }
    query
}
