//! The requests of a client's HTTP/1.1 connection, before hyper reads them.
//!
//! The reader must know where each head begins, and so it frames messages itself. hyper must frame
//! them alike: else a part of a body could pass as a head that was not read here, or another head
//! be rewritten. Therefore hyper's own parser reads the heads here too ([`super::head`]), what
//! two readers could frame differently is refused, and nothing behind it passes. A head passes when
//! it is complete, so that hyper sees no other bytes of it. After a head that asks for an upgrade
//! everything passes: what follows is never read as a request, whether the upgrade succeeds or not
//! ([mod@crate::server::router]).
//!
//! A client sends many requests with the same fields. The block of fields of the last plain GET is
//! kept from the second one on, and a head that has it again is only compared.

use super::aside::{Aside, RefusedHead};
use super::head::{self, BodyFraming, Head, NoHead};
use super::{End, Step};
use crate::server::connection::activity::ConnActivity;

#[derive(Debug)]
pub(super) struct RequestReader {
    head_bytes_max: usize,
    state: State,
    /// The header block of the last plain GET but the first.
    usual_block: Vec<u8>,
    had_plain: bool,
    /// The bytes of an incomplete head that were searched for its end.
    searched: usize,
}

#[derive(Debug)]
enum State {
    Head,
    /// This much is left of a body.
    Body(u64),
    Chunks(Chunks),
    /// Everything passes.
    Upgrade,
    /// Nothing passes any more.
    Ended(End),
}

impl RequestReader {
    pub(super) fn new(head_bytes_max: usize) -> Self {
        let (usual_block, had_plain, searched) = (Vec::new(), false, 0);
        Self { head_bytes_max, state: State::Head, usual_block, had_plain, searched }
    }

    /// How the connection ends, if nothing passes any more.
    pub(super) fn end(&self) -> Option<End> {
        match self.state {
            State::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Reads on. `bytes` are all that came and that no step has passed or replaced.
    pub(super) fn step(&mut self, bytes: &[u8], activity: &ConnActivity) -> Step {
        match &mut self.state {
            State::Head => self.head(bytes, activity),
            State::Body(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= here as u64;
                if *left == 0 {
                    self.state = State::Head;
                }
                Step::Pass(here)
            }
            State::Chunks(chunks) => match chunks.read(bytes) {
                Ok(length) => {
                    if *chunks == Chunks::End {
                        self.state = State::Head;
                    }
                    Step::Pass(length)
                }
                Err(_) => {
                    self.state = State::Ended(End::Broken);
                    Step::Replace { taken: bytes.len(), by: Vec::new() }
                }
            },
            State::Upgrade => Step::Pass(bytes.len()),
            State::Ended(_) => Step::Replace { taken: bytes.len(), by: Vec::new() },
        }
    }

    fn head(&mut self, bytes: &[u8], activity: &ConnActivity) -> Step {
        if let Some(step) = skip_empty_lines(bytes) {
            return step;
        }
        if let Some(length) = self.usual_head(bytes) {
            self.searched = 0;
            activity.end_head(None);
            return Step::Pass(length);
        }
        // The bytes that came first were parsed, and had no error up to their end.
        let is_incomplete = self.searched > 0 && head::end(bytes, self.searched).is_none();
        let read = if is_incomplete { Err(NoHead::Incomplete) } else { head::read(bytes) };
        let head = match read {
            Ok(head) => head,
            Err(NoHead::Incomplete) if bytes.len() > self.head_bytes_max => {
                return self.refuse(bytes, RefusedHead::too_long(self.head_bytes_max), activity);
            }
            Err(NoHead::Incomplete) => {
                self.searched = bytes.len();
                activity.begin_head();
                return Step::Withhold;
            }
            Err(NoHead::Refused(refused)) => return self.refuse(bytes, refused, activity),
        };
        if head.length > self.head_bytes_max {
            return self.refuse(bytes, RefusedHead::too_long(self.head_bytes_max), activity);
        }
        self.pass(head, bytes, activity)
    }

    /// Returns the length of a head that has the block of the last one.
    fn usual_head(&self, bytes: &[u8]) -> Option<usize> {
        if self.usual_block.is_empty() {
            return None;
        }
        let line = head::plain_line(bytes)?;
        let is_usual = bytes.get(line..)?.starts_with(&self.usual_block);
        is_usual.then_some(line + self.usual_block.len())
    }

    fn pass(&mut self, head: Head, bytes: &[u8], activity: &ConnActivity) -> Step {
        let Head { length, replacement, fields, body, block } = head;
        self.searched = 0;
        self.state = match body {
            BodyFraming::Empty => State::Head,
            BodyFraming::Length(length) => State::Body(length),
            BodyFraming::Chunked => State::Chunks(Chunks::Start),
            BodyFraming::Upgrade => State::Upgrade,
        };
        if let Some(block) = block.and_then(|start| bytes.get(start..length))
            && head::plain_line(bytes).is_some()
            && block.len() <= USUAL_BYTES_MAX
            && std::mem::replace(&mut self.had_plain, true)
        {
            self.usual_block.clear();
            self.usual_block.extend_from_slice(block);
        }
        let is_large = fields.is_some();
        activity.end_head(fields.map(Aside::Fields));
        match replacement {
            None => Step::Pass(length),
            // The fields take far more memory than on the wire. So hyper takes this head before the
            // next is read.
            Some(by) if is_large => Step::Part { taken: length, by },
            Some(by) => Step::Replace { taken: length, by },
        }
    }

    /// Gives hyper another request in place of one that is refused.
    fn refuse(&mut self, bytes: &[u8], refused: RefusedHead, activity: &ConnActivity) -> Step {
        self.state = State::Ended(End::Refused);
        activity.end_head(Some(Aside::Refused(refused)));
        // The response to a HEAD has no body.
        let method = if bytes.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
        let by = format!("{method} / HTTP/1.1\r\nHost: weir\r\n\r\n").into_bytes();
        Step::Replace { taken: bytes.len(), by }
    }
}

/// Drops empty lines before a head, which hyper accepts (RFC 9112 §2.2). They begin no head.
fn skip_empty_lines(bytes: &[u8]) -> Option<Step> {
    let mut rest = bytes;
    while let Some(next) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) {
        rest = next;
    }
    let taken = bytes.len() - rest.len();
    match rest {
        b"\r" if taken == 0 => Some(Step::Withhold),
        _ if taken == 0 => None,
        _ => Some(Step::Replace { taken, by: Vec::new() }),
    }
}

/// What comes next in a chunked body (RFC 9112 §7.1).
///
/// The grammar is that of hyper's decoder, which is as strict as Go's: a line of a size ends with
/// CRLF, and white space may stand only behind the digits. hyper has limits besides, and closes the
/// connection beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// A size comes next.
    Start,
    /// Digits of a size have come, which make this much.
    Size(u64),
    SizeSpace(u64),
    Extension(u64),
    SizeLf(u64),
    /// This much is left of a chunk.
    Data(u64),
    DataCr,
    DataLf,
    /// A trailer line or the last line comes next.
    LineStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

impl Chunks {
    /// Reads on. Returns how many bytes belong to the body: all of them if it goes on, and at least
    /// one. Bytes before a malformed one are returned first.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while let (Some(&byte), false) = (bytes.get(at), *self == Self::End) {
            if let Self::Data(left) = *self {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += here;
                let left = left - here as u64;
                *self = if left == 0 { Self::DataCr } else { Self::Data(left) };
            } else {
                *self = match self.after(byte) {
                    Ok(next) => next,
                    Err(Malformed) if at > 0 => return Ok(at),
                    Err(Malformed) => return Err(Malformed),
                };
                at += 1;
            }
        }
        Ok(at)
    }

    fn after(self, byte: u8) -> Result<Self, Malformed> {
        Ok(match (self, byte) {
            (Self::Start, _) => Self::Size(hex_digit(byte).ok_or(Malformed)?),
            (Self::Size(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size) | Self::SizeSpace(size), b' ' | b'\t') => Self::SizeSpace(size),
            (Self::Size(size) | Self::SizeSpace(size), b';') => Self::Extension(size),
            (Self::SizeSpace(size) | Self::Extension(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size), _) => {
                let digit = hex_digit(byte).ok_or(Malformed)?;
                Self::Size(
                    size.checked_mul(16)
                        .and_then(|shifted| shifted.checked_add(digit))
                        .ok_or(Malformed)?,
                )
            }
            (Self::Extension(_), b'\n') => return Err(Malformed),
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeLf(0), b'\n') => Self::LineStart,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::LineStart, b'\r') => Self::EndLf,
            (Self::LineStart, _) => Self::Trailer,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::Trailer, _) => Self::Trailer,
            (Self::TrailerLf, b'\n') => Self::LineStart,
            (Self::EndLf, b'\n') => Self::End,
            _ => return Err(Malformed),
        })
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// A longer block is not kept: few clients send one, and their connections would need more memory.
const USUAL_BYTES_MAX: usize = 4096;
