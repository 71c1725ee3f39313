//! Small objects, events and errors for scripted upstreams.

use bytes::Bytes;
use http::StatusCode;

use crate::api::resource_version::ResourceVersion;
use crate::codec::json;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::config::seams::Seams;
use crate::testing::config_maps;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::UpstreamEvent;

pub(crate) fn page(resource_version: u64, next: &str, objects: Vec<Object>) -> ListPage {
    ListPage {
        unreadable: Vec::new(),
        resource_version: ResourceVersion(resource_version),
        continue_token: next.to_owned(),
        remaining_item_count: None,
        objects,
    }
}

/// Creates a small object in the namespace `ns`.
pub(crate) fn object(name: &str, resource_version: u64) -> Object {
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{resource_version}"}}}}"#
    );
    json::object(body.as_bytes(), &config_maps()).unwrap()
}

/// Returns the same object as another release or definition would encode it.
pub(crate) fn rewritten(object: &Object) -> Object {
    let body = [object.body().trim_ascii_end(), b" "].concat();
    let names = (object.key.namespace(), object.key.name());
    Object::new(names, object.resource_version, object.attrs(), &body, object.layout)
}

/// Creates an ADDED or MODIFIED event.
pub(crate) fn upsert(name: &str, resource_version: u64) -> UpstreamEvent {
    UpstreamEvent::Upsert(object(name, resource_version))
}

/// Creates a bookmark of a config map.
pub(crate) fn bookmark(resource_version: u64, initial_events_end: bool) -> UpstreamEvent {
    let end = if initial_events_end {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    let object = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{resource_version}"{end}}}}}"#
    );
    UpstreamEvent::Bookmark {
        resource_version: ResourceVersion(resource_version),
        initial_events_end,
        object: Bytes::from(object),
    }
}

/// Creates the end of a streamed list.
pub(crate) fn listed(resource_version: u64) -> UpstreamEvent {
    let resource_version = ResourceVersion(resource_version);
    UpstreamEvent::Bookmark { resource_version, initial_events_end: true, object: Bytes::new() }
}

pub(crate) fn status(code: u16, message: &str) -> UpstreamError {
    UpstreamError::Status {
        code: StatusCode::from_u16(code).unwrap(),
        reason: String::new(),
        message: message.to_owned(),
        retry_after: None,
    }
}

/// Returns pages of two, and few forwards.
pub(crate) fn seams() -> Seams {
    Seams { over_budget_forwards: 4, page_size: 2, ..Seams::default() }
}
