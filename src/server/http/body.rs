//! The body of a response: bytes in memory, a list, a body that is rendered while it is sent, an
//! upstream body, or the frames of a watch.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use bytes::{Buf, Bytes};
use futures_util::stream::BoxStream;
use http_body::{Frame, SizeHint};

use crate::codec::held_bytes::HeldBytes;
use crate::codec::rope::{PIECE_BYTES, Rope, RopeBuilder, SHARED_BYTES_MIN};
use crate::server::flow_control::reading::Reading;
use crate::server::forward::watch::ForwardedWatch;
use crate::server::http::rendered::{ListBody, Rendered};
use crate::server::request::holds::Holds;
use crate::upstream::pool;

pub(crate) enum Body {
    /// Bytes in memory.
    Chunks(Chunks),
    /// A list, spliced piece by piece while it is sent.
    List(Box<ListBody>),
    /// A body that is indented or compressed while it is sent.
    Rendered(Box<Rendered>),
    /// A body of the upstream.
    Upstream { body: Box<pool::Body>, holds: Box<Holds> },
    /// A body of the upstream that holds seats.
    Seated { reading: Arc<Reading>, holds: Box<Holds> },
    /// A watch of the upstream.
    ForwardedWatch { body: Box<ForwardedWatch>, holds: Box<Holds> },
    /// A watch of a cache.
    Watch(Frames),
}

pub(crate) type Frames = BoxStream<'static, Rope>;

impl Body {
    pub(crate) fn empty() -> Self {
        Self::chunks(Vec::new())
    }

    pub(crate) fn chunks(chunks: Vec<Bytes>) -> Self {
        Self::Chunks(Chunks::new(chunks))
    }

    /// Works like [`Self::chunks`] for chunks that may be long. The pieces that are copied of them
    /// count as held.
    pub(crate) fn long_chunks(chunks: Vec<Bytes>, held: HeldBytes) -> Self {
        Self::Chunks(Chunks { held: Some(held), ..Chunks::new(chunks) })
    }

    pub(crate) fn list(list: ListBody) -> Self {
        Self::List(Box::new(list))
    }

    /// Returns a body that is rendered while it is sent, unless all of it was rendered already.
    pub(crate) fn rendered(mut body: Rendered) -> Self {
        match body.take_rendered() {
            Some(whole) => Self::chunks(whole),
            None => Self::Rendered(Box::new(body)),
        }
    }
}

/// Bytes in memory, handed out in pieces. hyper holds a piece until the client has read it, and
/// Weir cannot drop it; so pieces are small.
#[derive(Debug)]
pub(crate) struct Chunks {
    chunk: Bytes,
    /// The original length of the chunk: a part of it keeps all of it in memory.
    chunk_bytes: usize,
    rest: vec::IntoIter<Bytes>,
    /// The number of bytes that were not handed out yet.
    left: usize,
    /// Counts the copied bytes of pieces.
    held: Option<HeldBytes>,
}

impl Chunks {
    fn new(chunks: Vec<Bytes>) -> Self {
        let left = chunks.iter().map(Bytes::len).sum();
        let (chunk, rest) = (Bytes::new(), chunks.into_iter());
        Self { chunk, chunk_bytes: 0, rest, left, held: None }
    }

    /// Returns the next piece, of at most [`PIECE_BYTES`]. Small parts, and parts of much larger
    /// chunks, are copied.
    fn next_piece(&mut self) -> Rope {
        let mut piece = RopeBuilder::default();
        while piece.len() < PIECE_BYTES {
            if self.chunk.is_empty() {
                let Some(next) = self.rest.next() else { break };
                self.chunk_bytes = next.len();
                self.chunk = next;
            }
            let room = PIECE_BYTES - piece.len();
            let part = self.chunk.split_to(room.min(self.chunk.len()));
            if part.len() < SHARED_BYTES_MIN || part.len() < self.chunk_bytes / 2 {
                piece.buffer().extend_from_slice(&part);
            } else {
                piece.push_shared(part);
            }
        }
        match &self.held {
            Some(held) => piece.finish_held(held),
            None => piece.finish(),
        }
    }

    /// Whether it holds no more bytes.
    #[cfg(test)]
    pub(crate) fn is_released(&self) -> bool {
        self.rest.as_slice().is_empty() && self.chunk.is_empty()
    }
}

impl Iterator for Chunks {
    type Item = Rope;

    fn next(&mut self) -> Option<Rope> {
        let piece = if self.chunk.is_empty() && self.left <= PIECE_BYTES {
            // Most bodies are one piece, and are not copied.
            Rope::from(std::mem::take(&mut self.rest))
        } else {
            self.next_piece()
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
            Self::Rendered(..) => "Rendered",
            Self::Upstream { .. } => "Upstream",
            Self::Seated { .. } => "Seated",
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
                return Poll::Ready(chunks.next().map(|chunk| Ok(Frame::data(chunk))));
            }
            Self::List(list) => {
                return Poll::Ready(list.next().map(|piece| piece.map(Frame::data)));
            }
            Self::Rendered(body) => {
                return body
                    .poll_piece(context)
                    .map(|next| next.map(|piece| piece.map(Frame::data)));
            }
            Self::Watch(stream) => {
                let next = stream.as_mut().poll_next(context);
                return next.map(|next| next.map(|frames| Ok(Frame::data(frames))));
            }
            Self::Upstream { body, holds } => {
                let polled = Pin::new(&mut *body).poll_frame(context);
                holds.observe(&polled, body.is_end_stream());
                polled
            }
            Self::Seated { reading, holds } => {
                let polled = reading.poll_frame(context);
                holds.observe(&polled, reading.is_end_stream());
                polled
            }
            Self::ForwardedWatch { body, holds } => {
                let polled = Pin::new(&mut *body).poll_frame(context);
                holds.observe(&polled, body.is_end_stream());
                polled
            }
        };
        upstream.map_ok(|frame| frame.map_data(Rope::from))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Chunks(chunks) => chunks.left == 0,
            Self::List(list) => list.is_empty(),
            Self::Rendered(body) => body.is_ended(),
            Self::Upstream { body, .. } => body.is_end_stream(),
            Self::Seated { reading, .. } => reading.is_end_stream(),
            Self::ForwardedWatch { body, .. } => body.is_end_stream(),
            Self::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Chunks(chunks) => SizeHint::with_exact(chunks.left as u64),
            Self::List(list) => SizeHint::with_exact(list.len() as u64),
            Self::Upstream { body, .. } => body.size_hint(),
            Self::Seated { reading, .. } => reading.size_hint(),
            Self::ForwardedWatch { body, .. } => body.size_hint(),
            Self::Rendered(_) | Self::Watch(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(chunks: Vec<Bytes>) -> Vec<Rope> {
        Chunks::new(chunks).collect()
    }

    fn joined(pieces: Vec<Rope>) -> Vec<u8> {
        pieces.into_iter().flat_map(|mut piece| piece.copy_to_bytes(piece.remaining())).collect()
    }

    #[test]
    fn a_short_body_is_one_piece_without_a_copy() {
        let body = Bytes::from(vec![7; 100]);
        let mut pieces = pieces(vec![body.clone(), Bytes::from_static(b"\n")]);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].chunk().as_ptr(), body.as_ptr());
        assert_eq!(pieces[0].copy_to_bytes(101), [&body[..], b"\n"].concat());
        assert!(Chunks::new(vec![Bytes::new()]).next().is_none());
    }

    #[test]
    fn the_pieces_of_a_long_body_keep_little_alive() {
        let chunks = [3 * PIECE_BYTES, 10, PIECE_BYTES - 10, PIECE_BYTES / 2];
        let chunks: Vec<_> = chunks.iter().map(|length| Bytes::from(vec![7; *length])).collect();
        let pieces = pieces(chunks.clone());
        assert!(pieces.iter().all(|piece| piece.remaining() <= PIECE_BYTES));
        let shares = |chunk: &Bytes| {
            let chunk_range = chunk.as_ptr_range();
            pieces.iter().any(|piece| {
                let mut slices = [std::io::IoSlice::new(&[]); 64];
                let count = piece.chunks_vectored(&mut slices);
                slices[..count].iter().any(|slice| chunk_range.contains(&slice.as_ptr()))
            })
        };
        assert_eq!(chunks.iter().map(shares).collect::<Vec<_>>(), [false, false, true, true]);
        assert_eq!(joined(pieces), chunks.concat());
    }
}
