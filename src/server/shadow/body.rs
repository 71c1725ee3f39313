//! Compares two answers: their headers but for those of one request or connection, and their bodies
//! byte for byte. The upstream's body is in memory; the cache's is compared while it is made.

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256, digest};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};

use crate::server::shadow::path::path_at;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodyDifference {
    pub(crate) offset: usize,
    /// Its place: a JSON path, or numbers of protobuf fields.
    pub(crate) path: String,
    /// The lengths of the upstream's body and the cache's, uncompressed.
    pub(crate) lengths: [usize; 2],
    /// Beginnings of their SHA-256.
    pub(crate) hashes: [String; 2],
}

pub(crate) struct Comparer<'a> {
    upstream: &'a [u8],
    position: usize,
    /// The first difference, and the hash of all bytes up to the position.
    first: Option<(usize, Context)>,
}

impl<'a> Comparer<'a> {
    pub(crate) fn new(upstream: &'a [u8]) -> Self {
        Self { upstream, position: 0, first: None }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        let rest = self.upstream.get(self.position..).unwrap_or_default();
        match &mut self.first {
            Some((_, hash)) => hash.update(piece),
            None if rest.starts_with(piece) => {}
            None => {
                let same = rest.iter().zip(piece).take_while(|(one, other)| one == other).count();
                let offset = self.position + same;
                let mut hash = Context::new(&SHA256);
                hash.update(self.upstream.get(..offset).unwrap_or_default());
                hash.update(piece.get(same..).unwrap_or_default());
                self.first = Some((offset, hash));
            }
        }
        self.position += piece.len();
    }

    pub(crate) fn finish(self) -> Option<BodyDifference> {
        let Self { upstream, position, first } = self;
        let (offset, hash) = match first {
            Some((offset, hash)) => (offset, short(hash.finish().as_ref())),
            None if position == upstream.len() => return None,
            None => {
                let shorter = upstream.get(..position).unwrap_or_default();
                (position, hash_of(shorter))
            }
        };
        Some(BodyDifference {
            offset,
            path: path_at(upstream, offset),
            lengths: [upstream.len(), position],
            hashes: [hash_of(upstream), hash],
        })
    }
}

impl Write for Comparer<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.push(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compares two bodies that are both in memory.
pub(crate) fn difference(upstream: &[u8], cache: &[u8]) -> Option<BodyDifference> {
    let mut comparer = Comparer::new(upstream);
    comparer.push(cache);
    comparer.finish()
}

/// Returns a body as one piece, decompressed. Fails if it is not gzip, or longer than `max` bytes.
pub(crate) fn joined(chunks: Vec<Bytes>, is_gzip: bool, max: usize) -> Option<Bytes> {
    if !is_gzip {
        return Some(match <[Bytes; 1]>::try_from(chunks) {
            Ok([body]) => body,
            Err(chunks) => chunks.concat().into(),
        });
    }
    let compressed = chunks.concat();
    let mut body = Vec::new();
    let decoder = flate2::read::GzDecoder::new(&*compressed);
    decoder.take(max as u64 + 1).read_to_end(&mut body).ok()?;
    (body.len() <= max).then(|| body.into())
}

pub(crate) fn header_difference(upstream: &HeaderMap, cache: &HeaderMap) -> Option<String> {
    let compared_headers = |headers: &HeaderMap| {
        let mut compared: Vec<(String, Vec<u8>)> = headers
            .iter()
            .filter(|(name, _)| is_compared(name.as_str()))
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect();
        compared.sort();
        compared
    };
    let (upstream, cache) = (compared_headers(upstream), compared_headers(cache));
    let missing = |from: &[(String, Vec<u8>)], other: &[(String, Vec<u8>)]| {
        from.iter().find(|header| !other.contains(header)).map(|(name, _)| name.clone())
    };
    let first = missing(&upstream, &cache).or_else(|| missing(&cache, &upstream));
    first.or_else(|| (upstream.len() != cache.len()).then(|| "(a repeated header)".to_owned()))
}

fn is_compared(name: &str) -> bool {
    let of_connection = [DATE, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION];
    !of_connection.iter().any(|left_out| left_out == name)
        // `--strict-transport-security-directives` is about the API server's host.
        && !matches!(name, "audit-id" | "keep-alive" | "strict-transport-security")
        && !name.starts_with("x-kubernetes-pf-")
        && !name.starts_with("x-weir-")
}

fn hash_of(bytes: &[u8]) -> String {
    short(digest(&SHA256, bytes).as_ref())
}

/// Sixteen digits are enough to compare two bodies by.
fn short(hash: &[u8]) -> String {
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::codec::gzip::MemberWriter;

    proptest! {
        /// However the pieces are cut, the first difference is that of the whole bodies.
        #[test]
        fn pieces_do_not_matter(
            upstream in prop::collection::vec(0..3_u8, 0..60),
            cache in prop::collection::vec(0..3_u8, 0..60),
            size in 1..9_usize,
        ) {
            let mut comparer = Comparer::new(&upstream);
            cache.chunks(size).for_each(|piece| comparer.push(piece));
            let difference = comparer.finish();
            let same = upstream.iter().zip(&cache).take_while(|(one, other)| one == other).count();
            prop_assert_eq!(difference.is_none(), upstream == cache);
            if let Some(difference) = difference {
                prop_assert_eq!(difference.offset, same);
                prop_assert_eq!(difference.lengths, [upstream.len(), cache.len()]);
                prop_assert_eq!(difference.hashes, [hash_of(&upstream), hash_of(&cache)]);
            }
        }
    }

    #[test]
    fn a_compressed_body_is_joined_up_to_a_bound() {
        let mut writer = MemberWriter::new();
        writer.push(&[b'a'; 1000]).unwrap();
        let chunks = vec![Bytes::from(writer.finish().unwrap())];
        assert_eq!(joined(chunks.clone(), true, 1000).unwrap().len(), 1000);
        assert_eq!(joined(chunks, true, 999), None);
        assert_eq!(joined(vec![Bytes::from_static(b"no gzip")], true, 99), None);
        let plain = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        assert_eq!(joined(plain, false, 99).unwrap(), "ab");
    }

    #[test]
    fn headers_of_one_request_are_not_compared() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            headers
        };
        let upstream = headers(&[
            ("content-type", "application/json"),
            ("date", "now"),
            ("audit-id", "1"),
            ("x-kubernetes-pf-flowschema-uid", "2"),
            ("content-length", "3"),
            ("warning", "299 - \"a\""),
        ]);
        let same = [("warning", "299 - \"a\""), ("content-type", "application/json")];
        assert_eq!(header_difference(&upstream, &headers(&same)), None);
        let other = [("content-type", "application/json")];
        assert_eq!(header_difference(&upstream, &headers(&other)).as_deref(), Some("warning"));
        let more = [same[0], same[1], ("vary", "x")];
        assert_eq!(header_difference(&upstream, &headers(&more)).as_deref(), Some("vary"));
        let repeated = [same[0], same[0], same[1]];
        assert!(header_difference(&upstream, &headers(&repeated)).is_some());
    }
}
