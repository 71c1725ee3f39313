//! Joins small neighbouring frames of a watch.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::cache::core::watcher::Chunks;
use crate::codec::held_bytes::HeldBytes;

/// Joins small neighbouring chunks, since each chunk is a DATA frame and a TLS record of its own. A
/// chunk that is large or has no small neighbour is not copied, and stays shared by all watchers.
/// Nothing is copied while too much is held.
///
/// Returns the first piece, which is mostly the only one, and appends the others to `rest`.
pub(super) fn coalesce(
    mut chunks: Chunks,
    rest: &mut VecDeque<Bytes>,
    held: Option<&HeldBytes>,
) -> Option<Bytes> {
    if chunks.len() <= 1 {
        return chunks.pop();
    }
    if held.is_some_and(HeldBytes::is_full) {
        rest.extend(chunks);
        return rest.pop_front();
    }
    let mut run: Vec<Bytes> = Vec::new();
    let mut length = 0;
    for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
        if length + chunk.len() > JOINED_BYTES_MAX {
            rest.extend(join(&mut run, length, held));
            length = 0;
        }
        length += chunk.len();
        run.push(chunk);
    }
    rest.extend(join(&mut run, length, held));
    rest.pop_front()
}

fn join(run: &mut Vec<Bytes>, length: usize, held: Option<&HeldBytes>) -> Option<Bytes> {
    if run.len() <= 1 {
        return run.pop();
    }
    let mut joined = Vec::with_capacity(length);
    for chunk in run.drain(..) {
        joined.extend_from_slice(&chunk);
    }
    Some(match held {
        Some(held) => held.hold(joined),
        None => joined.into(),
    })
}

/// Small enough to be cheap to copy, and large enough for few TLS records.
pub(super) const JOINED_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_are_joined_and_large_ones_are_not_copied() {
        let large = Bytes::from(vec![b'l'; JOINED_BYTES_MAX]);
        let small = Bytes::from_static(b"s");
        let mut pieces = VecDeque::new();
        let chunks = [&small, &small, &large, &small, &large, &large, &small, &small];
        let held = HeldBytes::new(100);
        let copies = || chunks.into_iter().cloned().collect();
        let first = coalesce(copies(), &mut pieces, Some(&held)).unwrap();
        pieces.push_front(first);
        let lengths: Vec<_> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2, JOINED_BYTES_MAX, 1, JOINED_BYTES_MAX, JOINED_BYTES_MAX, 2]);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(
            pieces.iter().flatten().count(),
            chunks.iter().map(|chunk| chunk.len()).sum::<usize>()
        );
        assert_eq!(held.bytes(), 4);
        drop(pieces);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn nothing_is_joined_while_too_much_is_held() {
        let small = Bytes::from_static(b"s");
        let held = HeldBytes::new(0);
        let mut rest = VecDeque::new();
        let chunks = std::iter::repeat_n(&small, 3).cloned().collect();
        let first = coalesce(chunks, &mut rest, Some(&held)).unwrap();
        assert_eq!(first.as_ptr(), small.as_ptr());
        assert_eq!((rest.len(), held.bytes()), (2, 0));
    }
}
