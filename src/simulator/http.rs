//! The listener: plain TCP or TLS, HTTP/1.1 and HTTP/2 on either, each connection a task of its own.
//!
//! A cancelled token drops all connections at once, as a killed server does.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body};
use super::request::Request;
use super::router;
use super::shared::Shared;
use super::status::ApiError;

/// The upstream's limit of a request body.
const BODY_BYTES_MAX: usize = 3 << 20;

/// The upstream's limit of a request's headers.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// Accepts until it is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // A connection that failed while it waited is the client's affair.
        let Ok((stream, _)) = accepted else { continue };
        shared.log.connection_opened();
        let (tls, shared, stop) = (tls.clone(), Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection(stream, tls, shared) => {}
            }
        });
    }
}

/// A CA and a certificate for the loopback addresses: the acceptor, and the CA in PEM.
pub(super) fn acceptor() -> io::Result<(TlsAcceptor, String)> {
    let (config, ca) = certificates().map_err(io::Error::other)?;
    Ok((TlsAcceptor::from(Arc::new(config)), ca))
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // A failure to set it costs only latency.
    drop(stream.set_nodelay(true));
    match tls {
        None => requests(stream, shared).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                requests(stream, shared).await;
            }
        }
    }
}

async fn requests<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(shared.options.http2_streams_max)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(25 << 20)
        .max_header_list_size(HEADER_BYTES_MAX);
    builder.http1().timer(TokioTimer::new()).max_buf_size(HEADER_BYTES_MAX as usize);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Box::pin(handle(request, &shared)).await }
    });
    // A broken connection is the client's affair.
    drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
}

async fn handle(
    mut request: hyper::Request<Incoming>,
    shared: &Arc<Shared>,
) -> Result<Response<Body>, io::Error> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let (body, failed) = match body {
        Ok(body) => (body.to_bytes(), false),
        Err(_) => (Bytes::new(), true),
    };
    let request = Request::new(&parts, body);
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

fn certificates() -> Result<(ServerConfig, String), Box<dyn std::error::Error + Send + Sync>> {
    let ca_key = rcgen::KeyPair::generate()?;
    let mut ca = rcgen::CertificateParams::new(Vec::new())?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "weir-simulator-ca");
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate()?;
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let mut leaf = rcgen::CertificateParams::new(names)?;
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = leaf.signed_by(&key, &issuer)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, ca_certificate.pem()))
}
