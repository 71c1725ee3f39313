//! gzip as kube-apiserver does it: level 1, one member, only above a threshold (`docs/semantics.md`
//! §8.7). Lists are joined from cached segments ([`segment_cache`]).

mod checksum;
mod member;
mod run;
mod segment;
pub mod segment_cache;

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::codec::rope::PIECE_BYTES;

/// The API server compresses bodies larger than this, in bytes, for clients that accept gzip
/// (`docs/semantics.md` §8.7).
pub const THRESHOLD_BYTES: usize = 131_072;

/// Compresses chunks into one gzip member. Takes about 10 ms of CPU per megabyte: do not call it on
/// an async worker for a large body. Fails only if the compressor does.
pub fn compress(chunks: &[Bytes]) -> io::Result<Vec<Bytes>> {
    let mut encoder = GzEncoder::new(Chunks::default(), Compression::fast());
    for chunk in chunks {
        encoder.write_all(chunk)?;
    }
    encoder.finish().map(Chunks::into_bytes)
}

/// Collects the encoder's output in chunks, so that a large body is never copied to grow.
#[derive(Default)]
struct Chunks {
    full: Vec<Bytes>,
    current: Vec<u8>,
}

impl Chunks {
    fn into_bytes(mut self) -> Vec<Bytes> {
        self.full.push(self.current.into());
        self.full
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.len() + bytes.len() > CHUNK_BYTES {
            let full = std::mem::replace(&mut self.current, Vec::with_capacity(CHUNK_BYTES));
            self.full.push(full.into());
        }
        self.current.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The size of a piece of a response body.
const CHUNK_BYTES: usize = PIECE_BYTES;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn all_chunks_are_compressed_into_one_gzip_member() {
        let noise: Vec<u8> =
            (0..600_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let chunks: Vec<_> = noise.chunks(100_000).map(Bytes::copy_from_slice).collect();
        let compressed = compress(&chunks).unwrap();
        assert!(compressed.len() > 1);
        let mut decoded = Vec::new();
        flate2::read::GzDecoder::new(&*compressed.concat()).read_to_end(&mut decoded).unwrap();
        assert_eq!(decoded, noise);
    }
}
