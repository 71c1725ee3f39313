//! Parsers of the upstream's JSON, and the output for clients.

use std::io::Read;

use bytes::Bytes;

use super::{
    FRAME_BYTES_MAX, check_any, check_bookmark, check_list, check_object, pods, split_anyhow,
    widgets,
};
use crate::api::media_type::{Encoding, View};
use crate::api::resource::{ApiResource, Representation};
use crate::codec::frame::{FrameSplitter, RawFrame};
use crate::codec::ingest::Ingested;
use crate::codec::list::{self as list_codec, ListReader};
use crate::codec::{gzip as gzip_codec, ingest, pretty as pretty_codec};

/// Frames are the same wherever the stream is cut, and parse to the same after they were written
/// again.
pub fn frames(data: &[u8]) {
    let frames = split_anyhow(Encoding::Json, data);
    let mut joined = Vec::new();
    for frame in &frames {
        let event = serde_json::to_string(frame.event.as_str()).expect("a string");
        joined.extend_from_slice(format!("{{\"type\":{event},\"object\":").as_bytes());
        joined.extend_from_slice(&frame.object);
        joined.extend_from_slice(b"}\n");
    }
    // Room for the bytes that the canonical form adds.
    let mut again = Vec::new();
    let mut splitter = FrameSplitter::new(Encoding::Json, 2 * FRAME_BYTES_MAX);
    assert_eq!(splitter.push(joined.into(), &mut again), Ok(()));
    // Their layout may differ.
    let content = |frame: RawFrame| (frame.event, frame.object);
    let [again, frames] = [again, frames].map(|frames| frames.into_iter().map(content));
    assert!(again.eq(frames), "other frames after they were written again");
}

/// A list that was parsed and written again parses to the same, and its bytes are a fixed point.
pub fn list(data: &[u8]) {
    for resource in [pods(), widgets()] {
        for representation in [Representation::Json, Representation::MetadataJson] {
            check_list(Bytes::copy_from_slice(data), &resource, representation);
        }
        check_reader(data, &resource);
    }
}

/// A list that parses in pieces parses as a whole too, to the same.
fn check_reader(data: &[u8], resource: &ApiResource) {
    let (head, tail) = data.split_at(data.len() / 2);
    let (mut reader, mut objects) = (ListReader::new(FRAME_BYTES_MAX), Vec::new());
    for chunk in [head, tail] {
        let take = |object| {
            if let Ingested::Object(object) = object {
                objects.push(object);
            }
        };
        if reader.push(chunk, resource, Representation::Json, take).is_err() {
            return;
        }
    }
    let Ok(page) = reader.finish() else { return };
    let whole = list_codec::parse(&Bytes::copy_from_slice(data), resource, Representation::Json)
        .expect("it was read in pieces");
    assert_eq!(page.resource_version, whole.resource_version);
    assert_eq!(page.continue_token, whole.continue_token);
    assert!(objects.iter().map(|object| object.body()).eq(whole.objects.iter().map(|object| object.body())));
}

/// The body of an object is the received bytes; spliced forms parse as intended.
pub fn object(data: &[u8]) {
    if !is_of_a_frame(data) {
        return;
    }
    for resource in [pods(), widgets()] {
        for representation in [Representation::Json, Representation::MetadataJson] {
            check_any(data, &resource, representation);
            let Ok(object) = ingest::object(data, &resource, representation) else { continue };
            assert_eq!(object.body(), data.trim_ascii());
            check_object(&object, &resource, representation);
            let item = object.list_item(View::Full).to_vec();
            if let Ok(item) = ingest::list_item(&item, &resource, representation) {
                assert_eq!(item.body(), object.body());
            } else {
                // No typed object names its kind twice.
                assert!(item.starts_with(br#"{"kind":"#) || item.starts_with(br#"{"apiVersion":"#));
            }
        }
    }
}

/// At their source objects have no line break; frames made of others cannot be parsed.
fn is_of_a_frame(data: &[u8]) -> bool {
    !data.trim_ascii().contains(&b'\n')
}

/// A learnt template writes bookmarks that parse to the intended values.
pub fn bookmark(data: &[u8]) {
    let object = data.trim_ascii();
    if object.first() == Some(&b'{') && is_of_a_frame(object) {
        check_bookmark(object, Representation::Json);
    }
}

/// Indentation adds only space outside of strings.
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

/// Bytes that were compressed piece by piece decompress to the same.
pub fn gzip(data: &[u8]) {
    let (size, body) = data.split_first().map_or((1, data), |(size, rest)| (*size, rest));
    let mut writer = gzip_codec::MemberWriter::new();
    let mut compressed = Vec::new();
    for piece in body.chunks(usize::from(size).max(1)) {
        writer.push(piece).expect("memory does not fail");
        compressed.extend(writer.take());
    }
    compressed.extend(writer.finish().expect("memory does not fail"));
    let mut back = Vec::new();
    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut back).expect("it is gzip");
    assert_eq!(back, body);
}
