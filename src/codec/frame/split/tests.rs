//! Tests of splitting a stream of watch frames.

use proptest::prelude::*;

use super::*;
use crate::frame::frame_into;
use crate::object::{Layout, Span};
use crate::splice::Splice;
use weir_api::media_type::View;

fn frame(encoding: Encoding, object: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let object = Splice::in_view(object, Layout::default(), View::Full, Span::default());
    frame_into(&mut frame, "MODIFIED", encoding, &object);
    frame
}

#[test]
fn malformed_frames_are_rejected() {
    let push = |text: &'static str| {
        FrameSplitter::new(Encoding::Json, 64)
            .push(Bytes::from_static(text.as_bytes()), &mut Vec::new())
    };
    assert_eq!(push("nonsense\n"), Err(FrameError::Malformed));
    assert_eq!(push("{\"type\":\"ADDED\"}\n"), Err(FrameError::Malformed));
    let more = "{\"type\":\"ADDED\",\"object\":{},\"more\":1}\n";
    assert_eq!(push(more), Err(FrameError::Malformed));
    assert_eq!(push("{\"type\":\"OTHER\",\"object\":{}}\n"), Err(FrameError::Malformed));
    assert_eq!(
        push("{\"type\":\"ADDED\",\"object\":{}}}\n"),
        Ok(()),
        "found by the parser of the object"
    );
    assert_eq!(push("\n\r\n"), Ok(()));
    let long = Bytes::from("x".repeat(65));
    assert_eq!(
        FrameSplitter::new(Encoding::Json, 64).push(long, &mut Vec::new()),
        Err(FrameError::TooLong(64))
    );
}

#[test]
fn a_frame_reads_the_same_in_any_json_layout() {
    for text in [
        "{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\r\n",
        "{ \"type\": \"ADDED\", \"object\": {\"a\":{}} }\n",
        "{\"object\":{\"a\":{}},\"type\":\"ADDED\"}\n",
        "{\"type\":\"\\u0041DDED\",\"object\":{\"a\":{}}}\n",
    ] {
        let mut frames = Vec::new();
        let mut splitter = FrameSplitter::new(Encoding::Json, 64);
        splitter.push(text.into(), &mut frames).unwrap();
        let object = "{\"a\":{}}".into();
        let expected = RawFrame { event: FrameType::Added, object, bytes: text.into() };
        assert_eq!(frames, [expected], "{text}");
    }
}

#[test]
fn a_stream_that_ends_within_a_frame_is_truncated() {
    let mut splitter = FrameSplitter::new(Encoding::Json, 64);
    splitter.push(Bytes::from_static(b"{\"type\":\"A"), &mut Vec::new()).unwrap();
    assert_eq!(splitter.finish(), Err(FrameError::Truncated));
}

#[test]
fn malformed_frames_in_protobuf_are_rejected() {
    let push = |bytes: &'static [u8]| {
        let mut splitter = FrameSplitter::new(Encoding::Protobuf, 64);
        let pushed = splitter.push(Bytes::from_static(bytes), &mut Vec::new());
        pushed.and_then(|()| splitter.finish())
    };
    assert_eq!(push(b""), Ok(()));
    assert_eq!(push(b"\0\0"), Err(FrameError::Truncated));
    assert_eq!(push(b"\0\0\0\x05abc"), Err(FrameError::Truncated));
    assert_eq!(push(b"\0\0\0\x41"), Err(FrameError::TooLong(64)));
    assert_eq!(push(b"\xff\xff\xff\xff"), Err(FrameError::TooLong(64)));
    for malformed in [
        &b"\0\0\0\0"[..],
        b"\0\0\0\x01\xff",
        b"\0\0\0\x04\x0a\x02AB",
        // One field too many, one twice, one of another type, and a group.
        b"\0\0\0\x0f\x0a\x05ADDED\x12\x03\x0a\x01o\x1a\x01x",
        b"\0\0\0\x0f\x0a\x01B\x0a\x05ADDED\x12\x03\x0a\x01o",
        b"\0\0\0\x0e\x0a\x05ADDED\x12\x05\x0a\x01o\x10\x01",
        b"\0\0\0\x05\x08\x01\x12\x01o",
        b"\0\0\0\x0e\x0a\x05ADDED\x12\x03\x0a\x01o\x1b\x1c",
        // An unknown type.
        b"\0\0\0\x08\x0a\x01A\x12\x03\x0a\x01o",
    ] {
        assert_eq!(push(malformed), Err(FrameError::Malformed));
    }
    assert_eq!(push(b"\0\0\0\x0c\x0a\x05ADDED\x12\x03\x0a\x01o"), Ok(()));
}

#[test]
fn a_frame_within_one_chunk_is_not_copied() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let one = frame(encoding, b"{}");
        let chunk = Bytes::from([&one[..], &one, &one].concat());
        let (mut splitter, mut frames) = (FrameSplitter::new(encoding, 64), Vec::new());
        splitter.push(chunk.slice(..one.len() - 1), &mut frames).unwrap();
        splitter.push(chunk.slice(one.len() - 1..), &mut frames).unwrap();
        let is_slice = |frame: &RawFrame| chunk.as_ptr_range().contains(&frame.bytes.as_ptr());
        assert_eq!(frames.iter().map(is_slice).collect::<Vec<_>>(), [false, true, true]);
        assert!(frames.iter().all(|frame| frame.bytes == one));
    }
}

proptest! {
    #[test]
    fn chunks_may_be_cut_anywhere(protobuf in any::<bool>(), bodies in prop::collection::vec("[a-z\u{e9}]{0,9}", 1..9), cuts in prop::collection::vec(0usize..400, 0..9)) {
        let encoding = if protobuf { Encoding::Protobuf } else { Encoding::Json };
        let objects: Vec<_> = bodies.iter().map(|body| format!("{{\"k\":\"{body}\"}}")).collect();
        let stream: Vec<u8> =
            objects.iter().flat_map(|object| frame(encoding, object.as_bytes())).collect();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut splitter = FrameSplitter::new(encoding, 1024);
        let mut frames = Vec::new();
        for pair in cuts.windows(2) {
            splitter.push(Bytes::copy_from_slice(&stream[pair[0]..pair[1]]), &mut frames).unwrap();
        }
        splitter.finish().unwrap();
        let seen: Vec<_> = frames.iter().map(|frame| String::from_utf8(frame.object.to_vec()).unwrap()).collect();
        prop_assert_eq!(seen, objects);
        prop_assert!(frames.iter().all(|frame| frame.event == FrameType::Modified));
    }
}
