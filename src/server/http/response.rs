//! What Weir sends: bodies of every origin behind one type, and the headers of what it words itself (semantics.md §8.8).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};

use crate::api::media_type::{self, Encoding, Form};
use crate::api::query::Query;
use crate::api::status::Status;
use crate::codec::list::{Pieces, SplicedList};
use crate::codec::rope::{PIECE_BYTES, Rope, RopeBuilder, SHARED_BYTES_MIN};
use crate::codec::{pretty, protobuf};
use crate::server::forward::Hold;
use crate::server::forward::watch::ForwardedWatch;
use crate::server::http::audit_id::{AUDIT_ID, audit_id};
use crate::server::metrics::Answer;
use crate::upstream::pool;

/// Tells how a request was answered and why; as a request header with the value `bypass` it asks for the upstream.
pub(crate) const CACHE_HEADER: HeaderName = HeaderName::from_static("x-weir-cache");

/// See [`CACHE_HEADER`].
pub(crate) const BYPASS: &[u8] = b"bypass";

/// A response and what is counted of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) response: Response<Body>,
    pub(crate) answer: Answer,
    /// Why it was answered so; empty for a hit of a watch cache.
    pub(crate) reason: &'static str,
}

impl Outcome {
    /// An answer of the cache.
    pub(crate) fn hit(response: Response<Body>) -> Self {
        Self { response, answer: Answer::Hit, reason: "" }
    }

    /// An error of Weir's own.
    pub(crate) fn error(request: &HeaderMap, status: &Status, reason: &'static str) -> Self {
        Self::refusal(request, &Query::default(), status, reason)
    }

    /// An error that is the upstream's own, worded here: in the form that this request negotiates, its query included.
    pub(crate) fn refusal(
        request: &HeaderMap,
        query: &Query,
        status: &Status,
        reason: &'static str,
    ) -> Self {
        Self { response: error(request, query, status), answer: Answer::Error, reason }
    }
}

/// A response body: chunks at hand, an upstream body relayed, or the frames of a watch.
pub(crate) enum Body {
    /// Bytes at hand.
    Chunks(Chunks),
    /// See [`Body::list`].
    List(Box<Pieces>),
    /// The upstream's, with what it holds until its end.
    Upstream { body: Box<pool::Body>, _hold: Hold },
    /// The upstream's watch, with what it holds as well.
    ForwardedWatch { body: Box<ForwardedWatch>, _hold: Hold },
    /// A watch.
    Watch(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self::chunks(Vec::new())
    }

    /// Chunks to be written one after the other.
    pub(crate) fn chunks(chunks: Vec<Bytes>) -> Self {
        Self::Chunks(Chunks::new(chunks))
    }

    /// A list, spliced as it is taken.
    pub(crate) fn list(list: SplicedList) -> Self {
        Self::List(Box::new(list.into_iter()))
    }
}

/// Bytes at hand, handed out in pieces: what hyper took of a body is held until the client takes it, and nothing else can let go of it.
#[derive(Debug)]
pub(crate) struct Chunks {
    chunk: Bytes,
    /// How long the chunk was: a part of it keeps all of it alive.
    chunk_bytes: usize,
    rest: vec::IntoIter<Bytes>,
    /// Bytes that were not handed out yet.
    left: usize,
}

impl Chunks {
    fn new(chunks: Vec<Bytes>) -> Self {
        let left = chunks.iter().map(Bytes::len).sum();
        Self { chunk: Bytes::new(), chunk_bytes: 0, rest: chunks.into_iter(), left }
    }

    /// Up to a piece of bytes.
    fn gather(&mut self) -> Rope {
        let mut builder = RopeBuilder::default();
        while builder.len() < PIECE_BYTES {
            if self.chunk.is_empty() {
                let Some(next) = self.rest.next() else { break };
                self.chunk_bytes = next.len();
                self.chunk = next;
            }
            let room = PIECE_BYTES - builder.len();
            let part = self.chunk.split_to(room.min(self.chunk.len()));
            if part.len() < SHARED_BYTES_MIN || part.len() < self.chunk_bytes / 2 {
                builder.buffer().extend_from_slice(&part);
            } else {
                builder.push_shared(part);
            }
        }
        builder.finish()
    }
}

#[cfg(test)]
impl Chunks {
    /// Whether it holds on to nothing.
    pub(crate) fn is_let_go(&self) -> bool {
        self.rest.as_slice().is_empty() && self.chunk.is_empty()
    }
}

impl Iterator for Chunks {
    type Item = Rope;

    fn next(&mut self) -> Option<Rope> {
        let piece = if self.chunk.is_empty() && self.left <= PIECE_BYTES {
            // Most answers: as they are.
            Rope::from(std::mem::take(&mut self.rest))
        } else {
            self.gather()
        };
        self.left = self.left.saturating_sub(piece.remaining());
        piece.has_remaining().then_some(piece)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Chunks(..) => "Chunks",
            Self::List(..) => "List",
            Self::Upstream { .. } => "Upstream",
            Self::ForwardedWatch { .. } => "ForwardedWatch",
            Self::Watch(..) => "Watch",
        })
    }
}

impl http_body::Body for Body {
    type Data = Rope;
    type Error = pool::BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, pool::BodyError>>> {
        let upstream = match self.get_mut() {
            Self::Chunks(chunks) => {
                return Poll::Ready(chunks.next().map(|it| Ok(Frame::data(it))));
            }
            Self::List(list) => return Poll::Ready(list.next().map(|it| Ok(Frame::data(it)))),
            Self::Watch(stream) => {
                let next = stream.as_mut().poll_next(context);
                return next.map(|next| next.map(|chunk| Ok(Frame::data(chunk.into()))));
            }
            Self::Upstream { body, .. } => Pin::new(body).poll_frame(context),
            Self::ForwardedWatch { body, .. } => Pin::new(body).poll_frame(context),
        };
        upstream.map_ok(|frame| frame.map_data(Rope::from))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Chunks(chunks) => chunks.left == 0,
            Self::List(list) => list.is_empty(),
            Self::Upstream { body, .. } => body.is_end_stream(),
            Self::ForwardedWatch { body, .. } => body.is_end_stream(),
            Self::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Chunks(chunks) => SizeHint::with_exact(chunks.left as u64),
            Self::List(list) => SizeHint::with_exact(list.len() as u64),
            Self::Upstream { body, .. } => body.size_hint(),
            Self::ForwardedWatch { body, .. } => body.size_hint(),
            Self::Watch(_) => SizeHint::default(),
        }
    }
}

/// A 200 with the headers that the upstream puts on every answer.
pub(crate) fn ok(
    request: &HeaderMap,
    content_type: &'static str,
    body: Body,
    warnings: &[HeaderValue],
) -> Response<Body> {
    let mut response = Response::new(body);
    common_headers(request, content_type, response.headers_mut());
    for warning in warnings {
        response.headers_mut().append(WARNING, warning.clone());
    }
    response
}

/// A `Status` as the request negotiates errors: protobuf, compact JSON with its newline, or indented JSON without one.
fn error(request: &HeaderMap, query: &Query, status: &Status) -> Response<Body> {
    let Form { encoding, pretty, .. } = media_type::error_form(request, query);
    let body = match encoding {
        Encoding::Json if pretty => vec![Bytes::from(pretty::indent(&status.to_json()))],
        Encoding::Json => vec![status.to_json(), Bytes::from_static(b"\n")],
        Encoding::Protobuf => vec![protobuf::encode_status(status)],
    };
    let mut response = Response::new(Body::chunks(body));
    *response.status_mut() = status.code;
    common_headers(request, encoding.content_type(false), response.headers_mut());
    if status.code == StatusCode::FORBIDDEN {
        // The upstream marks what quotes a request's own words (semantics.md §8.8).
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    if let Some(seconds) = status.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A failure in the request itself that keeps Weir from passing it on.
pub(crate) fn refusal(code: StatusCode, reason: &'static str, message: String) -> Status {
    Status { code, reason, message, details: None, retry_after_seconds: None }
}

/// One client asks for too much at once: the upstream's own code where it has enough to do, which clients know to repeat.
pub(crate) fn too_many(message: &str) -> Status {
    Status {
        retry_after_seconds: Some(BUSY_RETRY_AFTER_SECONDS),
        ..refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.to_owned())
    }
}

/// The cluster's settings for certificates and front proxies were not read yet: who asks cannot be told, and neither be passed on.
pub(crate) fn not_known_yet() -> Status {
    let message = "weir: the cluster's settings for client certificates are not known yet";
    Status {
        retry_after_seconds: Some(SETTINGS_RETRY_AFTER_SECONDS),
        ..refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message.to_owned())
    }
}

fn common_headers(request: &HeaderMap, content_type: &'static str, response: &mut HeaderMap) {
    response.insert(AUDIT_ID, audit_id(request));
    response.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
}

/// The settings come with the first answer of the upstream.
const SETTINGS_RETRY_AFTER_SECONDS: u32 = 1;
/// Queues are short, and places come free as answers end.
const BUSY_RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(chunks: Vec<Bytes>) -> Vec<Rope> {
        Chunks::new(chunks).collect()
    }

    fn joined(pieces: Vec<Rope>) -> Vec<u8> {
        pieces.into_iter().flat_map(|mut it| it.copy_to_bytes(it.remaining())).collect()
    }

    #[test]
    fn a_short_answer_is_one_piece_and_not_copied() {
        let body = Bytes::from(vec![7; 100]);
        let mut pieces = pieces(vec![body.clone(), Bytes::from_static(b"\n")]);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].chunk().as_ptr(), body.as_ptr());
        assert_eq!(pieces[0].copy_to_bytes(101), [&body[..], b"\n"].concat());
        assert!(Chunks::new(vec![Bytes::new()]).next().is_none());
    }

    #[test]
    fn a_long_answer_comes_in_pieces_that_keep_little_alive() {
        let chunks = [3 * PIECE_BYTES, 10, PIECE_BYTES - 10, PIECE_BYTES / 2];
        let chunks: Vec<_> = chunks.iter().map(|length| Bytes::from(vec![7; *length])).collect();
        let pieces = pieces(chunks.clone());
        assert!(pieces.iter().all(|piece| piece.remaining() <= PIECE_BYTES));
        let shares = |chunk: &Bytes| {
            let own = chunk.as_ptr_range();
            pieces.iter().any(|piece| {
                let mut slices = [std::io::IoSlice::new(&[]); 64];
                let count = piece.chunks_vectored(&mut slices);
                slices[..count].iter().any(|slice| own.contains(&slice.as_ptr()))
            })
        };
        assert_eq!(chunks.iter().map(shares).collect::<Vec<_>>(), [false, false, true, true]);
        assert_eq!(joined(pieces), chunks.concat());
    }
}
