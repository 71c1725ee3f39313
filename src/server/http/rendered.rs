//! Bodies that are spliced, indented or compressed while they are sent (`docs/semantics.md` §8.6,
//! §8.7).
//!
//! A piece is rendered when the connection has room for it, on the connection's own worker: a piece
//! takes less time than other requests notice. A client that does not read holds one piece, the
//! compact piece from which it comes, and the state of the compressor if there is one. All of them
//! count as held (`docs/decisions/response-bodies.md`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};

use crate::cache::core::watch_cache::StateLag;
use crate::codec::gzip::{MemberWriter, WRITER_BYTES};
use crate::codec::held_bytes::{Claim, HeldBytes};
use crate::codec::list::{Pieces, SplicedList};
use crate::codec::object::Object;
use crate::codec::pretty::Indenter;
use crate::codec::rope::{PIECE_BYTES, Rope};
use crate::server::metrics::ResourceMetrics;
use crate::upstream::pool::BodyError;

#[derive(Debug)]
pub(crate) struct Rendered {
    source: Source,
    /// Uncompressed pieces that were rendered already.
    ready: VecDeque<Rope>,
    /// Set if the body is indented.
    indenter: Option<Indenter>,
    /// Set while the body is compressed and has not ended.
    member: Option<Member>,
    ended: bool,
    held: HeldBytes,
}

/// The compact form.
#[derive(Debug)]
pub(crate) struct Source {
    /// The bytes that come next.
    next: Rope,
    /// The pieces after them.
    rest: Option<ListBody>,
}

#[derive(Debug)]
struct Member {
    writer: MemberWriter,
    _memory: Claim,
}

impl From<ListBody> for Source {
    fn from(list: ListBody) -> Self {
        Self { next: Rope::default(), rest: Some(list) }
    }
}

impl From<Vec<Bytes>> for Source {
    fn from(chunks: Vec<Bytes>) -> Self {
        Self { next: chunks.into(), rest: None }
    }
}

impl Source {
    /// Returns the number of bytes that were not read yet.
    pub(crate) fn len(&self) -> usize {
        self.next.remaining() + self.rest.as_ref().map_or(0, ListBody::len)
    }

    /// Ensures that there are bytes to read. Returns false at the end.
    fn fill(&mut self) -> Result<bool, BodyError> {
        while !self.next.has_remaining() {
            match self.rest.as_mut().and_then(Iterator::next) {
                None => return Ok(false),
                Some(piece) => self.next = piece?,
            }
        }
        Ok(true)
    }
}

impl Rendered {
    /// Creates a body. Its rendered pieces count as held.
    pub(crate) fn new(source: Source, indented: bool, held: HeldBytes) -> Self {
        let (ready, indenter) = (VecDeque::new(), indented.then(Indenter::default));
        Self { source, ready, indenter, member: None, ended: false, held }
    }

    /// Renders at least `length` bytes of the uncompressed body, or all if it is shorter, and keeps
    /// them. Returns how many bytes are kept.
    pub(crate) fn render(&mut self, length: usize) -> Result<usize, BodyError> {
        let mut rendered: usize = self.ready.iter().map(Buf::remaining).sum();
        while rendered < length
            && let Some(piece) = self.render_piece(self.held.state_account().clone())?
        {
            rendered += piece.remaining();
            self.ready.push_back(piece);
        }
        Ok(rendered)
    }

    pub(crate) fn compressed(self) -> Self {
        let memory = self.held.state_account().claim(WRITER_BYTES);
        Self { member: Some(Member { writer: MemberWriter::new(), _memory: memory }), ..self }
    }

    /// Takes the whole uncompressed body, if all of it was rendered.
    pub(crate) fn take_rendered(&mut self) -> Option<Vec<Bytes>> {
        if self.member.is_some() || self.source.len() > 0 {
            return None;
        }
        let whole = |piece: &mut Rope| piece.copy_to_bytes(piece.remaining());
        Some(self.ready.iter_mut().map(whole).collect())
    }

    pub(crate) fn is_ended(&self) -> bool {
        let is_read = self.ready.is_empty() && self.source.len() == 0;
        self.ended || (self.member.is_none() && is_read)
    }

    pub(crate) fn poll_piece(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Rope, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = match self.member {
            None => self.next_plain().inspect(|piece| self.ended = piece.is_none()),
            Some(_) => match self.next_compressed() {
                // The compressor has kept all. The other streams of the connection come first.
                Ok(None) if !self.ended => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                piece => piece,
            },
        };
        Poll::Ready(piece.transpose())
    }

    fn next_plain(&mut self) -> Result<Option<Rope>, BodyError> {
        match self.ready.pop_front() {
            Some(piece) => Ok(Some(piece)),
            None => self.render_piece(self.held.clone()),
        }
    }

    /// Renders a piece of the uncompressed body, which counts in `held`.
    fn render_piece(&mut self, held: HeldBytes) -> Result<Option<Rope>, BodyError> {
        let Some(indenter) = &mut self.indenter else {
            if !self.source.fill()? {
                return Ok(None);
            }
            let length = self.source.next.chunk().len().min(PIECE_BYTES);
            return Ok(Some(self.source.next.copy_to_bytes(length).into()));
        };
        let mut piece = Vec::with_capacity(PIECE_BYTES.min(2 * self.source.len()));
        while piece.len() < INDENTED_BYTES_MAX && self.source.fill()? {
            let read = indenter.push(self.source.next.chunk(), &mut piece, INDENTED_BYTES_MAX);
            self.source.next.advance(read);
        }
        let piece = Rope::from(held.hold(piece));
        Ok(piece.has_remaining().then_some(piece))
    }

    /// Returns the next piece of the compressed body, or `None` if the compressor has not returned
    /// any yet, or at the end.
    fn next_compressed(&mut self) -> Result<Option<Rope>, BodyError> {
        for _ in 0..READS_MAX {
            let plain = self.next_plain()?;
            let Some(member) = &mut self.member else { return Ok(None) };
            let Some(mut plain) = plain else {
                let last = self.member.take().map(|member| member.writer.finish());
                self.ended = true;
                let last = last.transpose().map_err(|_| BodyError::Truncated)?;
                return Ok(last.map(|last| self.held.hold(last).into()));
            };
            while plain.has_remaining() {
                let length = plain.chunk().len();
                member.writer.push(plain.chunk()).map_err(|_| BodyError::Truncated)?;
                plain.advance(length);
            }
            if member.writer.len() >= COMPRESSED_BYTES_MIN {
                return Ok(Some(self.held.hold(member.writer.take()).into()));
            }
        }
        Ok(None)
    }
}

/// A list with what it keeps in memory until it has been sent, spliced piece by piece.
///
/// It holds references to objects, which count by their own size. The objects are shared, but a
/// client that reads slowly may be all that keeps old ones: [`StateLag`] bounds that.
#[derive(Debug)]
pub(crate) struct ListBody {
    pieces: Pieces,
    lag: StateLag,
    metrics: Arc<ResourceMetrics>,
    _references: Claim,
}

impl ListBody {
    /// Creates the body of a list of a state. Its copied bytes and its references count as held.
    pub(crate) fn new(
        list: SplicedList,
        lag: StateLag,
        held: &HeldBytes,
        metrics: Arc<ResourceMetrics>,
    ) -> Self {
        let references = held.state_account().claim(size_of_val::<[Arc<Object>]>(list.objects()));
        let pieces = list.into_iter().held_by(held.clone());
        Self { pieces, lag, metrics, _references: references }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Iterator for ListBody {
    type Item = Result<Rope, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.pieces.is_empty() && self.lag.is_exceeded() {
            self.metrics.list_outrun();
            return Some(Err(BodyError::Outrun));
        }
        self.pieces.next().map(Ok)
    }
}

/// The length of an indented piece. The last step may exceed it by a byte, for which there is room.
const INDENTED_BYTES_MAX: usize = PIECE_BYTES - 1;
/// A compressed piece fills at least a frame.
const COMPRESSED_BYTES_MIN: usize = 16 << 10;
/// The pieces that are compressed in one poll, in about a millisecond.
const READS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::codec::pretty;

    /// Reads a body to its end. Returns its pieces.
    fn pieces(body: &mut Rendered) -> Vec<Bytes> {
        let context = Context::from_waker(std::task::Waker::noop());
        let mut pieces_read = Vec::new();
        loop {
            match body.poll_piece(&context) {
                Poll::Ready(Some(piece)) => {
                    let mut piece = piece.unwrap();
                    pieces_read.push(piece.copy_to_bytes(piece.remaining()));
                    assert!(pieces_read.len() < 10_000);
                }
                Poll::Ready(None) => return pieces_read,
                Poll::Pending => {}
            }
        }
    }

    fn compact(strings: usize) -> Vec<u8> {
        let text = |n: usize| format!("text {}", n.wrapping_mul(0x9e37_79b9) % 0xffff);
        let value: Vec<_> = (0..strings).map(|n| serde_json::json!({"a": [text(n), n]})).collect();
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn an_indented_body_holds_one_piece_at_a_time() {
        let compact = compact(20_000);
        let held = HeldBytes::new(usize::MAX);
        let chunks = vec![Bytes::from(compact.clone()), Bytes::from_static(b"\n")];
        let mut body = Rendered::new(chunks.into(), true, held.clone());
        assert!(body.render(1).unwrap() > PIECE_BYTES / 2);
        assert!(held.bytes() <= PIECE_BYTES);
        assert!(body.take_rendered().is_none());
        assert!(!body.is_ended());
        let pieces_read = pieces(&mut body);
        assert!(body.is_ended());
        assert!(pieces_read.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert!(pieces_read.concat() == pretty::indent(&compact));
        drop(pieces_read);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn deep_nesting_does_not_make_long_pieces() {
        let deep = [b"[".repeat(3_000), b"1,".repeat(3_000), b"1".to_vec(), b"]".repeat(3_000)];
        let body = vec![Bytes::from(deep.concat())];
        let mut body = Rendered::new(body.into(), true, HeldBytes::new(usize::MAX));
        let pieces_read = pieces(&mut body);
        assert!(pieces_read.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert!(pieces_read.concat() == pretty::indent(&deep.concat()));
    }

    #[test]
    fn a_short_body_is_rendered_at_once() {
        let compact = compact(20);
        let held = HeldBytes::new(usize::MAX);
        let mut body = Rendered::new(vec![Bytes::from(compact.clone())].into(), true, held);
        let rendered = body.render(1 << 20).unwrap();
        let whole = body.take_rendered().unwrap().concat();
        assert_eq!((rendered, &whole), (whole.len(), &pretty::indent(&compact)));
    }

    #[test]
    fn a_compressed_body_is_one_member_and_counts_its_compressor() {
        let compact = compact(20_000);
        for indented in [false, true] {
            let held = HeldBytes::new(usize::MAX);
            let source = Source::from(vec![Bytes::from(compact.clone())]);
            let mut body = Rendered::new(source, indented, held.clone());
            body.render(PIECE_BYTES + 1).unwrap();
            let mut body = body.compressed();
            assert!(held.bytes() >= WRITER_BYTES);
            let member = pieces(&mut body).concat();
            assert!(body.is_ended());
            assert_eq!(held.bytes(), 0);
            let mut decoded = Vec::new();
            let mut decoder = flate2::bufread::GzDecoder::new(&*member);
            decoder.read_to_end(&mut decoded).unwrap();
            assert!(decoder.into_inner().is_empty());
            let expected = if indented { pretty::indent(&compact) } else { compact.clone() };
            assert!(decoded == expected);
        }
    }
}
