//! Objects and pages as the body of a response, in the negotiated form (`docs/semantics.md` §3.6,
//! §5.3, §9).

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::encode;
use super::kinds::Kind;
use super::negotiate::{Form, Media, Shape, View};
use super::normalize::partial_metadata;
use super::object::Object;
use super::page::Page;
use super::protobuf;
use super::raw_bytes::in_json;
use super::request::Request;
use super::status::ApiError;
use super::table;

/// Returns a response with one object.
pub(super) fn object(
    request: &Request,
    kind: &Kind,
    form: &Form,
    code: u16,
    object: &std::sync::Arc<Object>,
) -> Result<Response<Body>, ApiError> {
    form.check(kind, Shape::Object)?;
    let body = match &form.view {
        View::Table(version) => {
            let metadata = json!({"resourceVersion": object.revision.to_string()});
            let objects = std::slice::from_ref(object);
            encode::encode(&table::list(request, kind, version, metadata, objects)?)
        }
        View::Plain | View::Partial(_) => body(kind, form, object)?,
    };
    Ok(answer::encoded(request, code, form, body))
}

/// Encodes one object, complete or with its metadata only; not as a table.
pub(super) fn body(kind: &Kind, form: &Form, object: &Object) -> Result<Bytes, ApiError> {
    Ok(match (&form.view, form.media) {
        (View::Partial(version), media) => partial(version, media, &object.value())?,
        (_, Media::Json) => object.render(kind),
        (_, Media::Protobuf) => {
            protobuf::envelope(&kind.api_version(), &kind.kind, &object.protobuf(kind)?).into()
        }
    })
}

/// Encodes a metadata-only view of an object.
pub(super) fn partial(version: &str, media: Media, object: &Value) -> Result<Bytes, ApiError> {
    const KIND: &str = "PartialObjectMetadata";
    let group_version = format!("meta.k8s.io/{version}");
    let view = partial_metadata(object, &group_version);
    Ok(match media {
        Media::Json => in_json(encode::encode(&view)),
        Media::Protobuf => {
            protobuf::envelope(&group_version, KIND, &protobuf::message(KIND, &view)?).into()
        }
    })
}

/// Returns a response with a list.
pub(super) fn list(
    request: &Request,
    kind: &Kind,
    form: &Form,
    page: &Page,
) -> Result<Response<Body>, ApiError> {
    form.check(kind, Shape::List)?;
    let body = match (&form.view, form.media) {
        (View::Table(version), _) => {
            let value = table::list(request, kind, version, page.metadata(), &page.objects)?;
            encode::encode(&value)
        }
        (View::Partial(version), media) => partial_list(version, media, page)?,
        (View::Plain, Media::Json) => plain_list(kind, page),
        (View::Plain, Media::Protobuf) => {
            let items: Result<Vec<Bytes>, _> =
                page.objects.iter().map(|object| object.protobuf(kind)).collect();
            let list = protobuf::list(&page.whole_metadata(), items?.iter().map(|item| &**item))?;
            protobuf::envelope(&kind.api_version(), &kind.list_kind, &list).into()
        }
    };
    Ok(answer::encoded(request, 200, form, body))
}

fn partial_list(version: &str, media: Media, page: &Page) -> Result<Bytes, ApiError> {
    const KIND: &str = "PartialObjectMetadata";
    let group_version = format!("meta.k8s.io/{version}");
    let views = page.objects.iter().map(|object| object.value());
    let views: Vec<Value> = views.map(|value| partial_metadata(&value, &group_version)).collect();
    let list_kind = format!("{KIND}List");
    if media == Media::Protobuf {
        let items: Result<Vec<Vec<u8>>, _> =
            views.iter().map(|view| protobuf::message(KIND, view)).collect();
        let (items, metadata) = (items?, page.metadata());
        let items = items.iter().map(Vec::as_slice);
        let list = if version == "v1beta1" {
            protobuf::partial_list_beta(&metadata, items)?
        } else {
            protobuf::list(&metadata, items)?
        };
        return Ok(protobuf::envelope(&group_version, &list_kind, &list).into());
    }
    // Go's nil slice: only this kind of list is null when it is empty.
    let items = if views.is_empty() { Value::Null } else { Value::Array(views) };
    Ok(in_json(encode::encode(&json!({"kind": list_kind, "apiVersion": group_version,
        "metadata": page.metadata(), "items": items}))))
}

/// Encodes a list in JSON (`docs/semantics.md` §3.6).
fn plain_list(kind: &Kind, page: &Page) -> Bytes {
    let api_version = kind.api_version();
    let lead = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", kind.kind);
    let size = page.objects.iter().map(|object| object.json.len() + 1).sum::<usize>();
    let mut out = Vec::with_capacity(256 + size);
    let text = |value: &Value| String::from_utf8_lossy(&encode::encode(value)).into_owned();
    let list_kind = &kind.list_kind;
    let head = if kind.custom {
        format!("{{\"apiVersion\":\"{api_version}\",\"items\":[")
    } else {
        let metadata = text(&page.whole_metadata());
        format!(
            "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
        )
    };
    out.extend_from_slice(head.as_bytes());
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let bytes = object.render(kind);
        match bytes.strip_prefix(lead.as_bytes()) {
            Some(rest) if !kind.custom => {
                out.push(b'{');
                out.extend_from_slice(rest);
            }
            _ => out.extend_from_slice(&bytes),
        }
    }
    out.push(b']');
    if kind.custom {
        let metadata = text(&page.custom_metadata());
        let tail = format!(",\"kind\":\"{list_kind}\",\"metadata\":{metadata}");
        out.extend_from_slice(tail.as_bytes());
    }
    out.push(b'}');
    out.into()
}
