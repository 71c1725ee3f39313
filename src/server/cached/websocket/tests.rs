//! The splitting of chunks, and the exchange with a client.

use futures_util::{SinkExt, stream};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

fn events(chunk: &'static [u8], encoding: Encoding) -> Vec<Bytes> {
    let mut chunk = Bytes::from_static(chunk);
    std::iter::from_fn(|| take_event(&mut chunk, encoding)).collect()
}

#[test]
fn a_chunk_is_split_into_its_events() {
    assert_eq!(events(b"{}\n{\"a\":1}\n", Encoding::Json), ["{}\n", "{\"a\":1}\n"]);
    assert!(events(b"", Encoding::Json).is_empty());
    let frames = b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c";
    assert_eq!(events(frames, Encoding::Protobuf), ["ab", "", "c"]);
    assert_eq!(events(b"\0\0\0\x02ab\0\0\0\x09c", Encoding::Protobuf), ["ab"]);
    assert_eq!(events(b"\0\0", Encoding::Protobuf), [""; 0]);
}

/// Serves a watch of `chunks` to the returned client. If `open`, the watch does not end after them.
fn serve_chunks(chunks: Vec<&'static [u8]>, encoding: Encoding, open: bool) -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 10);
    let chunks = stream::iter(chunks.into_iter().map(Bytes::from_static).map(Rope::from));
    let frames: Frames =
        if open { Box::pin(chunks.chain(stream::pending())) } else { Box::pin(chunks) };
    tokio::spawn(send_watch(server, frames, encoding, HeldBytes::new(usize::MAX)));
    client
}

#[tokio::test(start_paused = true)]
async fn frames_are_unfragmented_and_unmasked_and_the_close_code_is_1000() {
    let mut client = serve_chunks(vec![b"{}\n[]\n"], Encoding::Json, false);
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert_eq!(seen, b"\x81\x03{}\n\x81\x03[]\n\x88\x02\x03\xe8");
    let mut client = serve_chunks(vec![b"\0\0\0\x01a\0\0\0\x01b"], Encoding::Protobuf, false);
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert_eq!(seen, b"\x82\x01a\x82\x01b\x88\x02\x03\xe8");
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_data_is_discarded() {
    let client = serve_chunks(vec![b"{}\n"], Encoding::Json, true);
    let mut socket = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("{}\n"));
    socket.send(Message::text("hello")).await.unwrap();
    socket.send(Message::binary(vec![0; 1000])).await.unwrap();
    socket.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("p".into()));
    socket.close(None).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    assert!(socket.next().await.is_none(), "the connection did not end cleanly");
}

/// Each of these is what the API server sends, as seen by `tests/real/wire`.
#[tokio::test(start_paused = true)]
async fn the_upstreams_close_frames_end_the_watch() {
    let unmasked = &b"\x88\x02\x03\xea\x88\x02\x03\xe8"[..];
    let normal = &b"\x88\x02\x03\xe8"[..];
    for (sent, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], unmasked),
        (b"\x81\x01a", unmasked),
        // A close frame with another code, and without one.
        (b"\x88\x82\0\0\0\0\x0f\xa0", normal),
        (b"\x88\x80\0\0\0\0", normal),
        // Data of more than 32 MiB.
        (b"\x82\xff\0\0\0\0\x10\0\0\0abcd", normal),
        (b"\x89\x81\0\0\0\0p\x88\x80\0\0\0\0", b"\x8a\x01p\x88\x02\x03\xe8"),
    ] {
        let mut client = serve_chunks(Vec::new(), Encoding::Json, true);
        client.write_all(sent).await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, expected, "{}", sent.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ends_its_half_gets_a_close_frame() {
    let mut client = serve_chunks(Vec::new(), Encoding::Json, true);
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\x88\x02\x03\xe8");
}

/// A watch is not read ahead of its client.
#[tokio::test(start_paused = true)]
async fn the_watch_is_not_read_ahead_of_a_slow_client() {
    let (_client, server) = tokio::io::duplex(1 << 10);
    let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&taken);
    let frames = stream::repeat_with(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Rope::from(Bytes::from_static(b"{\"type\":\"ADDED\"}\n"))
    });
    let held = HeldBytes::new(usize::MAX);
    tokio::spawn(send_watch(server, Box::pin(frames), Encoding::Json, held));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
    assert!((10..200).contains(&taken), "{taken}");
}
