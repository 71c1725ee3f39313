//! HTTP/2 by its bytes: requests are HEADERS frames with the fields as they are, in HPACK literals.
//!
//! h2's client does the rest (settings, windows, resets, the response's fields) behind a relay that
//! replaces the header block of each of its requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{Method, Request};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::case::Case;
use super::http1::{PROBE_NAME, probe};
use super::outcome::{End, Outcome, Usable};
use super::peer::{Peer, Protocol, Stream};
use crate::suite::wire::Answer;

/// A client that keeps one connection as long as it can be used.
pub(crate) struct Http2 {
    peer: Peer,
    connection: Option<Connection>,
}

impl Http2 {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, connection: None }
    }

    /// Sends a request, and looks whether another can follow on its connection.
    pub(crate) async fn send(&mut self, case: &Case, wait: Duration) -> Outcome {
        let opened = match self.connection.take() {
            Some(open) => Some(open),
            None => Connection::open(&self.peer).await,
        };
        let Some(connection) = opened else { return Outcome::without_answer(End::Closed) };
        let mut outcome = connection.exchange(case, &self.peer, wait).await;
        outcome.usable = match &outcome.end {
            End::Closed => Usable::No,
            End::Silent => Usable::Unclear,
            End::Answer | End::Reset(_) => connection.probe(&self.peer).await,
        };
        if outcome.usable == Usable::Yes {
            self.connection = Some(connection);
        }
        outcome
    }
}

struct Connection {
    sender: SendRequest<Bytes>,
    /// The header blocks of the next requests.
    blocks: Arc<Mutex<VecDeque<Vec<u8>>>>,
    /// h2's connection and both directions of the relay.
    _tasks: JoinSet<()>,
}

impl Connection {
    async fn open(peer: &Peer) -> Option<Self> {
        let (near, far) = tokio::io::duplex(RELAY_BYTES);
        let (mut from_server, to_server) = tokio::io::split(peer.open(Protocol::Http2).await.ok()?);
        let (from_client, mut to_client) = tokio::io::split(far);
        let blocks = Arc::<Mutex<VecDeque<Vec<u8>>>>::default();
        let mut tasks = JoinSet::new();
        let queue = Arc::clone(&blocks);
        tasks.spawn(async move {
            // An end shows in the other direction.
            drop(replace_blocks(from_client, to_server, &queue).await);
        });
        tasks.spawn(async move {
            drop(tokio::io::copy(&mut from_server, &mut to_client).await);
            drop(to_client.shutdown().await);
        });
        let handshake = h2::client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(near);
        let (sender, connection) = timeout(OPEN_MAX, handshake).await.ok()?.ok()?;
        tasks.spawn(async move { drop(connection.await) });
        Some(Self { sender, blocks, _tasks: tasks })
    }

    async fn exchange(&self, case: &Case, peer: &Peer, wait: Duration) -> Outcome {
        let mut partial = Outcome::without_answer(End::Silent);
        let sent = self.send(case, peer, &mut partial);
        if let Ok(Err(error)) = timeout(wait, sent).await {
            partial.end = end_of(&error, partial.end);
            if partial.end == End::Answer {
                partial.answer.broken = Some("in the middle");
            }
        }
        partial
    }

    async fn send(&self, case: &Case, peer: &Peer, outcome: &mut Outcome) -> Result<(), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        self.blocks.lock().push_back(block(&case.http2(peer)));
        // Only the method matters to h2's client: a response to HEAD has no body.
        let method = if case.is_head() { Method::HEAD } else { Method::GET };
        let head = Request::builder().method(method).uri("https://localhost/").body(());
        let body = peer.placed(&case.body);
        let (response, mut stream) = sender.send_request(head.unwrap(), body.is_empty())?;
        let written = async {
            if !body.is_empty() {
                // A server that refuses a request may reset it with NO_ERROR.
                drop(stream.send_data(body.into(), true));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = written => Ok(()),
            read = whole(response, outcome) => read,
        }
    }

    async fn probe(&self, peer: &Peer) -> Usable {
        let outcome = Box::pin(self.exchange(&probe(), peer, PROBE_MAX)).await;
        let is_right = memchr::memmem::find(&outcome.answer.body, PROBE_NAME).is_some();
        match outcome.end {
            End::Answer if outcome.answer.status == 200 && is_right => Usable::Yes,
            End::Closed => Usable::No,
            _ => Usable::Confused,
        }
    }
}

/// Reads a response into `outcome`, which has what came so far if this is not awaited to its end.
async fn whole(response: ResponseFuture, outcome: &mut Outcome) -> Result<(), h2::Error> {
    let (head, mut body): (_, RecvStream) = response.await?.into_parts();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    outcome.end = End::Answer;
    outcome.answer = Answer { status: head.status.as_u16(), headers, ..Answer::default() };
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        drop(body.flow_control().release_capacity(data.len()));
        bytes.extend_from_slice(&data);
        outcome.answer.body = Bytes::copy_from_slice(&bytes);
    }
    Ok(())
}

fn end_of(error: &h2::Error, so_far: End) -> End {
    match error.reason() {
        _ if so_far == End::Answer => End::Answer,
        _ if error.is_go_away() || error.is_io() => End::Closed,
        Some(reason) => End::Reset(format!("{reason:?}")),
        None => End::Closed,
    }
}

/// Relays frames, and replaces the header block of each request by the next of `blocks`.
async fn replace_blocks(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<Stream>,
    blocks: &Mutex<VecDeque<Vec<u8>>>,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await?;
        let block = (kind == HEADERS).then(|| blocks.lock().pop_front()).flatten();
        match block {
            Some(block) => to.write_all(&header_frames(&block, flags, stream)).await?,
            None => {
                to.write_all(&head).await?;
                to.write_all(&payload).await?;
            }
        }
        to.flush().await?;
    }
}

/// Returns a HEADERS frame with this block, and as many CONTINUATION frames as follow.
fn header_frames(block: &[u8], flags: u8, stream: [u8; 4]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut parts = block.chunks(FRAME_BYTES).peekable();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let length = u32::try_from(part.len()).unwrap().to_be_bytes();
        let end_headers = if parts.peek().is_none() { END_HEADERS } else { 0 };
        let end_stream = if kind == HEADERS { flags & END_STREAM } else { 0 };
        frames.extend_from_slice(&length[1..]);
        frames.extend_from_slice(&[kind, end_headers | end_stream]);
        frames.extend_from_slice(&stream);
        frames.extend_from_slice(part);
        kind = CONTINUATION;
    }
    frames
}

/// Encodes fields as literals without indexing and with new names (RFC 7541 section 6.2.2).
fn block(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            put_length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// Encodes an integer with a prefix of seven bits (RFC 7541 section 5.1).
fn put_length(length: usize, block: &mut Vec<u8>) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(u8::try_from(length).unwrap());
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The largest frame that every server accepts.
const FRAME_BYTES: usize = 16 << 10;
const RELAY_BYTES: usize = 64 << 10;
/// No response is larger.
const WINDOW_BYTES: u32 = 8 << 20;
const OPEN_MAX: Duration = Duration::from_secs(30);
const PROBE_MAX: Duration = Duration::from_secs(20);
