//! The frames of a client in one piece and byte by byte, and the frames to it.

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;

/// Returns all that a client's bytes lead to, which come in pieces of `piece` bytes.
async fn received(sent: &[u8], piece: usize) -> Vec<Received> {
    let (mut client, server) = tokio::io::duplex(piece);
    let mut reader = FrameReader::new(server);
    let send = async {
        client.write_all(sent).await.unwrap();
        drop(client);
    };
    let read = async {
        let mut frames = Vec::new();
        loop {
            let next = reader.next().await;
            let is_last = !matches!(next, Received::Ping(_));
            frames.push(next);
            if is_last {
                reader.drain().await;
                return frames;
            }
        }
    };
    tokio::join!(send, read).1
}

/// A masked frame with these first two bytes, of which the second has the mask's bit added.
fn masked(first: u8, length: &[u8], payload: &[u8]) -> Vec<u8> {
    let key = [1, 2, 3, 4];
    let mut frame = vec![first];
    frame.extend_from_slice(length);
    frame[1] |= 0x80;
    frame.extend_from_slice(&key);
    frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

#[tokio::test]
async fn frames_are_read_as_the_upstream_reads_them() {
    let ping = |payload: &[u8]| Received::Ping(payload.to_vec());
    let long = vec![b'p'; 300];
    let after = masked(0x89, &[1], b"!");
    for (what, frame, expected) in [
        ("text", masked(0x81, &[2], b"ab"), vec![]),
        ("text that is not UTF-8", masked(0x81, &[2], b"\xff\xfe"), vec![]),
        ("a fragment", masked(0x01, &[2], b"ab"), vec![]),
        ("a continuation of nothing", masked(0x80, &[2], b"ab"), vec![]),
        ("reserved bits", masked(0xf1, &[2], b"ab"), vec![]),
        ("a reserved opcode", masked(0x83, &[2], b"ab"), vec![]),
        ("a reserved control opcode", masked(0x8b, &[2], b"ab"), vec![]),
        ("a pong", masked(0x8a, &[2], b"ab"), vec![]),
        ("a ping", masked(0x89, &[2], b"ab"), vec![ping(b"ab")]),
        ("an empty ping", masked(0x89, &[0], b""), vec![ping(b"")]),
        ("a fragmented ping", masked(0x09, &[2], b"ab"), vec![ping(b"ab")]),
        ("a long ping", masked(0x89, &[126, 1, 44], &long), vec![ping(&long[..125])]),
        ("a long pong", masked(0x8a, &[126, 1, 44], &long), vec![]),
        (
            "a length with the highest bit",
            masked(0x82, &[127, 0x80, 0, 0, 0, 0, 0, 0, 2], b"ab"),
            vec![],
        ),
        (
            "a length with too many digits",
            masked(0x82, &[127, 0, 0, 0, 0, 0, 0, 0, 2], b"ab"),
            vec![],
        ),
    ] {
        let mut expected = expected;
        expected.extend([ping(b"!"), Received::End]);
        let sent = [frame, after.clone()].concat();
        for piece in [1, 2, 7, 4096] {
            assert_eq!(received(&sent, piece).await, expected, "{what}, {piece} bytes at a time");
        }
    }
    for (what, frame, expected) in [
        ("no mask", b"\x81\x02ab".to_vec(), Received::Unmasked),
        ("a ping without a mask", b"\x89\0".to_vec(), Received::Unmasked),
        ("a close frame without a mask", b"\x88\0".to_vec(), Received::Unmasked),
        ("a close frame", masked(0x88, &[2], b"\x03\xe8"), Received::End),
        ("half a close frame", masked(0x88, &[5], b"\x03"), Received::End),
        ("32 MiB and a byte", masked(0x82, &[127, 0, 0, 0, 0, 2, 0, 0, 1], b""), Received::End),
        ("half a head", vec![0x81, 0xfe, 0], Received::End),
        ("nothing", vec![], Received::End),
    ] {
        for piece in [1, 4096] {
            assert_eq!(received(&frame, piece).await, std::slice::from_ref(&expected), "{what}");
        }
    }
    let cut = received(&masked(0x89, &[5], b"ab"), 1).await;
    assert_eq!(cut, [ping(b"ab"), Received::End], "a ping that is cut off");
}

#[tokio::test]
async fn lengths_are_written_in_the_shortest_form() {
    for (length, head) in [
        (0, &b"\x82\x00"[..]),
        (125, b"\x82\x7d"),
        (126, b"\x82\x7e\x00\x7e"),
        (65_535, b"\x82\x7e\xff\xff"),
        (65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
    ] {
        let mut written = Vec::new();
        write_frame(&mut written, BINARY, &vec![b'x'; length]).await.unwrap();
        assert_eq!(written.len(), head.len() + length);
        assert_eq!(&written[..head.len()], head);
    }
}

proptest! {
    /// How the bytes arrive decides nothing, and nothing that is sent is kept.
    #[test]
    fn any_bytes_in_any_pieces(sent in proptest::collection::vec(any::<u8>(), 0..600), piece in 1..50_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (whole, parts) = runtime.block_on(async {
            (received(&sent, 4096).await, received(&sent, piece).await)
        });
        prop_assert_eq!(whole, parts);
    }
}
