//! Gzip members (RFC 1951, RFC 1952): joined from segments, or of single frames.
//!
//! A segment is a sequence of deflate blocks. None of them is marked as the last block, none refers
//! to bytes before the segment, and the segment ends on a byte boundary. The bytes between segments
//! go into stored blocks.

use std::sync::Arc;

use bytes::Bytes;

use super::checksum::Checksum;
use super::segment::Segment;
use crate::list::SplicedList;

/// Builds the gzip member of `list`, whose runs are compressed in `segments`.
pub(super) fn build(list: &SplicedList, segments: &[Arc<Segment>]) -> Vec<Bytes> {
    let (head, tail, separator) = (&list.head, &list.tail, list.format.separator());
    let mut chunks = Vec::with_capacity(segments.len() * 2 + 2);
    let mut first = HEADER.to_vec();
    store(head, &mut first);
    chunks.push(Bytes::from(first));
    let mut between = Vec::new();
    store(separator, &mut between);
    let (between, between_checksum) = (Bytes::from(between), Checksum::new(separator));
    let mut checksum = Checksum::new(head);
    for (index, segment) in segments.iter().enumerate() {
        if index > 0 && !separator.is_empty() {
            chunks.push(between.clone());
            checksum = checksum.append(between_checksum);
        }
        chunks.push(segment.deflated.bytes().clone());
        checksum = checksum.append(segment.checksum);
    }
    let mut last = Vec::new();
    store(tail, &mut last);
    end(checksum.append(Checksum::new(tail)), &mut last);
    chunks.push(Bytes::from(last));
    chunks
}

pub(super) fn of_segment(segment: &Segment) -> Vec<Bytes> {
    let mut last = Vec::new();
    end(segment.checksum, &mut last);
    vec![Bytes::from_static(&HEADER), segment.deflated.bytes().clone(), Bytes::from(last)]
}

/// Returns a member of a watch that does not compress its bytes. Like a flush, the empty block
/// after them has Go pass them on (see [`to_member`](super::to_member)).
pub(super) fn stored(bytes: &[u8]) -> Bytes {
    let blocks = 5 * (3 + bytes.len() / usize::from(u16::MAX));
    let mut member = Vec::with_capacity(HEADER.len() + blocks + bytes.len() + 8);
    member.extend_from_slice(&HEADER);
    store(bytes, &mut member);
    store_block(&[], false, &mut member);
    end(Checksum::new(bytes), &mut member);
    member.into()
}

/// Appends stored blocks.
fn store(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.chunks(usize::from(u16::MAX)).for_each(|block| store_block(block, false, out));
}

/// Ends a member. Its last block is empty.
fn end(checksum: Checksum, out: &mut Vec<u8>) {
    store_block(&[], true, out);
    out.extend_from_slice(&checksum.trailer());
}

fn store_block(bytes: &[u8], is_last: bool, out: &mut Vec<u8>) {
    // A block has at most `u16::MAX` bytes.
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.push(u8::from(is_last));
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The header for the fastest compression on an unknown system, as the API server writes it.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
