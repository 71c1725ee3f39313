//! Reads a sequence of gzip members, as a compressed watch sends them, piece by piece.

use std::io;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

/// Decompresses a sequence of gzip members.
#[derive(Debug)]
pub struct MembersReader {
    inflate: Decompress,
    /// Whether some bytes of a member were read, and not its end.
    is_within: bool,
}

impl Default for MembersReader {
    fn default() -> Self {
        Self { inflate: Decompress::new_gzip(WINDOW_BITS), is_within: false }
    }
}

impl MembersReader {
    /// Decompresses the next piece. Fails if it is not gzip, or if it becomes longer than
    /// `bytes_max`.
    pub fn push(&mut self, mut piece: &[u8], bytes_max: usize) -> io::Result<Bytes> {
        let mut plain = Vec::new();
        loop {
            plain.reserve(OUTPUT_BYTES_MIN.max(piece.len() * 2));
            let (taken, made) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress_vec(piece, &mut plain, FlushDecompress::None)
                .map_err(io::Error::from)?;
            let taken = usize::try_from(self.inflate.total_in() - taken).unwrap_or(usize::MAX);
            piece = piece.get(taken..).unwrap_or_default();
            if plain.len() > bytes_max {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too long"));
            }
            if taken > 0 {
                self.is_within = true;
            }
            if status == Status::StreamEnd {
                self.inflate = Decompress::new_gzip(WINDOW_BITS);
                self.is_within = false;
            } else if taken == 0 && self.inflate.total_out() == made {
                break;
            }
            if piece.is_empty() && plain.len() < plain.capacity() {
                break;
            }
        }
        Ok(plain.into())
    }

    /// Whether the pieces so far end with a whole member.
    pub fn is_between_members(&self) -> bool {
        !self.is_within
    }
}

/// The largest window of deflate.
const WINDOW_BITS: u8 = 15;
/// The least room for a step's output.
const OUTPUT_BYTES_MIN: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gzip::member;

    proptest! {
        /// However the members are cut into pieces, their bytes come out.
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec(prop::collection::vec(0..9_u8, 0..3_000), 0..6),
            size in 1..700_usize,
        ) {
            let members: Vec<Bytes> = frames.iter().map(|frame| member(frame)).collect();
            let (mut reader, mut plain) = (MembersReader::default(), Vec::new());
            for piece in members.concat().chunks(size) {
                plain.extend_from_slice(&reader.push(piece, usize::MAX).unwrap());
            }
            prop_assert_eq!(plain, frames.concat());
            prop_assert!(reader.is_between_members());
        }
    }

    #[test]
    fn what_is_no_gzip_or_too_long_is_refused() {
        assert!(MembersReader::default().push(b"{\"type\":\"ADDED\"}", 99).is_err());
        let long = member(&[b'a'; 100_000]);
        assert!(MembersReader::default().push(&long, 99_999).is_err());
        let mut reader = MembersReader::default();
        let (begin, end) = long.split_at(20);
        reader.push(begin, 100_000).unwrap();
        assert!(!reader.is_between_members());
        reader.push(end, 100_000).unwrap();
        assert!(reader.is_between_members());
    }
}
