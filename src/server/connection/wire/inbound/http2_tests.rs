//! Whole connections: what h2 reads behind [`Inbound`] is what a client means.

mod client;
mod reference;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::io::AsyncWrite;

use self::client::{Client, Style};
use self::reference::{Meaning, meanings};
use super::*;

/// A connection whose client has sent everything already.
struct Wire {
    inbound: Inbound,
    sent: Sent,
    answered: Arc<Mutex<Vec<u8>>>,
}

/// The bytes that a client sent, in the parts in which they come.
struct Sent(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl AsyncRead for Sent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut parts = self.0.lock();
        let Some(mut part) = parts.pop_front() else { return Poll::Pending };
        let rest = part.split_off(part.len().min(buffer.remaining()));
        buffer.put_slice(&part);
        if !rest.is_empty() {
            parts.push_front(rest);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inbound, sent, .. } = &mut *self;
        inbound.poll_read(sent, context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answered.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The requests and errors that h2 made of a connection.
#[derive(Debug, Default)]
struct Read {
    requests: HashMap<u32, Request<()>>,
    resets: HashMap<u32, u32>,
    goaway: Option<u32>,
}

/// Has h2 read a connection that comes in these parts, with the limits of Weir.
fn read_by_h2(parts: Vec<Vec<u8>>) -> Read {
    let sent = Arc::new(Mutex::new(VecDeque::from(parts)));
    let answered = Arc::new(Mutex::new(Vec::new()));
    let wire = Wire {
        inbound: Inbound::new(ConnActivity::new(), 1 << 20),
        sent: Sent(Arc::clone(&sent)),
        answered: Arc::clone(&answered),
    };
    let mut builder = h2::server::Builder::new();
    builder.max_header_list_size(1 << 20).max_frame_size(16 << 10).max_concurrent_streams(250);
    let mut read = Read::default();
    let mut streams = Vec::new();
    let mut handshake = Box::pin(builder.handshake::<_, Bytes>(wire));
    let mut connection = None;
    // Another poll after all was read has h2 write its answers.
    let mut idle = 0;
    let mut left = usize::MAX;
    while idle < 3 {
        // Nothing more is read once a request is refused.
        let now = sent.lock().iter().map(Vec::len).sum();
        idle += usize::from(now == std::mem::replace(&mut left, now));
        if connection.is_none() {
            connection = handshake.as_mut().now_or_never().and_then(Result::ok);
        }
        let Some(connection) = &mut connection else { continue };
        while let Some(Some(Ok((request, respond)))) = connection.accept().now_or_never() {
            let id = respond.stream_id().as_u32();
            let (parts, body) = request.into_parts();
            streams.push((respond, body));
            assert!(read.requests.insert(id, Request::from_parts(parts, ())).is_none());
        }
    }
    let answered = answered.lock();
    let mut rest = &answered[..];
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let code = |at: usize| u32::from_be_bytes(behind[at..at + 4].try_into().unwrap());
        match head[3] {
            3 => drop(read.resets.insert(stream, code(0))),
            7 => read.goaway = Some(code(4)),
            _ => {}
        }
        rest = &behind[length..];
    }
    read
}

/// Whether a request is what a client means.
fn is_meant(request: &Request<()>, meaning: &Meaning) -> bool {
    let Meaning::Request { method, path, authority, headers } = meaning else { return false };
    request.method().as_str().as_bytes() == method
        && request.uri().path_and_query().map(|target| target.as_str().as_bytes())
            == Some(&path[..])
        && request.uri().authority().map(|authority| authority.as_str()) == authority.as_deref()
        && request.headers() == headers
}

/// Cuts bytes into parts at the given places.
fn cut(bytes: &[u8], places: &[Index]) -> Vec<Vec<u8>> {
    let mut places: Vec<_> = places.iter().map(|place| place.index(bytes.len())).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.dedup();
    places.windows(2).map(|range| bytes[range[0]..range[1]].to_vec()).collect()
}

fn requests() -> impl Strategy<Value = Vec<(client::Fields, Style)>> {
    proptest::collection::vec((client::fields(), client::style()), 1..14)
}

fn encode(requests: &[(client::Fields, Style)]) -> Vec<u8> {
    let mut client = Client::new();
    let mut bytes = PREFACE.to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for (fields, style) in requests {
        bytes.extend(client.request(fields, style));
    }
    bytes
}

/// The longest frame that HTTP/2 allows without a setting, and the length of an escaped byte.
const FRAME_BYTES_MAX: usize = 16_384;
const ESCAPED_LEN: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Any encoding of any requests, in any parts.
    #[test]
    fn h2_reads_what_a_client_means(
        requests in requests(),
        cuts in proptest::collection::vec(any::<Index>(), 0..30),
    ) {
        let bytes = encode(&requests);
        let (meanings, is_whole) = meanings(&bytes);
        prop_assert!(is_whole);
        prop_assert_eq!(meanings.len(), requests.len());
        let read = read_by_h2(cut(&bytes, &cuts));
        // h2 forgets a malformed head at its first frame, and refuses the frame that continues it.
        let is_large = |(fields, _): &(client::Fields, Style)| {
            fields.iter().map(|(_, value)| value.len()).sum::<usize>() > FRAME_BYTES_MAX / ESCAPED_LEN
        };
        let is_malformed = meanings.values().any(|meaning| *meaning == Meaning::Reset);
        if read.goaway == Some(1) && is_malformed && requests.iter().any(is_large) {
            return Ok(());
        }
        prop_assert_eq!(read.goaway, None);
        for (stream, meaning) in &meanings {
            match read.requests.get(stream) {
                Some(request) => {
                    prop_assert!(is_meant(request, meaning), "{:?} is not {:?}", request, meaning);
                }
                None => {
                    prop_assert_eq!(meaning, &Meaning::Reset);
                    prop_assert_eq!(read.resets.get(stream), Some(&1));
                }
            }
        }
    }

    /// h2 reads nothing that the client's bytes do not mean, whatever bytes these are.
    #[test]
    fn h2_reads_nothing_else_from_damaged_bytes(
        requests in requests(),
        cuts in proptest::collection::vec(any::<Index>(), 0..6),
        damages in proptest::collection::vec((any::<Index>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut bytes = encode(&requests);
        for (place, byte, damage) in damages {
            let place = PREFACE.len() + place.index(bytes.len() - PREFACE.len());
            match damage {
                0 => bytes[place] = byte,
                1 => bytes[place] ^= 1 << (byte % 8),
                2 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        let (meanings, _) = meanings(&bytes);
        let read = read_by_h2(cut(&bytes, &cuts));
        for (stream, request) in &read.requests {
            let meaning = meanings.get(stream).unwrap_or(&Meaning::Reset);
            prop_assert!(is_meant(request, meaning), "{:?} is not {:?}", request, meaning);
        }
    }
}

/// One connection with everything, cut once at each of its bytes, and into single bytes.
#[test]
fn reads_may_end_anywhere() {
    let mut client = Client::new();
    let mut bytes = PREFACE.to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for (number, path) in
        [&b"/a#b"[..], b"/plain", b"/a#b", b"/<\xFF>?x=`", b"/"].iter().enumerate()
    {
        let fields = client::named(path, &[("x-text", "some text"), ("user-agent", "one")]);
        let splits = (0..number).collect();
        bytes.extend(client.request(&fields, &Style::plain().padded(3).split(splits)));
        // A PING between the requests passes.
        bytes.extend([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
    let (meanings, is_whole) = meanings(&bytes);
    assert!(is_whole && meanings.len() == 5);
    let single = bytes.iter().map(|byte| vec![*byte]).collect();
    let cuts = (1..bytes.len()).map(|at| vec![bytes[..at].to_vec(), bytes[at..].to_vec()]);
    for parts in cuts.chain([single]) {
        let at = parts[0].len();
        let read = read_by_h2(parts);
        assert_eq!((read.requests.len(), read.goaway), (5, None), "cut at {at}");
        for (stream, request) in &read.requests {
            assert!(is_meant(request, &meanings[stream]), "cut at {at}: {request:?}");
        }
    }
}

/// Bytes that need no change are not copied, and nothing is kept of them.
#[test]
fn plain_frames_pass_in_place() {
    let mut client = Client::new();
    let fields = client::named(b"/api/v1/pods?limit=500", &[("accept", "application/json")]);
    let mut inbound = Inbound::new(ConnActivity::new(), 1 << 20);
    assert_eq!(inbound.receive(PREFACE), PREFACE.len());
    for _ in 0..3 {
        let frames = client.request(&fields, &Style::plain());
        assert_eq!(inbound.receive(&frames), frames.len());
        assert!(inbound.pending.is_none());
    }
    let odd = client.request(&client::named(b"/#", &[]), &Style::plain());
    assert_eq!(inbound.receive(&odd), 0);
    assert!(inbound.pending.is_some());
    let mut delivered = [0; 400];
    assert!(inbound.deliver(&mut ReadBuf::new(&mut delivered)));
    assert!(inbound.pending.is_none(), "nothing is left of it");
}

/// Bytes of HTTP/1.1 pass, however much they look like the preface.
#[test]
fn other_protocols_pass() {
    for head in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/1.1\r\n\r\n"] {
        let mut inbound = Inbound::new(ConnActivity::new(), 1 << 20);
        assert_eq!(inbound.receive(head), head.len());
        assert!(matches!(inbound.protocol, Protocol::Http1(_)));
    }
}
