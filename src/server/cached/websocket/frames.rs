//! The frames of a client, as kube-apiserver reads them (`golang.org/x/net/websocket` and
//! `wsstream.IgnoreReceives`), and frames to it.
//!
//! kube-apiserver checks little: that a frame is masked, and that the payload of one with data is
//! not too long. It reads on after a reserved opcode or bit, a control frame that is fragmented or
//! too long, and text that is not UTF-8 (`docs/semantics.md` §6.3). A stricter reader would end
//! watches that the API server keeps open.
//!
//! Payloads are discarded as they come, so that one of any size takes no memory.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A frame of a client that needs a reply or ends the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Ping(Vec<u8>),
    /// A frame without a mask, which ends the watch.
    Unmasked,
    /// A close frame, data that is too long, or the end of the connection.
    End,
}

#[derive(Debug)]
pub(super) struct FrameReader<R> {
    io: R,
    buffer: BytesMut,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A frame begins.
    Head,
    /// The payload of a ping, of which `payload` is sent back.
    Ping { key: [u8; 4], left: u64, payload: Vec<u8> },
    /// A payload that nobody reads.
    Discard { left: u64 },
}

struct Head {
    opcode: u8,
    length: u64,
    key: Option<[u8; 4]>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(io: R) -> Self {
        Self { io, buffer: BytesMut::with_capacity(READ_BUFFER_BYTES), state: State::Head }
    }

    /// Returns the next event that needs a reply. Cancel-safe.
    pub(super) async fn next(&mut self) -> Received {
        loop {
            if let Some(received) = self.parse() {
                return received;
            }
            self.buffer.reserve(READ_BUFFER_BYTES);
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return self.end();
            }
        }
    }

    pub(super) async fn drain(&mut self) {
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ_BUFFER_BYTES);
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Parses what has been read. `None` for more bytes.
    fn parse(&mut self) -> Option<Received> {
        loop {
            match &mut self.state {
                State::Head => {
                    let head = take_head(&mut self.buffer)?;
                    let Some(key) = head.key else { return Some(Received::Unmasked) };
                    self.state = match head.opcode {
                        CLOSE => return Some(Received::End),
                        PING => State::Ping { key, left: head.length, payload: Vec::new() },
                        PONG => State::Discard { left: head.length },
                        _ if head.length > DATA_BYTES_MAX => return Some(Received::End),
                        _ => State::Discard { left: head.length },
                    };
                }
                State::Ping { key, left, payload } => {
                    while *left > 0 && !self.buffer.is_empty() {
                        let byte = self.buffer.get_u8();
                        *left -= 1;
                        match key.iter().cycle().nth(payload.len()) {
                            Some(mask) if payload.len() < CONTROL_BYTES_MAX => {
                                payload.push(byte ^ mask);
                            }
                            _ => discard(&mut self.buffer, left),
                        }
                    }
                    if *left > 0 {
                        return None;
                    }
                    let payload = std::mem::take(payload);
                    self.state = State::Head;
                    return Some(Received::Ping(payload));
                }
                State::Discard { left } => {
                    discard(&mut self.buffer, left);
                    if *left > 0 {
                        return None;
                    }
                    self.state = State::Head;
                }
            }
        }
    }

    /// Returns what the end of the connection means: a ping that is cut off is still answered.
    fn end(&mut self) -> Received {
        match std::mem::replace(&mut self.state, State::Discard { left: 0 }) {
            State::Ping { payload, .. } => Received::Ping(payload),
            State::Head | State::Discard { .. } => Received::End,
        }
    }
}

fn discard(buffer: &mut BytesMut, left: &mut u64) {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    buffer.advance(count);
    *left -= count as u64;
}

fn take_head(buffer: &mut BytesMut) -> Option<Head> {
    let [first, second, rest @ ..] = &**buffer else { return None };
    let (opcode, is_masked) = (first & 0x0f, second & 0x80 != 0);
    let (length, rest) = match second & 0x7f {
        126 => {
            let (digits, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_be_bytes(*digits)), rest)
        }
        127 => {
            let (digits, rest) = rest.split_first_chunk()?;
            // The upstream ignores the highest bit.
            (u64::from_be_bytes(*digits) & (u64::MAX >> 1), rest)
        }
        length => (u64::from(length), rest),
    };
    let (key, rest) = match is_masked {
        true => rest.split_first_chunk().map(|(key, rest)| (Some(*key), rest))?,
        false => (None, rest),
    };
    let size = buffer.len() - rest.len();
    buffer.advance(size);
    Some(Head { opcode, length, key })
}

pub(super) async fn write_frame<W: AsyncWrite + Unpin>(
    io: &mut W,
    opcode: u8,
    payload: &[u8],
) -> std::io::Result<()> {
    io.write_u8(FIN | opcode).await?;
    match payload.len() {
        length @ ..126 => io.write_u8(length.to_le_bytes()[0]).await?,
        length => match u16::try_from(length) {
            Ok(length) => {
                io.write_u8(126).await?;
                io.write_u16(length).await?;
            }
            Err(_) => {
                io.write_u8(127).await?;
                io.write_u64(length as u64).await?;
            }
        },
    }
    io.write_all(payload).await
}

pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;
const FIN: u8 = 0x80;
/// The longest payload of a control frame (RFC 6455 section 5.5). The upstream answers a longer
/// ping with this many bytes of it.
const CONTROL_BYTES_MAX: usize = 125;
/// The upstream's limit on the payload of a data frame, `DefaultMaxPayloadBytes`.
const DATA_BYTES_MAX: u64 = 32 << 20;
/// Clients send only pings and a close frame.
const READ_BUFFER_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests;
