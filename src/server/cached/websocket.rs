//! A watch over a WebSocket: the same stream as any other watch, with one message for each event
//! (`docs/semantics.md` §6.3).
//!
//! Only a plain handshake that the upstream certainly accepts is answered here. Any other (no
//! `Origin`, several sub-protocols) is forwarded, so that the upstream writes the error. A
//! sub-protocol that carries the client's bearer token (browsers cannot send it in another way) is
//! removed first, as the upstream does, and never sent back.
//!
//! One piece of the watch is buffered, and counts as held. While a client does not read, nothing
//! more is taken from the stream, which eventually falls out of the history, as it does behind an
//! HTTP body. Messages from a client are read, limited in size, and discarded.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures_util::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::media_type::Encoding;
use crate::codec::held_bytes::HeldBytes;
use crate::codec::rope::Rope;
use crate::server::delegate::Reason;
use crate::server::http::body::{Body, Frames};
use crate::server::http::headers::{PROTOCOL_TOKEN_PREFIX, is_websocket};

/// A valid opening handshake of a client.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    upgrade: OnUpgrade,
}

impl Handshake {
    /// Parses the handshake. Returns `None` if it is not the plain form that the upstream accepts.
    /// `by_token` means that the client is authenticated by the token among its sub-protocols, and
    /// by nothing else.
    pub(crate) fn parse(parts: &Parts, by_token: bool) -> Option<Self> {
        let headers = &parts.headers;
        if parts.version != Version::HTTP_11
            || !is_websocket(only(headers, &UPGRADE)?)
            || only(headers, &SEC_WEBSOCKET_VERSION)? != "13"
        {
            return None;
        }
        // The upstream reads only the first line of each of these headers.
        only(headers, &CONNECTION)?;
        only(headers, &ORIGIN).filter(|origin| !origin.is_empty())?;
        let key = only(headers, &SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty())?;
        let protocol = match headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
            false => None,
            true => Some(protocol(only(headers, &SEC_WEBSOCKET_PROTOCOL)?, by_token)?),
        };
        Some(Self {
            accept: HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()?,
            protocol,
            upgrade: parts.extensions.get::<OnUpgrade>()?.clone(),
        })
    }

    /// Returns the 101. It has none of the headers of other responses.
    fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        if let Some(protocol) = &self.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        response
    }
}

/// Returns the value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Returns the only sub-protocol, or `None` for none or several. `without_token` ignores
/// sub-protocols that carry a token.
fn protocol(offered: &HeaderValue, without_token: bool) -> Option<HeaderValue> {
    if !without_token {
        return Some(offered.clone()).filter(|one| is_protocol(one.as_bytes()));
    }
    let mut others = offered
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|one| !one.starts_with(PROTOCOL_TOKEN_PREFIX.as_bytes()));
    let one = others.next().filter(|one| is_protocol(one))?;
    if others.next().is_some() {
        return None;
    }
    HeaderValue::from_bytes(one).ok()
}

/// Whether `bytes` are one sub-protocol, and not a bearer token.
fn is_protocol(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._+/".contains(byte);
    !bytes.is_empty()
        && bytes.iter().all(plain)
        && !bytes.starts_with(PROTOCOL_TOKEN_PREFIX.as_bytes())
}

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

/// Sends a watch until it ends or the client disconnects.
async fn send_watch<I>(io: I, frames: Frames, encoding: Encoding, held: HeldBytes)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_frame_size(Some(RECEIVED_BYTES_MAX))
        .max_message_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let sent = send_all(&mut socket, frames, encoding, &held).await;
    let end = async {
        let _closed = match sent {
            Ok(()) => {
                let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                socket.close(Some(normal)).await
            }
            // The library has queued its reply to the close frame, which is still to be sent.
            Err(EarlyEnd::Client) => socket.flush().await,
            Err(EarlyEnd::Lost(error)) => {
                tracing::debug!(%error, "a watch over a WebSocket ended");
                return;
            }
        };
        let _shut_down = socket.get_mut().shutdown().await;
        // A socket that is closed with unread data is reset, which could discard the close frame.
        while let Some(Ok(_)) = socket.next().await {}
    };
    if tokio::time::timeout(CLOSE_MAX, end).await.is_err() {
        tracing::debug!("a client did not close its WebSocket in time");
    }
}

/// The reason why a watch ended early.
#[derive(Debug)]
enum EarlyEnd {
    /// The client closed the WebSocket.
    Client,
    /// The connection was lost, or the client violated the protocol.
    Lost(Error),
}

async fn send_all<I>(
    socket: &mut WebSocketStream<I>,
    mut frames: Frames,
    encoding: Encoding,
    held: &HeldBytes,
) -> Result<(), EarlyEnd>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        tokio::select! {
            received = socket.next() => match received {
                None | Some(Ok(Message::Close(_))) => return Err(EarlyEnd::Client),
                // The library answers pings.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(EarlyEnd::Lost(error)),
            },
            piece = frames.next() => {
                let Some(piece) = piece else { return Ok(()) };
                let mut chunk = joined(piece, held);
                while let Some(event) = take_event(&mut chunk, encoding) {
                    let message = message(event, encoding);
                    socket.feed(message).await.map_err(EarlyEnd::Lost)?;
                }
                socket.flush().await.map_err(EarlyEnd::Lost)?;
            }
        }
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

/// Wraps an event in a message. Like the upstream, it does not check that a text is valid UTF-8.
fn message(event: Bytes, encoding: Encoding) -> Message {
    let data = match encoding {
        Encoding::Json => Data::Text,
        Encoding::Protobuf => Data::Binary,
    };
    Message::Frame(Frame::message(event, OpCode::Data(data), true))
}

/// Clients send only pings and a close frame.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// Holds several events. A larger event is written as it comes.
const WRITE_BUFFER_BYTES: usize = 16 << 10;
/// Limit on a message from a client. No client of a watch sends one this long.
const RECEIVED_BYTES_MAX: usize = 64 << 10;
/// Limit on the closing handshake: a round trip, with some time for slow clients.
const CLOSE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
