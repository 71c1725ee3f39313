//! gzip as kube-apiserver does it: level 1, one member, only above a threshold (`docs/semantics.md`
//! §8.7). Lists are joined from cached segments ([`segment_cache`]); a watch is a sequence of
//! members (§5.13).

mod checksum;
mod member;
mod members_reader;
mod run;
mod segment;
pub mod segment_cache;

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

pub use self::members_reader::MembersReader;

/// The API server compresses bodies larger than this, in bytes, for clients that accept gzip
/// (`docs/semantics.md` §8.7).
pub const THRESHOLD_BYTES: usize = 131_072;

/// The memory of a [`MemberWriter`] besides the bytes that it returns, rounded up.
pub const WRITER_BYTES: usize = 384 << 10;

/// Compresses a body into one gzip member, piece by piece. Takes about 10 ms of CPU per megabyte.
#[derive(Debug)]
pub struct MemberWriter(GzEncoder<Vec<u8>>);

impl MemberWriter {
    /// Creates a writer.
    pub fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses bytes. Fails only if the compressor does.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Returns the number of compressed bytes that can be taken.
    pub fn len(&self) -> usize {
        self.0.get_ref().len()
    }

    /// Whether no compressed bytes can be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the compressed bytes.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.0.get_mut())
    }

    /// Returns the rest of the member.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

/// Returns bytes as one gzip member of a watch. Its last block is empty, as the API server's is:
/// Go passes on what the last block holds only when the next member begins, which may be minutes
/// later. Short bytes are not compressed: that takes longer to begin than to send them.
pub fn to_member(bytes: &[u8]) -> Bytes {
    if bytes.len() < COMPRESSED_BYTES_MIN {
        return member::stored(bytes);
    }
    let mut writer = MemberWriter::new();
    let flushed = writer.push(bytes).and_then(|()| writer.0.flush());
    let Ok(mut member) = flushed.and_then(|()| writer.finish()) else {
        return member::stored(bytes);
    };
    member.shrink_to_fit();
    member.into()
}

/// Shorter frames, such as bookmarks, are not compressed.
const COMPRESSED_BYTES_MIN: usize = 512;

impl Default for MemberWriter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn all_chunks_are_compressed_into_one_gzip_member() {
        let noise: Vec<u8> =
            (0..600_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let (mut writer, mut member) = (MemberWriter::new(), Vec::new());
        for chunk in noise.chunks(100_000) {
            writer.push(chunk).unwrap();
            assert!(!writer.is_empty());
            member.extend(writer.take());
            assert!(writer.is_empty());
        }
        member.extend(writer.finish().unwrap());
        let mut decoder = flate2::bufread::GzDecoder::new(&*member);
        let mut decoded = Vec::new();
        decoder.read_to_end(&mut decoded).unwrap();
        assert_eq!(decoded, noise);
        assert!(decoder.into_inner().is_empty(), "one member");
    }

    #[test]
    fn the_last_block_of_a_member_of_a_watch_is_empty() {
        for length in [0, 1, COMPRESSED_BYTES_MIN - 1, COMPRESSED_BYTES_MIN, 70_000, 300_000] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * n % 251) as u8).collect();
            let member = to_member(&bytes);
            let (blocks, _checksum) = member.split_at(member.len() - 8);
            let stored = blocks.strip_suffix(&[1, 0, 0, 0xff, 0xff]);
            let before_last = stored.or_else(|| blocks.strip_suffix(&[3, 0])).unwrap();
            assert!(before_last.ends_with(&[0, 0, 0xff, 0xff]), "{length} bytes end by a flush");
            let mut decoded = Vec::new();
            flate2::bufread::GzDecoder::new(&*member).read_to_end(&mut decoded).unwrap();
            assert_eq!(decoded, bytes);
        }
    }
}
