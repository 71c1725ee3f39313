//! A watch over a WebSocket: the same stream as any other watch, with one message for each event
//! (`docs/semantics.md` §6.3).
//!
//! The handshake and the frames are read as the upstream reads them, and not as strictly as RFC
//! 6455 allows: what the upstream tolerates must not end a watch here.
//!
//! One piece of the watch is buffered, and counts as held. While a client does not read, nothing
//! more is taken from the stream, which eventually falls out of the history, as it does behind an
//! HTTP body. The frames of a client are read and discarded.

mod frames;
mod handshake;

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures_util::StreamExt;
use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::media_type::Encoding;
use crate::codec::held_bytes::HeldBytes;
use crate::codec::rope::Rope;
use crate::server::cached::websocket::frames::{
    BINARY, CLOSE, FrameReader, PONG, Received, TEXT, write_frame,
};
pub(crate) use crate::server::cached::websocket::handshake::Handshake;
use crate::server::delegate::Reason;
use crate::server::http::body::{Body, Frames};

/// The open watches over WebSockets of a server.
#[derive(Debug)]
pub(crate) struct Sockets {
    tasks: TaskTracker,
    abort: CancellationToken,
}

impl Sockets {
    /// Creates the set. A drain waits for `tasks`; `abort` ends them.
    pub(crate) fn new(tasks: TaskTracker, abort: CancellationToken) -> Self {
        Self { tasks, abort }
    }

    /// Accepts a handshake, and sends the body of `watch` over the WebSocket, which holds `guards`
    /// until it is closed. Returns the 101.
    pub(crate) fn open(
        &self,
        handshake: Handshake,
        watch: Response<Body>,
        encoding: Encoding,
        held: HeldBytes,
        guards: impl Send + 'static,
    ) -> Result<Response<Body>, Reason> {
        let Body::Watch(frames) = watch.into_body() else { return Err(Reason::Upgrade) };
        let answer = handshake.response();
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            abort.run_until_cancelled(serve(handshake.upgrade, frames, encoding, held)).await;
            drop(guards);
        });
        Ok(answer)
    }
}

async fn serve(upgrade: OnUpgrade, frames: Frames, encoding: Encoding, held: HeldBytes) {
    match upgrade.await {
        Ok(io) => send_watch(TokioIo::new(io), frames, encoding, held).await,
        Err(error) => {
            tracing::debug!(%error, "a client disconnected before its WebSocket was open")
        }
    }
}

/// Sends a watch until it ends or the client disconnects, then what the upstream sends at the end:
/// a close frame 1000 in each case, also in reply to one with another code.
async fn send_watch<I>(io: I, frames: Frames, encoding: Encoding, held: HeldBytes)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let (read, write) = tokio::io::split(io);
    let mut reader = FrameReader::new(read);
    let mut writer = BufWriter::with_capacity(WRITE_BUFFER_BYTES, write);
    let end = match send_all(&mut reader, &mut writer, frames, encoding, &held).await {
        Ok(end) => end,
        Err(error) => {
            tracing::debug!(%error, "a watch over a WebSocket ended");
            return;
        }
    };
    let close = async {
        if end == Received::Unmasked {
            write_frame(&mut writer, CLOSE, &PROTOCOL_ERROR.to_be_bytes()).await?;
        }
        write_frame(&mut writer, CLOSE, &NORMAL.to_be_bytes()).await?;
        writer.flush().await?;
        writer.shutdown().await?;
        // A socket that is closed with unread data is reset, which could discard the close frame.
        reader.drain().await;
        std::io::Result::Ok(())
    };
    if !matches!(tokio::time::timeout(CLOSE_MAX, close).await, Ok(Ok(()))) {
        tracing::debug!("a client did not close its WebSocket in time");
    }
}

/// Sends events and answers pings until the watch ends, or the client ends it. Errors are those of
/// the connection.
async fn send_all<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut W,
    mut frames: Frames,
    encoding: Encoding,
    held: &HeldBytes,
) -> std::io::Result<Received>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let opcode = match encoding {
        Encoding::Json => TEXT,
        Encoding::Protobuf => BINARY,
    };
    loop {
        tokio::select! {
            received = reader.next() => match received {
                Received::Ping(payload) => write_frame(writer, PONG, &payload).await?,
                end => return Ok(end),
            },
            piece = frames.next() => {
                let Some(piece) = piece else { return Ok(Received::End) };
                let mut chunk = joined(piece, held);
                while let Some(event) = take_event(&mut chunk, encoding) {
                    write_frame(writer, opcode, &event).await?;
                }
            }
        }
        writer.flush().await?;
    }
}

/// Returns a piece as one buffer.
fn joined(mut piece: Rope, held: &HeldBytes) -> Bytes {
    if piece.chunk().len() == piece.remaining() {
        return piece.copy_to_bytes(piece.remaining());
    }
    let mut buffer = Vec::with_capacity(piece.remaining());
    buffer.put(piece);
    held.hold(buffer)
}

/// Takes the next event of a chunk of whole events: a line with its newline, or the bytes after a
/// length of four bytes.
fn take_event(chunk: &mut Bytes, encoding: Encoding) -> Option<Bytes> {
    match encoding {
        Encoding::Json => {
            let length = memchr::memchr(b'\n', chunk).map_or(chunk.len(), |at| at + 1);
            Some(chunk.split_to(length)).filter(|event| !event.is_empty())
        }
        Encoding::Protobuf => {
            let length = chunk.try_get_u32().ok()?;
            let length = usize::try_from(length).ok().filter(|length| *length <= chunk.len())?;
            Some(chunk.split_to(length))
        }
    }
}

/// Holds several events. A larger event is written as it comes.
const WRITE_BUFFER_BYTES: usize = 16 << 10;
/// The close codes of RFC 6455 section 7.4.1 that the upstream sends.
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;
/// Limit on the closing handshake: a round trip, with some time for slow clients.
const CLOSE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
