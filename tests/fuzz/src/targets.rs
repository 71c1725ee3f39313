//! What must hold for any bytes, one function a parser. Each panics when it does not.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};

use crate::api::list_options::ListOptions;
use crate::api::media_type;
use crate::api::query::Query;
use crate::api::request_info::RequestInfo;
use crate::api::resource::{ApiResource, GroupVersionResource, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::SelectableFields;
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::codec::bookmark::{self, BookmarkTemplate};
use crate::codec::frame::{FrameError, FrameSplitter, RawFrame};
use crate::codec::{gzip as gzip_codec, json, list as list_codec, pretty as pretty_codec};

/// A value that was read and is written again reads the same; so do the options of a list.
pub fn query(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let query = Query::parse(raw);
    let mut again = String::new();
    for name in PARAMETERS {
        if let Some(value) = query.first(name) {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            again.push_str(&format!("&{name}={escaped}"));
        }
    }
    let second = Query::parse(&again);
    for name in PARAMETERS {
        assert_eq!(query.first(name), second.first(name), "{name}");
    }
    assert!(!second.is_lossy());
    assert_eq!(ListOptions::decode(&query), ListOptions::decode(&second));
}

/// Any path and query are read, and a resource's words never hold a slash.
pub fn request_info(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    for method in [Method::GET, Method::POST, Method::DELETE, Method::HEAD] {
        let info = RequestInfo::parse(&method, path, query);
        assert!(!info.verb_label().is_empty());
        assert_eq!(info, RequestInfo::parse(&method, path, query));
        if let Some(resource) = info.resource.filter(|_| info.plain_path) {
            // A lifted name is of the query, not of the path.
            let name = if resource.name_lifted { "" } else { &resource.name };
            for word in [&*resource.gvr.resource, &resource.namespace, name, &resource.subresource]
            {
                assert!(!word.contains('/'), "{word}");
            }
        }
    }
}

/// Matching is total, space around it is nothing, and a comma means both.
pub fn label_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (left, right) = text.split_once('\n').unwrap_or((text, ""));
    let (Some(one), Some(two)) = (LabelSelector::parse(left), LabelSelector::parse(right)) else {
        return;
    };
    let spaced = LabelSelector::parse(&format!(" {left}\t")).expect("space around is nothing");
    let both = LabelSelector::parse(&format!("{left},{right}"));
    for labels in LABELS {
        let labels: Vec<(Box<str>, Box<str>)> =
            labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let matched = one.matches(&labels);
        assert_eq!(matched, spaced.matches(&labels));
        assert!(matched || !one.is_empty(), "an empty selector matches all");
        if let Some(both) = both.as_ref().filter(|_| !one.is_empty() && !two.is_empty()) {
            assert_eq!(both.matches(&labels), matched && two.matches(&labels));
        }
    }
}

/// Matching is total, and what a selector says that it requires is required.
pub fn field_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let fields = SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"));
    let Some(selector) = FieldSelector::parse(text, &fields) else { return };
    for (name, namespace, value) in [("", "", ""), ("a", "default", "n1"), ("b", "x", "Running")] {
        let values = vec![value.into(); fields.len()];
        let matched = selector.matches(name, namespace, &values);
        assert!(matched || !selector.is_empty());
        if matched {
            assert!(selector.required_name().is_none_or(|required| required == name));
            assert!(selector.required_namespace().is_none_or(|required| required == namespace));
            if let Some((index, required)) = selector.required_value() {
                assert_eq!(values.get(index).map(|value: &Box<str>| &**value), Some(required));
            }
        }
    }
}

/// A watch is never indented, and the same header says the same twice.
pub fn accept(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [ACCEPT, ACCEPT_ENCODING, USER_AGENT] {
        if let Some(Ok(value)) = lines.next().map(HeaderValue::from_bytes) {
            headers.insert(name, value);
        }
    }
    let query = Query::parse(&String::from_utf8_lossy(lines.next().unwrap_or_default()));
    media_type::accepts_gzip(&headers);
    for shape in [Shape::BuiltIn, Shape::Custom] {
        let form = media_type::negotiate(&headers, &query, shape, false);
        assert_eq!(form, media_type::negotiate(&headers, &query, shape, false));
        let watch = media_type::negotiate(&headers, &query, shape, true);
        assert!(watch.is_none_or(|form| !form.pretty));
    }
}

/// Frames are the same wherever the stream is cut, and written again they read the same.
pub fn frames(data: &[u8]) {
    let (cut, stream) = data.split_first().map_or((1, data), |(cut, rest)| (*cut, rest));
    let whole = split(stream, stream.len().max(1));
    assert_eq!(whole, split(stream, usize::from(cut).max(1)));
    let mut joined = Vec::new();
    for frame in &whole.0 {
        let event = serde_json::to_string(&frame.event).expect("a string");
        joined.extend_from_slice(format!("{{\"type\":{event},\"object\":").as_bytes());
        joined.extend_from_slice(&frame.object);
        joined.extend_from_slice(b"}\n");
    }
    // Room for what the canonical form adds.
    let mut again = Vec::new();
    let mut splitter = FrameSplitter::new(2 * FRAME_BYTES_MAX);
    assert_eq!(splitter.push(joined.into(), &mut again), Ok(()));
    assert_eq!(again, whole.0);
}

fn split(stream: &[u8], size: usize) -> (Vec<RawFrame>, Result<(), FrameError>) {
    let mut frames = Vec::new();
    let mut splitter = FrameSplitter::new(FRAME_BYTES_MAX);
    for chunk in stream.chunks(size) {
        if let Err(error) = splitter.push(Bytes::copy_from_slice(chunk), &mut frames) {
            return (frames, Err(error));
        }
    }
    (frames, splitter.finish())
}

/// A list that was taken apart and is put together again reads the same, and its bytes are a fixed point.
pub fn list(data: &[u8]) {
    for resource in [pods(), widgets()] {
        let Ok(page) = list_codec::parse(data, &resource) else { continue };
        let first = joined(&resource, page);
        let page = list_codec::parse(&first, &resource).expect("what Weir writes, it reads");
        assert_eq!(first, joined(&resource, page));
    }
}

fn joined(resource: &ApiResource, page: list_codec::ListPage) -> Vec<u8> {
    let meta = list_codec::ListMeta {
        resource_version: page.resource_version,
        continue_token: page.continue_token,
        remaining_item_count: None,
    };
    let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
    list_codec::encode(resource, &meta, &objects).concat()
}

/// An object's body is the bytes that came; another resourceVersion put into it changes that and nothing else.
pub fn object(data: &[u8]) {
    for resource in [pods(), widgets()] {
        let Ok(object) = json::object(data, &resource) else { continue };
        assert_eq!(object.body, data.trim_ascii());
        let other = ResourceVersion(u64::MAX);
        let spliced = object.body_with_resource_version(other);
        let again = json::object(&spliced, &resource).expect("it is still an object");
        assert_eq!(again.resource_version, other);
        assert_eq!(
            (&again.key, &again.labels, &again.fields),
            (&object.key, &object.labels, &object.fields)
        );
        let back = again.body_with_resource_version(object.resource_version);
        assert_eq!(
            json::object(&back, &resource).map(|it| it.resource_version),
            Ok(object.resource_version)
        );
    }
}

/// A template that was learnt writes bookmarks that read as what they should say.
pub fn bookmark(data: &[u8]) {
    let Some(template) = BookmarkTemplate::learn(data) else { return };
    for version in [1, 9_999, u64::MAX].map(ResourceVersion) {
        for end in [false, true] {
            let frame = template.frame(version, end);
            let object = frame
                .strip_prefix(br#"{"type":"BOOKMARK","object":"#)
                .and_then(|rest| rest.strip_suffix(b"}\n"))
                .expect("a frame");
            assert_eq!(bookmark::read(object), Some((version, end)));
        }
    }
}

/// Indentation adds space outside of strings, and nothing else.
pub fn pretty(data: &[u8]) {
    let indented = pretty_codec::indent(data);
    if serde_json::from_slice::<&serde_json::value::RawValue>(data).is_ok() {
        assert_eq!(without_space(&indented), without_space(data));
    }
}

fn without_space(text: &[u8]) -> Vec<u8> {
    let (mut in_string, mut escaped) = (false, false);
    let kept = text.iter().filter(|byte| {
        let keep = in_string || !byte.is_ascii_whitespace();
        if **byte == b'"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && **byte == b'\\' && !escaped;
        keep
    });
    kept.copied().collect()
}

/// What is compressed comes back.
pub fn gzip(data: &[u8]) {
    let (size, body) = data.split_first().map_or((1, data), |(size, rest)| (*size, rest));
    let chunks: Vec<_> =
        body.chunks(usize::from(size).max(1)).map(Bytes::copy_from_slice).collect();
    let compressed = gzip_codec::compress(&chunks).expect("memory does not fail").concat();
    let mut back = Vec::new();
    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut back).expect("it is gzip");
    assert_eq!(back, body);
}

fn pods() -> ApiResource {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let selectable = SelectableFields::built_in(&gvr);
    resource(gvr, "Pod", Shape::BuiltIn, selectable)
}

fn widgets() -> ApiResource {
    let gvr = GroupVersionResource::new("example.com", "v1", "widgets");
    let selectable = SelectableFields::custom(true, &[".spec.color".to_owned()]);
    resource(gvr, "Widget", Shape::Custom, selectable)
}

fn resource(
    gvr: GroupVersionResource,
    kind: &str,
    shape: Shape,
    selectable: SelectableFields,
) -> ApiResource {
    ApiResource {
        gvr,
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        namespaced: true,
        list_watchable: true,
        shape,
        aggregated: false,
        revision: 0,
        selectable: Arc::new(selectable),
    }
}

const PARAMETERS: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

const LABELS: [&[(&str, &str)]; 4] = [
    &[],
    &[("a", "b")],
    &[("a", ""), ("n", "7"), ("tier", "web")],
    &[("a", "c"), ("app.kubernetes.io/name", "x"), ("tier", "db")],
];

/// Small, so that a fuzzer reaches it.
const FRAME_BYTES_MAX: usize = 512;
