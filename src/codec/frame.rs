//! Watch frames: in JSON one event a line (`docs/semantics.md` §5.2), in protobuf each with a
//! length prefix (§5.3).

mod split;

use bytes::Bytes;

pub use self::split::{FrameError, FrameSplitter, FrameType, RawFrame};
use crate::managed_fields;
use crate::object::{Layout, Object, Span};
use crate::protobuf::{self, wire};
use crate::rope::RopeBuilder;
use crate::splice::{self, Splice};
use weir_api::media_type::{Encoding, View};
use weir_api::resource_version::ResourceVersion;
use weir_api::status::Status;

weir_api::labels! {
    /// The type of a watch event that carries an object.
    pub enum EventType {
        /// The object is new to the watcher.
        Added = "ADDED",
        /// The object changed and was known to the watcher.
        Modified = "MODIFIED",
        /// The object was deleted, or left the watcher's selector.
        Deleted = "DELETED",
    }
}

/// Encodes a frame with an object in a view.
pub fn encode(event: EventType, object: &Object, view: View) -> Bytes {
    let mut buffer = Vec::with_capacity(object.body().len() + FRAME_OVERHEAD_BYTES);
    write(&mut buffer, event, object, view);
    if view != View::Full {
        buffer.shrink_to_fit();
    }
    buffer.into()
}

/// Writes a frame with an object in a view.
pub(crate) fn write(buffer: &mut Vec<u8>, event: EventType, object: &Object, view: View) {
    frame_into(buffer, event.as_str(), object.layout.encoding, &object.in_view(view));
}

/// Appends a frame with an object in a view to a rope, so that many frames are one write. The frame
/// shares the object's own bytes where they are long.
pub fn append(builder: &mut RopeBuilder, event: EventType, object: &Object, view: View) {
    let (splice, encoding) = (object.in_view(view), object.layout.encoding);
    head_into(builder.buffer(), event.as_str(), encoding, splice.len());
    splice.append_to(object.record(), builder);
    builder.buffer().extend_from_slice(tail(encoding));
}

/// Encodes the DELETED frame of an object that left a selector: the old body with the event's
/// resourceVersion.
pub fn encode_left_selector(
    object: &Object,
    resource_version: ResourceVersion,
    view: View,
) -> Bytes {
    with_resource_version(
        EventType::Deleted.as_str(),
        object.body(),
        object.layout,
        resource_version,
        view,
    )
}

/// Encodes an ERROR frame with a Status, which is the same in all views.
pub fn encode_error(status: &Status, encoding: Encoding) -> Bytes {
    let object = match encoding {
        Encoding::Json => status.to_json(),
        Encoding::Protobuf => protobuf::encode_status(status),
    };
    let mut buffer = Vec::with_capacity(object.len() + FRAME_OVERHEAD_BYTES);
    let whole = Splice::in_view(&object, Layout::default(), View::Full, Span::default());
    frame_into(&mut buffer, "ERROR", encoding, &whole);
    buffer.into()
}

/// Encodes a frame of any type with an object whose resourceVersion is replaced.
pub(super) fn with_resource_version(
    event: &str,
    body: &[u8],
    layout: Layout,
    resource_version: ResourceVersion,
    view: View,
) -> Bytes {
    let (body, layout) = splice::with_resource_version(body, layout, resource_version);
    let dropped = match view.drops_managed_fields() {
        true => managed_fields::find(&body, layout),
        false => Span::default(),
    };
    let mut buffer = Vec::with_capacity(body.len() + FRAME_OVERHEAD_BYTES);
    let splice = Splice::in_view(&body, layout, view, dropped);
    frame_into(&mut buffer, event, layout.encoding, &splice);
    buffer.into()
}

fn frame_into(buffer: &mut Vec<u8>, event: &str, encoding: Encoding, object: &Splice<'_>) {
    head_into(buffer, event, encoding, object.len());
    object.write(buffer);
    buffer.extend_from_slice(tail(encoding));
}

/// Appends the bytes before an object of `length` bytes.
fn head_into(buffer: &mut Vec<u8>, event: &str, encoding: Encoding, length: usize) {
    match encoding {
        Encoding::Json => {
            buffer.extend_from_slice(br#"{"type":""#);
            buffer.extend_from_slice(event.as_bytes());
            buffer.extend_from_slice(br#"","object":"#);
        }
        Encoding::Protobuf => {
            let extension = wire::field_len(length);
            let message = wire::field_len(event.len()) + wire::field_len(extension);
            // Objects are far smaller than 4 GiB.
            buffer.extend_from_slice(&u32::try_from(message).unwrap_or(u32::MAX).to_be_bytes());
            wire::push_head(buffer, EVENT_TYPE_TAG, event.len());
            buffer.extend_from_slice(event.as_bytes());
            wire::push_head(buffer, EVENT_OBJECT_TAG, extension);
            wire::push_head(buffer, RAW_TAG, length);
        }
    }
}

/// Returns the bytes after an object.
fn tail(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"}\n",
        Encoding::Protobuf => b"",
    }
}

/// The tags of `WatchEvent` and of `RawExtension`.
const EVENT_TYPE_TAG: u8 = 0x0a;
const EVENT_OBJECT_TAG: u8 = 0x12;
const RAW_TAG: u8 = 0x0a;

/// `{"type":"MODIFIED","object":` and `}\n`, or the tags and lengths of protobuf, rounded up.
const FRAME_OVERHEAD_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_lines() {
        let object = crate::json::tests::config_map("a", 9999);
        let body = String::from_utf8(object.body().to_vec()).unwrap();
        let frame = |event| format!("{{\"type\":\"{event}\",\"object\":{body}}}\n");
        assert_eq!(encode(EventType::Added, &object, View::Full), frame("ADDED"));
        assert_eq!(encode(EventType::Modified, &object, View::Full), frame("MODIFIED"));
        let left = encode_left_selector(&object, ResourceVersion(10_000), View::Full);
        assert_eq!(left, frame("DELETED").replace("9999", "10000"));
    }

    #[test]
    fn an_appended_frame_has_the_same_bytes() {
        use bytes::Buf as _;
        let text = "x".repeat(2 * crate::rope::SHARED_BYTES_MIN);
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let long = crate::list::tests::config_map(encoding, 1, &text);
            let short = crate::list::tests::config_map(encoding, 2, "");
            for view in [View::Full, View::Metadata] {
                let (mut builder, mut expected) = (RopeBuilder::default(), Vec::new());
                for object in [&short, &long, &short] {
                    append(&mut builder, EventType::Added, object, view);
                    expected.extend_from_slice(&encode(EventType::Added, object, view));
                }
                let mut rope = builder.finish();
                assert_eq!(rope.copy_to_bytes(rope.remaining()), expected);
            }
        }
    }

    #[test]
    fn an_error_is_a_status_in_both_encodings() {
        let status = Status::expired(ResourceVersion(30), ResourceVersion(450));
        let json = String::from_utf8(status.to_json().to_vec()).unwrap();
        assert_eq!(
            encode_error(&status, Encoding::Json),
            format!("{{\"type\":\"ERROR\",\"object\":{json}}}\n")
        );
        // The example of `docs/semantics.md` §5.3.
        let frame = encode_error(&status, Encoding::Protobuf);
        let message = b"too old resource version: 30 (450)";
        let expected = [
            &b"\0\0\0\x5f\x0a\x05ERROR\x12\x56\x0a\x54k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x3c"[..],
            b"\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x22",
            message,
            b"\x22\x07Expired\x30\x9a\x03\x1a\0\x22\0",
        ]
        .concat();
        assert_eq!(frame, fix_lengths(expected));
    }

    /// Replaces the outer lengths of the example, so that the message may have any length below
    /// 128.
    fn fix_lengths(mut frame: Vec<u8>) -> Vec<u8> {
        let total = frame.len();
        frame[3] = u8::try_from(total - 4).unwrap();
        frame[12] = u8::try_from(total - 13).unwrap();
        frame[14] = u8::try_from(total - 15).unwrap();
        frame[34] = u8::try_from(total - 35 - 4).unwrap();
        frame
    }
}
