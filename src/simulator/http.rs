//! The listener: plain TCP or TLS, HTTP/1.1 and HTTP/2 on either, with one task per connection.
//!
//! Cancelling the token drops all connections at once, as a killed server does.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Response, StatusCode, Version};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body};
use super::balancer::ChosenServer;
use super::request::{Certificates, Request};
use super::router;
use super::shared::Shared;
use super::status::ApiError;

/// The upstream's limit on the bytes of a request body.
const BODY_BYTES_MAX: usize = 3 << 20;

/// The upstream's limit on the bytes of the header fields of a request.
const HEADER_BYTES_MAX: u32 = 1 << 20;
/// kube-apiserver's limit on the concurrent streams of a connection.
const HTTP2_STREAMS_MAX: u32 = 100;

/// Accepts connections until `stop` is cancelled, for one API server or for the balancer.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stop: CancellationToken,
    server: Option<usize>,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // An accept error concerns only that connection.
        let Ok((stream, _)) = accepted else { continue };
        let number = shared.log.connection_opened();
        let (tls, shared, stop) = (tls.clone(), Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let served = connection(stream, tls, Arc::clone(&shared), number, server);
            tokio::select! {
                () = stop.cancelled() => {}
                () = unless_frozen(&shared, served) => {}
            }
        });
    }
}

/// Serves one connection to one of the API servers until `stop` is cancelled.
pub(super) async fn serve_one<S>(
    stream: S,
    shared: Arc<Shared>,
    server: usize,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let number = shared.log.connection_opened();
    let served = requests(stream, None, Arc::clone(&shared), number, Some(server));
    tokio::select! {
        () = stop.cancelled() => {}
        () = unless_frozen(&shared, served) => {}
    }
}

/// Polls `served` only while the servers are not frozen.
async fn unless_frozen(shared: &Shared, served: impl Future<Output = ()>) {
    let mut served = pin!(served);
    let mut frozen = shared.frozen.subscribe();
    loop {
        // The sender lives in `shared`, so that no wait can fail.
        drop(frozen.wait_for(|frozen| !frozen).await);
        tokio::select! {
            biased;
            _ = frozen.wait_for(|frozen| *frozen) => {}
            () = served.as_mut() => return,
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    number: u64,
    server: Option<usize>,
) {
    // If this fails, only latency suffers.
    drop(stream.set_nodelay(true));
    match tls {
        None => requests(stream, None, shared, number, server).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                let chain = stream.get_ref().1.peer_certificates();
                let owned = |chain: &[CertificateDer<'_>]| {
                    chain
                        .iter()
                        .map(|certificate| certificate.clone().into_owned())
                        .collect::<Certificates>()
                };
                let chain = chain.map(owned);
                requests(stream, chain, shared, number, server).await;
            }
        }
    }
}

async fn requests<S>(
    stream: S,
    certificates: Option<Certificates>,
    shared: Arc<Shared>,
    number: u64,
    server: Option<usize>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(25 << 20)
        .max_header_list_size(HEADER_BYTES_MAX);
    builder.http1().timer(TokioTimer::new()).max_buf_size(HEADER_BYTES_MAX as usize);
    let go_away = Arc::new(Notify::new());
    let signal = Arc::clone(&go_away);
    let server = Arc::new(ChosenServer::with_server(server));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (shared, certificates) = (Arc::clone(&shared), certificates.clone());
        let (signal, version) = (Arc::clone(&signal), request.version());
        let server = Arc::clone(&server);
        async move {
            let connection = (number, &*server);
            let mut response = Box::pin(handle(request, certificates, connection, &shared)).await?;
            // Go's HTTP/2 server sends a GOAWAY in place of this header.
            if version == Version::HTTP_2 && response.headers_mut().remove(CONNECTION).is_some() {
                signal.notify_one();
            }
            Ok::<_, io::Error>(response)
        }
    });
    let mut connection =
        Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // An error concerns only this connection.
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = go_away.notified() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    drop(ended);
}

async fn handle(
    mut request: hyper::Request<Incoming>,
    certificates: Option<Certificates>,
    (number, server): (u64, &ChosenServer),
    shared: &Arc<Shared>,
) -> Result<Response<Body>, io::Error> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let (body, failed) = match body {
        Ok(body) => (body.to_bytes(), false),
        Err(_) => (Bytes::new(), true),
    };
    let request = Request::new(&parts, body, certificates, number);
    let server = shared.balancer.choose(server, request.verb() == "watch");
    let request = request.at(server);
    let mut response = if failed {
        let message = "Request entity too large: limit is 3145728";
        answer::error(&request, &ApiError::new(413, "RequestEntityTooLarge", message))
    } else {
        router::route(shared, &request, upgrade).await?
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer::common_headers(&request, &mut response);
    }
    if parts.method == http::Method::HEAD {
        *response.body_mut() =
            http_body_util::Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
    }
    Ok(response)
}
