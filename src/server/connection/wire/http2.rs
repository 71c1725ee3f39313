//! The frames of a client's HTTP/2 connection (RFC 9113 §4), before h2 reads them.
//!
//! Only header blocks matter here ([`super::header_block`]); everything else passes. A block that
//! needs no change passes as well, in the frame in which it came. Others are rewritten, and so
//! is each block of several frames, which is joined first: in its own parts, h2 would forget some
//! of its errors. The bytes of an incomplete block are withheld, as many as h2 would take itself. A
//! flood of CONTINUATION frames ends at that limit, or at that of their number.
//!
//! h2 must read each block as it was read here. So nothing that cannot be read is passed on: h2
//! gets a frame that ends the connection with GOAWAY, and no byte behind it. The rules are those of
//! h2 or stricter.

use std::mem;

use super::Step;
use super::header_block::{HeaderBlocks, STREAM_ERROR};
use super::hpack::huffman::BadBlock;

/// Reads the frames of a connection, in their order, after the preface.
#[derive(Debug)]
pub(super) struct FrameReader {
    blocks: HeaderBlocks,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The head of a frame comes next.
    Head,
    /// This much is left of a frame that passes.
    Payload(usize),
    /// A CONTINUATION frame comes next.
    Block(Box<PartialBlock>),
    /// Nothing passes any more.
    Broken,
}

/// A header block whose end has not come yet.
#[derive(Debug)]
struct PartialBlock {
    stream: u32,
    ends_stream: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    /// The bytes of its frames.
    received: usize,
    frames: usize,
}

impl FrameReader {
    pub(super) fn new() -> Self {
        Self { blocks: HeaderBlocks::new(), state: State::Head }
    }

    /// Whether nothing passes any more.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken)
    }

    /// Reads on. `bytes` are all that came and that no step has passed or replaced.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        match self.state {
            State::Broken => return Step::Replace { taken: bytes.len(), by: Vec::new() },
            State::Payload(left) => return self.pass(left, bytes),
            State::Head | State::Block(_) => {}
        }
        let Some((head, rest)) = bytes.split_first_chunk() else { return Step::Withhold };
        let head = Head::read(head);
        let in_block = matches!(self.state, State::Block(_));
        if !matches!(head.kind, HEADERS | PUSH_PROMISE | CONTINUATION) && !in_block {
            return self.pass(HEAD_BYTES + head.length, bytes);
        }
        if head.length > FRAME_BYTES_MAX {
            return self.break_off(head.stream, bytes.len());
        }
        let Some(payload) = rest.get(..head.length) else { return Step::Withhold };
        let stepped = match head.kind {
            HEADERS if !in_block => self.headers(head, payload),
            CONTINUATION => self.continuation(head, payload),
            // A client promises nothing, and nothing comes between the frames of a block.
            _ => Err(BadBlock),
        };
        stepped.unwrap_or_else(|BadBlock| self.break_off(head.stream, bytes.len()))
    }

    /// Has the next `length` bytes pass.
    fn pass(&mut self, length: usize, bytes: &[u8]) -> Step {
        let passed = length.min(bytes.len());
        self.state = match length - passed {
            0 => State::Head,
            left => State::Payload(left),
        };
        Step::Pass(passed)
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<Step, BadBlock> {
        let (block, depends_on_itself) = head.strip(payload)?;
        let ends_stream = head.flags & END_STREAM != 0;
        let taken = HEAD_BYTES + payload.len();
        if head.flags & END_HEADERS != 0 {
            let edited = self.blocks.read(block)?;
            if edited.is_none() && !depends_on_itself {
                return Ok(Step::Pass(taken));
            }
            let bytes = edited.unwrap_or_else(|| block.to_vec());
            let stream = head.stream;
            let by = frames(stream, ends_stream, depends_on_itself, bytes);
            return Ok(Step::Replace { taken, by });
        }
        self.state = State::Block(Box::new(PartialBlock {
            stream: head.stream,
            ends_stream,
            depends_on_itself,
            bytes: block.to_vec(),
            received: taken,
            frames: 1,
        }));
        Ok(Step::Replace { taken, by: Vec::new() })
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<Step, BadBlock> {
        let State::Block(block) = &mut self.state else { return Err(BadBlock) };
        let taken = HEAD_BYTES + payload.len();
        block.received += taken;
        block.frames += 1;
        let is_flood = block.received > BLOCK_BYTES_MAX || block.frames > BLOCK_FRAMES_MAX;
        if head.stream != block.stream || is_flood {
            return Err(BadBlock);
        }
        block.bytes.extend_from_slice(payload);
        if head.flags & END_HEADERS == 0 {
            return Ok(Step::Replace { taken, by: Vec::new() });
        }
        let PartialBlock { stream, ends_stream, depends_on_itself, bytes, .. } = &mut **block;
        let (stream, ends_stream, resets) = (*stream, *ends_stream, *depends_on_itself);
        let bytes = mem::take(bytes);
        self.state = State::Head;
        let edited = self.blocks.read(&bytes)?;
        let by = frames(stream, ends_stream, resets, edited.unwrap_or(bytes));
        Ok(Step::Replace { taken, by })
    }

    /// Has h2 end the connection: its frame is a field with the index 0.
    fn break_off(&mut self, stream: u32, taken: usize) -> Step {
        self.state = State::Broken;
        let mut by = Vec::new();
        put_frame(HEADERS, END_HEADERS, stream, &[0x80], &mut by);
        Step::Replace { taken, by }
    }
}

#[derive(Clone, Copy, Debug)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn read(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        // The first bit has no meaning.
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1) }
    }

    /// Returns the header block in the payload of a HEADERS frame, and whether its stream is to
    /// depend on itself. h2 does not read the block of such a frame, although the next ones refer
    /// to it; it resets the stream.
    fn strip(self, payload: &[u8]) -> Result<(&[u8], bool), BadBlock> {
        let (mut block, mut padding, mut depends_on_itself) = (payload, 0, false);
        if self.flags & PADDED != 0 {
            let (length, rest) = block.split_first().ok_or(BadBlock)?;
            (block, padding) = (rest, usize::from(*length));
        }
        if self.flags & PRIORITY != 0 {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(BadBlock)?;
            let [dependency @ .., _weight] = *priority;
            depends_on_itself = u32::from_be_bytes(dependency) & (u32::MAX >> 1) == self.stream;
            block = rest;
        }
        let length = block.len().checked_sub(padding).ok_or(BadBlock)?;
        Ok((block.get(..length).unwrap_or_default(), depends_on_itself))
    }
}

/// Returns a header block in as few frames as possible. h2 resets the stream if `resets`.
fn frames(stream: u32, ends_stream: bool, resets: bool, mut block: Vec<u8>) -> Vec<u8> {
    if resets {
        block.push(STREAM_ERROR);
    }
    let mut bytes = Vec::with_capacity(block.len() + block.len() / 1024 + HEAD_BYTES);
    let (mut kind, mut flags) = (HEADERS, if ends_stream { END_STREAM } else { 0 });
    let mut rest = &*block;
    while let Some((part, behind)) = rest.split_at_checked(FRAME_BYTES_MAX)
        && !behind.is_empty()
    {
        put_frame(kind, flags, stream, part, &mut bytes);
        (kind, flags, rest) = (CONTINUATION, 0, behind);
    }
    put_frame(kind, flags | END_HEADERS, stream, rest, &mut bytes);
    bytes
}

fn put_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], bytes: &mut Vec<u8>) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The longest frame that Weir accepts
/// ([`crate::server::connection::http_limits`] sets the same).
const FRAME_BYTES_MAX: usize = 16 << 10;
/// The longest header block, with the heads of its frames. h2 accepts 81 frames for a header list
/// of 1 MiB, of which the longest path may need four more than the client's.
const BLOCK_BYTES_MAX: usize = 76 * FRAME_BYTES_MAX;
/// h2 has the same limit (CVE-2024-27316).
const BLOCK_FRAMES_MAX: usize = 81;
