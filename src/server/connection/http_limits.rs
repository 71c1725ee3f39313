//! The limits that hyper enforces on a client connection. Each is set explicitly, since hyper's
//! defaults do not fit: it accepts header lists of 16 KiB where kube-apiserver accepts 1 MiB, and
//! buffers 400 KiB for each stream of a slow client (`docs/decisions/client-connections.md`).

use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::server::conn::auto;

use crate::server::connection::wire::target::TARGET_BYTES_MAX;
use crate::streams::Spawner;

/// Sets the limits of HTTP/2 on either of hyper's builders.
macro_rules! limit_http2 {
    ($builder:expr) => {
        $builder
            .max_header_list_size(HEADER_BYTES_MAX as u32)
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(LOCAL_RESETS_MAX)
            .max_frame_size(FRAME_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
    };
}

/// Returns a builder without hyper's time-out ([`super::activity`]). No head has more fields than
/// hyper takes by default ([`crate::server::connection::wire`]).
pub(super) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
    builder
}

pub(super) fn http2(spawner: Spawner) -> http2::Builder<Spawner> {
    let mut builder = http2::Builder::new(spawner);
    limit_http2!(builder);
    builder
}

/// Returns a builder of connections that detect their protocol from the first bytes.
pub(super) fn detecting(spawner: Spawner) -> auto::Builder<Spawner> {
    let mut builder = auto::Builder::new(spawner);
    builder.http1().header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
    limit_http2!(builder.http2());
    builder
}

/// The time between two requests, from when hyper has the whole response. It is longer than the
/// 90 s after which Go's clients close a connection, so that a client that reads at once writes no
/// request while Weir closes the connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How many streams may wait for their first poll; more are reset. A client may have half as many
/// open. Streams that it reset itself no longer count for that limit, but may still wait here.
pub(super) const SPAWN_QUEUE_MAX: usize = 2 * STREAMS_MAX as usize;

/// The limit of kube-apiserver. Bearer tokens and `Impersonate-Extra-` headers can be large.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// The limit of kube-apiserver on a head of HTTP/1.1, its first line included, with the buffer in
/// which Go's server reads more than it needs.
pub(super) const HEAD_BYTES_MAX: usize = HEADER_BYTES_MAX + 4096;
const BUFFER_BYTES_MAX: usize = HEAD_BYTES_MAX + TARGET_BYTES_MAX;
/// More than the watches that a client-go process opens on its one connection, and few enough to
/// bound what one client can hold.
const STREAMS_MAX: u32 = 250;
/// Streams that a client opened and reset before Weir polled them. This is hyper's default
/// (CVE-2023-44487). An honest client that cancels a burst of requests has fewer; more end the
/// connection with ENHANCE_YOUR_CALM.
const PENDING_RESETS_MAX: usize = 20;
/// Streams that Weir reset because of a client's errors. This is h2's default (CVE-2025-8671). An
/// honest client causes none.
const LOCAL_RESETS_MAX: usize = 1024;
/// The minimum of HTTP/2: request bodies are small, and this bounds what is held of one frame.
/// Together with [`HEADER_BYTES_MAX`] it also bounds the CONTINUATION frames of one head.
const FRAME_BYTES_MAX: u32 = 16 << 10;
/// The window of kube-apiserver. Only request bodies flow in.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Enough for a few uploads at once.
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// The send buffer of one stream for a slow client. It is small because there are many watches, and
/// each reads from the shared history.
const SEND_BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::{Pin, pin};
    use std::sync::Arc;

    use bytes::Bytes;
    use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
    use http::{Request, Response};
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::streams::ConnectionTasks;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends bytes to a connection of one of the builders. Returns the requests that arrive, as the
    /// numbers of their lengths and codings and their bodies, and the bytes of the answers until
    /// the connection is closed.
    async fn arrived(bytes: &str, detect: bool) -> (Vec<(usize, usize, Bytes)>, String) {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        let service = service_fn(move |request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let count = |name| parts.headers.get_all(name).iter().count();
                let (lengths, codings) = (count(CONTENT_LENGTH), count(TRANSFER_ENCODING));
                let body = body.collect().await.unwrap().to_bytes();
                shared.lock().push((lengths, codings, body));
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let io = TokioIo::new(server);
        let serving = tokio::spawn(async move {
            let streams = ConnectionTasks::<()>::new(1);
            if detect {
                let builder = detecting(streams.spawner());
                drop(builder.serve_connection_with_upgrades(io, service).await);
            } else {
                drop(http1().serve_connection(io, service).await);
            }
        });
        client.write_all(bytes.as_bytes()).await.unwrap();
        let mut answers = String::new();
        let read = tokio::time::timeout(TIMEOUT, client.read_to_string(&mut answers)).await;
        read.expect("the connection stays open").unwrap();
        serving.await.unwrap();
        (std::mem::take(&mut *seen.lock()), answers)
    }

    /// [`crate::server::request::framing`] has no check for a request with both headers, and
    /// depends on this (RFC 9112 §6.1). If hyper changes, such a request may only be refused.
    #[tokio::test]
    async fn hyper_takes_the_length_out_of_chunked_requests() {
        let length = "Content-Length: 4\r\n";
        let coding = "Transfer-Encoding: chunked\r\n";
        let next = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for both in [
            format!("{length}{coding}"),
            format!("{coding}{length}"),
            format!("{length}{coding}{length}"),
            format!("{coding}Content-Length: 0\r\n{length}"),
        ] {
            let post = format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{both}\r\n");
            let bytes = format!("{post}5\r\nhello\r\n0\r\n\r\n{next}");
            for detect in [false, true] {
                let (seen, answers) = arrived(&bytes, detect).await;
                assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{both:?}: {answers}");
                if answers.starts_with("HTTP/1.1 400 ") {
                    assert!(seen.is_empty(), "{both:?}: {seen:?}");
                } else {
                    assert_eq!(seen, [(0, 1, Bytes::from_static(b"hello"))], "{both:?}");
                }
            }
        }
    }

    /// The idle time-out of HTTP/1.1 depends on this ([`super::super::activity`]).
    #[tokio::test]
    async fn a_graceful_shutdown_ends_an_idle_connection() {
        let answer = || Response::new(Empty::<Bytes>::new());
        let service = || service_fn(move |_| async move { Ok::<_, Infallible>(answer()) });
        let (client, server) = tokio::io::duplex(64 << 10);
        let connection = http1().serve_connection(TokioIo::new(server), service()).with_upgrades();
        end_idle(client, connection, |connection| connection.graceful_shutdown()).await;
        let (client, server) = tokio::io::duplex(64 << 10);
        let builder = detecting(ConnectionTasks::<()>::new(1).spawner());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(server), service());
        end_idle(client, connection, |connection| connection.graceful_shutdown()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_graceful_shutdown_cuts_no_response() {
        const BYTES: usize = 256 << 10;
        let (mut client, server) = tokio::io::duplex(1024);
        let body = || Full::new(Bytes::from_static(&[b'x'; BYTES]));
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(body())) });
        let mut connection = pin!(http1().serve_connection(TokioIo::new(server), service));
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let unread = tokio::time::timeout(TIMEOUT, connection.as_mut()).await;
        assert!(unread.is_err(), "hyper holds what the client does not read");
        connection.as_mut().graceful_shutdown();
        let mut answer = Vec::new();
        let (ended, read) = tokio::join!(connection, client.read_to_end(&mut answer));
        ended.unwrap();
        read.unwrap();
        assert!(answer.ends_with(&[b'x'; BYTES]));
    }

    /// Has a request answered, and ends the connection by `shutdown`.
    async fn end_idle<C: Future<Output = Result<(), E>>, E: std::fmt::Debug>(
        mut client: tokio::io::DuplexStream,
        connection: C,
        shutdown: fn(Pin<&mut C>),
    ) {
        let mut connection = pin!(connection);
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            tokio::select! {
                _ = connection.as_mut() => panic!("the connection ended early"),
                read = client.read_buf(&mut answer) => assert_ne!(read.unwrap(), 0),
            }
        }
        shutdown(connection.as_mut());
        let ended = tokio::time::timeout(TIMEOUT, connection).await;
        ended.expect("it is idle").unwrap();
        assert_eq!(client.read_buf(&mut answer).await.unwrap(), 0);
    }
}
