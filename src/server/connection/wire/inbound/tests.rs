//! Whole connections: what hyper gets, however the bytes of a client are cut into reads.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::AsyncWrite;

use super::*;
use crate::server::connection::cork::Cork;
use crate::server::connection::wire::aside::{Aside, RefusedHead};
use crate::server::connection::wire::target;

/// A client that sends its bytes in pieces, then waits.
struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    /// Cuts `bytes` at some places.
    fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Self {
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        places.dedup();
        Self(places.windows(2).map(|place| bytes[place[0]..place[1]].to_vec()).collect())
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(piece) = self.0.front_mut() else { return Poll::Pending };
        let length = piece.len().min(buffer.remaining());
        buffer.put_slice(&piece.drain(..length).collect::<Vec<_>>());
        if piece.is_empty() {
            self.0.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns the bytes that hyper gets, read with a buffer of `room` bytes.
fn delivered(mut client: Pieces, room: usize) -> Vec<u8> {
    let mut inbound = Inbound::new(ConnActivity::new(), HEAD_BYTES_MAX);
    let mut delivered = Vec::new();
    let context = &mut Context::from_waker(std::task::Waker::noop());
    loop {
        let mut bytes = vec![0; room];
        let mut buffer = ReadBuf::new(&mut bytes);
        match inbound.poll_read(&mut client, context, &mut buffer) {
            Poll::Ready(Ok(())) => delivered.extend_from_slice(buffer.filled()),
            Poll::Ready(Err(_)) | Poll::Pending => return delivered,
        }
    }
}

/// A request as hyper has read it: method, target, and body; `None` for a body that broke off. The
/// code of a refused one.
type Seen = Result<(String, String, Option<Bytes>), u16>;

/// Returns the requests that hyper reads.
fn requests(client: Pieces, detect: bool) -> Vec<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let activity = ConnActivity::new();
    let cork = Cork::new(client, activity.clone(), HEAD_BYTES_MAX);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        let aside = activity.next_aside();
        async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            if let Some(Aside::Refused(RefusedHead(status))) = aside {
                assert!(!status.message.contains("its place"), "hyper found another head");
                shared.lock().push(Err(status.code.as_u16()));
                let close = http::HeaderValue::from_static("close");
                response.headers_mut().insert("connection", close);
                return Ok::<_, Infallible>(response);
            }
            let (method, target) = (request.method().to_string(), request.uri().to_string());
            let body = request.into_body().collect().await.ok().map(|body| body.to_bytes());
            shared.lock().push(Ok((method, target, body)));
            Ok(response)
        }
    });
    let io = TokioIo::new(cork);
    // Everything is ready, so that a few polls suffice.
    let mut connection = if detect {
        let builder = auto::Builder::new(TokioExecutor::new());
        async move { drop(builder.serve_connection_with_upgrades(io, service).await) }.boxed_local()
    } else {
        let connection = http1::Builder::new().serve_connection(io, service);
        async move { drop(connection.await) }.boxed_local()
    };
    for _ in 0..POLLS_MAX {
        if (&mut connection).now_or_never().is_some() {
            break;
        }
    }
    drop(connection);
    std::mem::take(&mut *seen.lock())
}

/// One request: what is sent, and what hyper reads.
#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    read: (String, String, Option<Bytes>),
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => select(&b"abc/?&=%2#"[..]),
        1 => any::<u8>().prop_filter("Go takes it", |byte| *byte > b' ' && *byte != 0x7F),
    ];
    prop::collection::vec(byte, 0..40).prop_map(|tail| [b"/".to_vec(), tail].concat())
}

/// Returns the framing of a body, the body as it is sent, and the body itself.
fn body() -> impl Strategy<Value = (String, Vec<u8>, Vec<u8>)> {
    let piece = || prop::collection::vec(any::<u8>(), 1..40);
    let whole = piece()
        .prop_map(|piece| (format!("Content-Length: {}\r\n", piece.len()), piece.clone(), piece));
    let trailer = select(&["", "X: y\r\n", "X:\r\nA: b\r\n"][..]);
    let size = select(&["", ";a=b", " ", "\t;x"][..]);
    let chunks =
        (prop::collection::vec((piece(), size), 0..4), trailer).prop_map(|(pieces, trailer)| {
            let sent = pieces.iter().flat_map(|(chunk, behind)| {
                [format!("{:x}{behind}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()
            });
            let sent = sent.chain(format!("0\r\n{trailer}\r\n").into_bytes()).collect();
            let body = pieces.into_iter().flat_map(|(chunk, _)| chunk).collect();
            ("Transfer-Encoding: chunked\r\n".to_owned(), sent, body)
        });
    prop_oneof![2 => Just(Default::default()), 1 => whole, 1 => chunks]
}

fn message() -> impl Strategy<Value = Message> {
    let method = select(&["GET", "GET", "DELETE", "HEAD", "PATCH", "POST", "lower"][..]);
    let fields = select(&["Host: x\r\n", "Host: x\r\nX: #<>\r\nUpgrade: h2c\r\n", ""][..]);
    let before = select(&["", "", "\r\n", "\n\r\n"][..]);
    (before, method, target(), fields, body()).prop_map(|(before, method, target, fields, body)| {
        let (framing, sent, body) = body;
        let line = [before.as_bytes(), method.as_bytes(), b" ", &target].concat();
        let rest = format!(" HTTP/1.1\r\n{fields}{framing}\r\n");
        let escaped = target::escape(&target).unwrap().unwrap_or(target);
        let target = String::from_utf8(escaped).unwrap();
        let bytes = [line, rest.into_bytes(), sent].concat();
        Message { bytes, read: (method.to_owned(), target, Some(body.into())) }
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(message(), 1..6)
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..8)
}

/// Returns the bytes of messages, with some of them changed, and the ends of any head.
fn spoiled() -> impl Strategy<Value = Vec<u8>> {
    let odd = &b"\r\n\r\n: \t\0#?%;0aZ\x80\xFF,"[..];
    let change = (any::<prop::sample::Index>(), 0..3, select(odd));
    (messages(), prop::collection::vec(change, 0..6)).prop_map(|(messages, changes)| {
        let mut bytes: Vec<u8> = messages.into_iter().flat_map(|message| message.bytes).collect();
        for (place, kind, byte) in changes {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        [bytes, b"\n\n\n\n".to_vec()].concat()
    })
}

proptest! {
    /// Pipelined requests with bodies, cut anywhere: hyper reads each, with its escaped target.
    #[test]
    fn hyper_reads_each_request_with_its_whole_target(messages in messages(), cuts in cuts()) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| message.bytes.clone()).collect();
        let expected: Vec<Seen> = messages.into_iter().map(|message| Ok(message.read)).collect();
        for detect in [false, true] {
            prop_assert_eq!(&requests(Pieces::cut(&bytes, &cuts), detect), &expected);
        }
    }

    /// The same for bytes that are wrong somewhere, up to what is refused. hyper finds no head that
    /// was not read here, and none of which it would refuse the target.
    #[test]
    fn hyper_finds_the_same_heads(bytes in spoiled(), cuts in cuts(), room in 1..300_usize) {
        let whole = delivered(Pieces::cut(&bytes, &[]), 1 << 16);
        prop_assert_eq!(&delivered(Pieces::cut(&bytes, &cuts), room), &whole);
        let seen = requests(Pieces::cut(&bytes, &[]), false);
        prop_assert_eq!(&requests(Pieces::cut(&bytes, &cuts), true), &seen);
        for (_, target, _) in seen.iter().flatten() {
            prop_assert!(!target.contains('#'));
        }
    }
}

#[test]
fn the_preface_of_http2_passes_and_a_part_of_it_is_a_head() {
    // A whole frame, whose payload is no header block.
    let bytes = [PREFACE, b"\0\0\x01\0\0\0\0\0\0#"].concat();
    for room in [1, 24, 1000] {
        assert_eq!(delivered(Pieces::cut(&bytes, &[]), room), bytes);
    }
    assert_eq!(delivered(Pieces([b"PRI * ".to_vec()].into()), 24), b"");
    let http1 = b"PRI * HTTP/1.1\r\n\r\n".to_vec();
    assert_eq!(delivered(Pieces([b"PRI".to_vec(), http1[3..].to_vec()].into()), 24), http1);
}

#[test]
fn what_follows_an_upgrade_passes_and_what_follows_a_refusal_does_not() {
    let upgrade = b"GET /# HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let frames = b"\x81\x05GET /# HTTP/1.1\r\n\r\n";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let bytes = [&upgrade[..], frames].concat();
    let expected = [&upgrade[..5], b"%23", &upgrade[6..], frames].concat();
    assert_eq!(delivered(Pieces::cut(&bytes, &[]), 100), expected);

    let next = b"GET /next HTTP/1.1\r\n\r\n";
    let bytes = [&b"POST /a HTTP/3.0\r\n\r\n"[..], next].concat();
    let expected = b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n";
    assert_eq!(delivered(Pieces::cut(&bytes, &[]), 100), expected);
}

/// A head that has the usual block is only compared, also where it came in two reads.
#[test]
fn a_shorter_head_passes_after_a_usual_one_that_was_cut() {
    let usual = b"GET /a/long/path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let (first, rest) = usual.split_at(usual.len() - 1);
    let short = b"GET / HTTP/1.1\r\n\r\n";
    let pieces = [&usual[..], usual, first, rest, short];
    let expected = pieces.concat();
    assert_eq!(delivered(Pieces(pieces.map(<[u8]>::to_vec).into()), 1000), expected);
}

/// In memory the fields of such a head take many times what they take on the wire. hyper reads a
/// megabyte at once from a client that pipelines its requests.
#[test]
fn pipelined_heads_with_very_many_fields_are_taken_one_by_one() {
    let activity = ConnActivity::new();
    let mut inbound = Inbound::new(activity.clone(), HEAD_BYTES_MAX);
    let head = format!("GET /a HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(200));
    let mut client = Pieces([head.repeat(100).into_bytes()].into());
    let context = &mut Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        let mut bytes = vec![0; 1 << 20];
        let mut buffer = ReadBuf::new(&mut bytes);
        assert!(inbound.poll_read(&mut client, context, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), b"GET /a HTTP/1.1\r\n\r\n");
        assert!(
            matches!(activity.next_aside(), Some(Aside::Fields(fields)) if fields.len() == 200)
        );
    }
    let mut buffer = ReadBuf::new(&mut []);
    assert!(inbound.poll_read(&mut client, context, &mut buffer).is_pending());
    assert!(inbound.pending.is_none(), "nothing is left of them");
}

#[test]
fn a_head_has_a_limit_and_is_not_searched_twice() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let fields = "x: y\r\n".repeat(HEAD_BYTES_MAX / 6);
    let bytes = format!("GET / HTTP/1.1\r\n{fields}{fields}").into_bytes();
    let pieces = bytes.chunks(10_000).map(<[u8]>::to_vec).collect();
    assert_eq!(requests(Pieces(pieces), false), [Err(431)]);
    // One byte at a time, and long enough to take minutes if each one caused a whole parse.
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(HEAD_BYTES_MAX - 30));
    let pieces = head.bytes().map(|byte| vec![byte]).collect();
    assert_eq!(delivered(Pieces(pieces), 1 << 16), head.as_bytes());
}

/// More than the reads that a test's bytes need.
const POLLS_MAX: usize = 400;
const HEAD_BYTES_MAX: usize = 200_000;
