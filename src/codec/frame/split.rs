//! Splits a stream of watch frames, wherever its chunks may be cut.

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protobuf::wire::Fields;
use weir_api::media_type::Encoding;

weir_api::labels! {
    /// The type of a watch event. A frame of any other type cannot be read.
    pub enum FrameType {
        /// The object is new to the watcher.
        Added = "ADDED",
        /// The object changed and was known to the watcher.
        Modified = "MODIFIED",
        /// The object was deleted, or left the watcher's selector.
        Deleted = "DELETED",
        /// No object: the watch has come to a resourceVersion.
        Bookmark = "BOOKMARK",
        /// A Status, with which the watch ends.
        Error = "ERROR",
    }
}

impl FrameType {
    fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str().as_bytes() == text)
    }
}

/// One event as the API server framed it. `Debug` shows no part of the object.
#[derive(Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// Its type.
    pub event: FrameType,
    /// The bytes of `object`, in protobuf with their envelope. A slice of the frame: copy it to
    /// keep it. In JSON it may be any text in the position of the object; its parser must check
    /// that it is exactly one value.
    pub object: Bytes,
    /// The whole frame, with its length or its end of line.
    pub bytes: Bytes,
}

impl std::fmt::Debug for RawFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawFrame").field("event", &self.event).finish_non_exhaustive()
    }
}

/// The reason why a stream of frames ended with an error.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// A frame is not a watch event.
    #[error("the upstream sent a watch frame that cannot be read")]
    Malformed,
    /// A frame is longer than the limit, in bytes.
    #[error("the upstream sent a watch frame of more than {0} bytes")]
    TooLong(usize),
    /// The stream ended within a frame.
    #[error("the upstream's watch ended within a frame")]
    Truncated,
}

/// Splits a byte stream into frames, wherever its chunks may be cut.
#[derive(Debug)]
pub struct FrameSplitter {
    encoding: Encoding,
    max_bytes: usize,
    /// The beginning of an incomplete frame.
    partial: BytesMut,
}

impl FrameSplitter {
    /// Creates a splitter that rejects frames of more than `max_bytes`.
    pub fn new(encoding: Encoding, max_bytes: usize) -> Self {
        Self { encoding, max_bytes, partial: BytesMut::new() }
    }

    /// Reads the next chunk and appends the frames that it completes.
    pub fn push(&mut self, chunk: Bytes, frames: &mut Vec<RawFrame>) -> Result<(), FrameError> {
        match self.encoding {
            Encoding::Json => self.push_lines(chunk, frames),
            Encoding::Protobuf => self.push_length_delimited(chunk, frames),
        }
    }

    /// Ends the stream. Returns an error if it ended within a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let rest = match self.encoding {
            Encoding::Json => self.partial.trim_ascii(),
            Encoding::Protobuf => &self.partial,
        };
        if rest.is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }

    fn push_lines(
        &mut self,
        mut chunk: Bytes,
        frames: &mut Vec<RawFrame>,
    ) -> Result<(), FrameError> {
        while let Some(end) = memchr::memchr(b'\n', &chunk) {
            let line = self.complete(chunk.split_to(end + 1));
            self.check(line.len())?;
            if !line.trim_ascii().is_empty() {
                frames.push(parse_line(line)?);
            }
        }
        self.partial.extend_from_slice(&chunk);
        self.check(self.partial.len())
    }

    fn push_length_delimited(
        &mut self,
        mut chunk: Bytes,
        frames: &mut Vec<RawFrame>,
    ) -> Result<(), FrameError> {
        while let Some(missing) = self.missing(&chunk)?.filter(|missing| *missing <= chunk.len()) {
            frames.push(parse_event(self.complete(chunk.split_to(missing)))?);
        }
        self.partial.extend_from_slice(&chunk);
        Ok(())
    }

    /// Returns how many bytes from a chunk on the frame ends; `None` if its length has not arrived.
    /// Checks that length before any of the frame is buffered.
    fn missing(&self, chunk: &[u8]) -> Result<Option<usize>, FrameError> {
        let Ok(length) = self.partial.as_ref().chain(chunk).try_get_u32() else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.check(length)?;
        Ok(Some((size_of::<u32>() + length).saturating_sub(self.partial.len())))
    }

    /// Returns a frame, of which this is the end, or all. One that is in one chunk is not copied.
    fn complete(&mut self, end: Bytes) -> Bytes {
        if self.partial.is_empty() {
            return end;
        }
        self.partial.extend_from_slice(&end);
        self.partial.split().freeze()
    }

    fn check(&self, length: usize) -> Result<(), FrameError> {
        if length > self.max_bytes { Err(FrameError::TooLong(self.max_bytes)) } else { Ok(()) }
    }
}

/// Parses a JSON frame. The usual form, which every API server writes, is recognized by its
/// beginning and end. Its object is not parsed here, so that it is parsed once.
fn parse_line(line: Bytes) -> Result<RawFrame, FrameError> {
    if let Some((event, object)) = parse_canonical_line(&line) {
        return Ok(RawFrame { event, object: line.slice_ref(object), bytes: line });
    }
    parse_any_line(line)
}

fn parse_canonical_line(line: &[u8]) -> Option<(FrameType, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let (event, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'"')?)?;
    let object = rest.strip_prefix(br#"","object":"#)?.trim_ascii_end().strip_suffix(b"}")?;
    let is_object = object.starts_with(b"{") && object.ends_with(b"}");
    FrameType::parse(event).filter(|_| is_object).zip(Some(object))
}

/// Parses a JSON frame in any other form.
fn parse_any_line(line: Bytes) -> Result<RawFrame, FrameError> {
    // Reject unknown members: Weir would lose them.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Frame<'a> {
        #[serde(rename = "type")]
        event: Box<str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let frame: Frame<'_> = serde_json::from_slice(&line).map_err(|_| FrameError::Malformed)?;
    let event = FrameType::parse(frame.event.as_bytes()).ok_or(FrameError::Malformed)?;
    let object = line.slice_ref(frame.object.get().as_bytes());
    Ok(RawFrame { event, object, bytes: line })
}

fn parse_event(frame: Bytes) -> Result<RawFrame, FrameError> {
    let message = frame.get(size_of::<u32>()..).ok_or(FrameError::Malformed)?;
    let [event, extension] = exact_fields(message).ok_or(FrameError::Malformed)?;
    let [object] = exact_fields(extension).ok_or(FrameError::Malformed)?;
    let event = FrameType::parse(event).ok_or(FrameError::Malformed)?;
    Ok(RawFrame { event, object: frame.slice_ref(object), bytes: frame })
}

/// Returns the first `N` fields of a message that has each of them once and no other: Weir would
/// lose unknown fields.
fn exact_fields<const N: usize>(message: &[u8]) -> Option<[&[u8]; N]> {
    let mut members_found = [None; N];
    for field in Fields::new(message) {
        let field = field.ok()?;
        let place = members_found.get_mut(usize::try_from(field.number).ok()?.checked_sub(1)?)?;
        if place.replace(field.bytes().ok()?).is_some() {
            return None;
        }
    }
    let mut members = [&[][..]; N];
    for (member, found_bytes) in members.iter_mut().zip(members_found) {
        *member = found_bytes?;
    }
    Some(members)
}

#[cfg(test)]
mod tests;
