//! Reads a sequence of gzip members, as a compressed watch sends them, piece by piece.

use std::{io, mem};

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

/// Decompresses a sequence of gzip members.
#[derive(Debug, Default)]
pub struct MembersReader {
    /// Set within a member: it takes 40 KiB, and most watches are idle.
    inflate: Option<Box<Decompress>>,
}

impl MembersReader {
    /// Takes a piece of a chunk and decompresses it. Without a reader takes the whole chunk, as it
    /// is. A piece is so short that it never becomes too long.
    pub fn take_piece(reader: &mut Option<Self>, chunk: &mut Bytes) -> io::Result<Bytes> {
        match reader {
            Some(reader) => reader.push(&chunk.split_to(chunk.len().min(PIECE_BYTES_MAX))),
            None => Ok(mem::take(chunk)),
        }
    }

    /// Decompresses the next piece. Fails if it is not gzip, or if it becomes longer than
    /// [`PLAIN_BYTES_MAX`].
    pub fn push(&mut self, mut piece: &[u8]) -> io::Result<Bytes> {
        let mut plain = Vec::new();
        while self.inflate.is_some() || !piece.is_empty() {
            plain.reserve(OUTPUT_BYTES_MIN.max(piece.len() * 2));
            let inflate =
                self.inflate.get_or_insert_with(|| Box::new(Decompress::new_gzip(WINDOW_BITS)));
            let (taken, made) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress_vec(piece, &mut plain, FlushDecompress::None)?;
            let taken = usize::try_from(inflate.total_in() - taken).unwrap_or(usize::MAX);
            let is_stuck = taken == 0 && inflate.total_out() == made;
            piece = piece.get(taken..).unwrap_or_default();
            if plain.len() > PLAIN_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too long"));
            }
            if status == Status::StreamEnd {
                self.inflate = None;
            } else if is_stuck || (piece.is_empty() && plain.len() < plain.capacity()) {
                break;
            }
        }
        Ok(plain.into())
    }

    /// Whether the last piece ended with a whole member.
    pub fn is_between_members(&self) -> bool {
        self.inflate.is_none()
    }
}

/// The most bytes that one piece may become: a piece is what one read of a connection brings, and
/// objects are rarely compressed to less than a twentieth.
const PLAIN_BYTES_MAX: usize = 16 << 20;
/// The longest piece that can never become too long: deflate makes at most 1,032 bytes of one.
const PIECE_BYTES_MAX: usize = 8 << 10;
/// The largest window of deflate.
const WINDOW_BITS: u8 = 15;
/// The least room for a step's output.
const OUTPUT_BYTES_MIN: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gzip::to_member;

    proptest! {
        /// However the members are cut into pieces, their bytes come out.
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec(prop::collection::vec(0..9_u8, 0..3_000), 0..6),
            size in 1..700_usize,
        ) {
            let members: Vec<Bytes> = frames.iter().map(|frame| to_member(frame)).collect();
            let (mut reader, mut plain) = (MembersReader::default(), Vec::new());
            for piece in members.concat().chunks(size) {
                plain.extend_from_slice(&reader.push(piece).unwrap());
            }
            prop_assert_eq!(plain, frames.concat());
            prop_assert!(reader.is_between_members());
        }
    }

    #[test]
    fn what_is_no_gzip_or_too_long_is_refused() {
        assert!(MembersReader::default().push(b"{\"type\":\"ADDED\"}").is_err());
        let too_long = to_member(&vec![b'a'; PLAIN_BYTES_MAX + 1]);
        assert!(MembersReader::default().push(&too_long).is_err());
        let (mut reader, mut rest, mut plain) = (Some(MembersReader::default()), too_long, 0);
        while !rest.is_empty() {
            plain += MembersReader::take_piece(&mut reader, &mut rest).unwrap().len();
        }
        assert_eq!(plain, PLAIN_BYTES_MAX + 1);
        let mut reader = MembersReader::default();
        let long = to_member(&vec![b'a'; PLAIN_BYTES_MAX]);
        let (begin, end) = long.split_at(20);
        reader.push(begin).unwrap();
        assert!(!reader.is_between_members());
        reader.push(end).unwrap();
        assert!(reader.is_between_members());
    }
}
