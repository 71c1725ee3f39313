//! One connection of the admin listener.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::{Either, ready};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::api::query::Query;
use crate::server::connection::activity::ConnActivity;
use crate::server::connection::cork::Cork;
use crate::server::connection::guarded_body::{BodyGuards, GuardedBody};
use crate::server::connection::wire::aside::RefusedHead;
use crate::server::http::body::Body;
use crate::server::http::response::error_response;

/// Serves a connection until it ends, or gracefully until it is idle for long or `stop` is
/// cancelled. Notes its requests in `activity`.
pub(super) async fn serve<S, A, F>(
    stream: S,
    answer: A,
    activity: ConnActivity,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        // A target may be three times as long once it is escaped.
        .max_buf_size(3 * HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(STREAMS_MAX);
    let requests = activity.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(aside) = requests.next_aside() {
            aside.add_to(&mut request);
        }
        let guard = requests.begin_request();
        let answered = match request.extensions().get::<RefusedHead>() {
            Some(refused) => Either::Left(ready(refused_response(refused))),
            None => Either::Right(answer(request)),
        };
        async move {
            let response = answered.await;
            Ok::<_, Infallible>(
                response.map(|body| GuardedBody::new(body, guard, BodyGuards::default(), None)),
            )
        }
    });
    let io = TokioIo::new(Cork::new(stream, activity.clone(), HEAD_BYTES_MAX));
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        // Connections are limited, and probes need them.
        () = activity.header_timeout(HEADER_READ_TIMEOUT) => return,
        () = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = activity.idle_timeout(IDLE_TIMEOUT) => {}
            }
        } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "admin connection ended");
    }
}

/// Returns the response to a head that is refused. The connection is closed after it.
fn refused_response(RefusedHead(status): &RefusedHead) -> Response<Body> {
    let mut response = error_response(&HeaderMap::new(), &Query::default(), status);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 16;

/// Time-out for the head of a request, from its first byte or from the start of the connection.
/// Probers send it at once.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The idle time-out of a connection: longer than Prometheus' usual scrape interval of a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The interval of HTTP/2 pings, which detect dead peers.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Probes and scrapes have small heads.
const HEAD_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_after_its_last_answer() {
        let (mut client, stream) = tokio::io::duplex(64 << 10);
        let answer = |_| ready(Response::new(Body::empty()));
        let stop = CancellationToken::new();
        tokio::spawn(serve(stream, answer, ConnActivity::new(), stop));
        let mut answered = Instant::now();
        for pause in [Duration::ZERO, IDLE_TIMEOUT / 2] {
            tokio::time::sleep(pause).await;
            client.write_all(b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n").await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(client.read_buf(&mut head).await.unwrap(), 0);
            }
            answered = Instant::now();
        }
        assert_eq!(client.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(answered.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    }
}
