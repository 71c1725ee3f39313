//! Properties that hold for any bytes, one function for each parser. Each panics when a property
//! fails.

pub mod json;
pub mod protobuf;
pub mod proxy;
pub mod request;

use std::sync::Arc;

use bytes::Bytes;

use crate::api::media_type::{Encoding, Form, View};
use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::SelectableFields;
use crate::codec::bookmark::{self, BookmarkTemplate};
use crate::codec::frame::{self, EventType, FrameError, FrameSplitter, RawFrame};
use crate::codec::ingest::{self, Ingested};
use crate::codec::list::{self, ListMeta, ListPage};
use crate::codec::object::Object;
use crate::codec::splice;

/// The uses of an object: whole or metadata only, in a list and in a frame, and with another
/// resourceVersion. Each parses as the object with exactly that change.
fn check_object(object: &Object, resource: &ApiResource, representation: Representation) {
    assert_eq!(object.in_view(View::Full).to_vec(), object.body());
    let again = ingest::object(object.body(), resource, representation).expect("read once");
    assert_same(&again, object);
    let metadata_only = metadata_of(representation);
    let view = object.in_view(METADATA).to_vec();
    let metadata = ingest::object(&view, resource, metadata_only).expect("metadata is an object");
    assert_eq!(metadata.key, object.key);
    assert!(metadata.attrs().labels().eq(object.attrs().labels()));
    assert_eq!(metadata.resource_version, object.resource_version);
    assert_eq!(metadata.in_view(METADATA).to_vec(), view);
    let item = metadata.list_item(METADATA).to_vec();
    assert_eq!(item, object.list_item(METADATA).to_vec());
    let item = ingest::list_item(&item, resource, metadata_only).expect("as it is in lists");
    assert_same(&item, &metadata);

    for version in VERSIONS {
        let (body, layout) = splice::with_resource_version(object.body(), object.layout, version);
        let moved = ingest::object(&body, resource, representation).expect("it is still an object");
        let names = (object.key.namespace(), object.key.name());
        assert_same(&moved, &Object::new(names, version, object.attrs(), &body, layout));
        assert_eq!(moved.uid(), object.uid());
        let back = splice::with_resource_version(moved.body(), layout, object.resource_version);
        assert_eq!((&back.0[..], back.1), (object.body(), object.layout));
        for view in [View::Full, METADATA] {
            let left = one_frame(representation, frame::encode_left_selector(object, version, view));
            assert_eq!((left.event.as_str(), &left.object[..]), ("DELETED", &*moved.in_view(view).to_vec()));
        }
    }
    for view in [View::Full, METADATA] {
        let frame = frame::encode(EventType::Modified, object, view);
        let frame = one_frame(representation, frame);
        assert_eq!((frame.event.as_str(), &frame.object[..]), ("MODIFIED", &*object.in_view(view).to_vec()));
    }
}

/// An object that can be read is no unreadable one; the uid of an unreadable object is known.
fn check_any(data: &[u8], resource: &ApiResource, representation: Representation) {
    let read = ingest::object(data, resource, representation);
    match (ingest::any_object(data, resource, representation), read) {
        (Ok(Ingested::Object(any)), Ok(object)) => assert_same(&any, &object),
        (Ok(Ingested::Unreadable(object)), Err(_)) => assert!(!object.uid.is_empty()),
        (Err(one), Err(other)) => assert_eq!(one, other),
        (any, read) => panic!("{any:?}, but {read:?}"),
    }
}

fn assert_same(one: &Object, other: &Object) {
    assert_eq!((&one.key, one.resource_version), (&other.key, other.resource_version));
    assert_eq!(one.attrs(), other.attrs());
    assert_eq!((one.body(), one.layout), (other.body(), other.layout));
}

/// Returns the frame with these bytes.
fn one_frame(representation: Representation, bytes: Bytes) -> RawFrame {
    let mut frames = Vec::new();
    let mut splitter = FrameSplitter::new(representation.encoding(), usize::MAX);
    assert_eq!(splitter.push(bytes, &mut frames).and_then(|()| splitter.finish()), Ok(()));
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

/// A list that was parsed and written again parses to the same, and its bytes are a fixed point.
fn check_list(body: Bytes, resource: &ApiResource, representation: Representation) {
    let Ok(page) = list::parse(&body, resource, representation) else { return };
    let view = if representation == metadata_of(representation) { METADATA } else { View::Full };
    for view in [view, METADATA] {
        let first = joined(resource, representation, view, &page);
        let representation =
            if view == METADATA { metadata_of(representation) } else { representation };
        let again =
            list::parse(&first, resource, representation).expect("what Weir writes, it reads");
        assert_eq!(again.resource_version, page.resource_version);
        assert_eq!(again.continue_token, plain_token(&page));
        assert_eq!(again.objects.len(), page.objects.len());
        for (one, other) in again.objects.iter().zip(&page.objects) {
            assert_eq!(one.key, other.key);
            assert!(one.attrs().labels().eq(other.attrs().labels()));
            assert_eq!(one.body(), other.in_view(view).to_vec());
        }
        assert_eq!(joined(resource, representation, view, &again), first);
    }
}

fn joined(
    resource: &ApiResource,
    representation: Representation,
    view: View,
    page: &ListPage,
) -> Bytes {
    let meta = ListMeta {
        resource_version: page.resource_version,
        continue_token: plain_token(page),
        remaining_item_count: None,
        ..ListMeta::default()
    };
    let form = Form { encoding: representation.encoding(), view, pretty: false };
    let objects: Vec<_> = page.objects.iter().cloned().map(Arc::new).collect();
    list::encode(resource, form, &meta, objects).concat().into()
}

/// Weir writes a valid token, which is base64url.
fn plain_token(page: &ListPage) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    page.continue_token.bytes().filter(|byte| plain(*byte)).map(char::from).collect()
}

/// Frames, and the error after them, are the same wherever the stream is cut.
fn split_anyhow(encoding: Encoding, data: &[u8]) -> Vec<RawFrame> {
    let (cut, stream) = data.split_first().map_or((1, data), |(cut, rest)| (*cut, rest));
    let whole = split(encoding, stream, stream.len().max(1));
    assert_eq!(whole, split(encoding, stream, usize::from(cut).max(1)));
    whole.0
}

fn split(
    encoding: Encoding,
    stream: &[u8],
    size: usize,
) -> (Vec<RawFrame>, Result<(), FrameError>) {
    let mut frames = Vec::new();
    let mut splitter = FrameSplitter::new(encoding, FRAME_BYTES_MAX);
    for chunk in stream.chunks(size) {
        if let Err(error) = splitter.push(Bytes::copy_from_slice(chunk), &mut frames) {
            return (frames, Err(error));
        }
    }
    (frames, splitter.finish())
}

/// A learnt template equals its source, and writes bookmarks that parse to the intended values.
fn check_bookmark(data: &[u8], representation: Representation) {
    let Some(template) = BookmarkTemplate::from_bookmark(data) else { return };
    let (version, end) = bookmark::read(data).expect("what teaches can be read");
    let same = one_frame(representation, template.frame(version, end, View::Full));
    assert_eq!((same.event.as_str(), &same.object[..]), ("BOOKMARK", data));
    assert_eq!(BookmarkTemplate::from_bookmark(&same.object).as_ref(), Some(&template));
    for version in VERSIONS {
        for end in [false, true] {
            for view in [View::Full, METADATA] {
                let frame = one_frame(representation, template.frame(version, end, view));
                assert_eq!(frame.event.as_str(), "BOOKMARK");
                assert_eq!(bookmark::read(&frame.object), Some((version, end)));
            }
        }
    }
}

fn metadata_of(representation: Representation) -> Representation {
    match representation.encoding() {
        Encoding::Json => Representation::MetadataJson,
        Encoding::Protobuf => Representation::MetadataProtobuf,
    }
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

const METADATA: View = View::Metadata;

/// All relevant lengths: one digit, around a further digit, and the longest.
const VERSIONS: [ResourceVersion; 4] = [
    ResourceVersion(1),
    ResourceVersion(9_999),
    ResourceVersion(10_000),
    ResourceVersion(u64::MAX),
];

/// Small, so that a fuzzer reaches it.
const FRAME_BYTES_MAX: usize = 512;
