//! The collector: one HTTP/1.1 connection, opened for the first batch, and the meaning of its
//! responses (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).
//!
//! The CA of a collector with TLS is read again for each connection, so that it may be renewed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::api::retry_after::parse_retry_after;
use crate::config::tracing::TracingEndpoint;
use crate::telemetry::trace::otlp::ExportTraceServiceResponse;

/// Why the collector cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("tracing.caFile: {file}: {cause}")]
pub struct CollectorError {
    file: String,
    cause: String,
}

/// The result of one attempt to send a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The collector has it, without the `rejected` spans.
    Accepted { rejected: usize, message: String },
    /// The collector refuses it, and would again.
    Refused(String),
    /// It may be sent again, after the pause that the collector asks for.
    Retry { cause: String, after: Option<Duration> },
}

/// Sends batches.
pub(super) trait Collect: Send + 'static {
    /// Sends one batch, in protobuf. Cancel safe.
    fn post(&mut self, batch: Bytes) -> impl Future<Output = Attempt> + Send;
}

/// Speaks to the collector of the configuration.
pub(super) struct CollectorClient {
    endpoint: TracingEndpoint,
    /// The CA of a collector with TLS, in PEM; `None` for one without TLS.
    ca_file: Option<PathBuf>,
    /// The open connection between two requests.
    connection: Option<Connection>,
}

/// It closes when it is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _task: JoinSet<()>,
}

impl CollectorClient {
    /// Fails if the CA cannot be read now.
    pub(super) fn new(
        endpoint: TracingEndpoint,
        ca_file: Option<PathBuf>,
    ) -> Result<Self, CollectorError> {
        if let Some(file) = &ca_file {
            let pem = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
            roots(&pem).map_err(|cause| unreadable(file, &cause))?;
        }
        Ok(Self { endpoint, ca_file, connection: None })
    }

    async fn try_post(&mut self, batch: Bytes) -> Result<Attempt, String> {
        let open = self.connection.take().filter(|connection| !connection.sender.is_closed());
        let mut connection = match open {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let request = self.request(batch)?;
        let sent = connection.sender.send_request(request).await;
        let (parts, body) = sent.map_err(|error| describe(&error))?.into_parts();
        // A connection is used again only if the whole response was read.
        let body = match Limited::new(body, RESPONSE_BYTES_MAX).collect().await {
            Ok(body) => {
                self.connection = Some(connection);
                body.to_bytes()
            }
            Err(_) => Bytes::new(),
        };
        Ok(attempt_of(parts.status, &parts.headers, &body))
    }

    fn request(&self, batch: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::post(&*self.endpoint.path)
            .header(HOST, &*self.endpoint.authority)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .body(Full::new(batch));
        request.map_err(|error| error.to_string())
    }

    async fn connect(&self) -> Result<Connection, String> {
        let TracingEndpoint { host, port, .. } = &self.endpoint;
        let tcp = TcpStream::connect((&**host, *port)).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(file) = &self.ca_file else { return start(tcp).await };
        let pem = tokio::fs::read(file).await;
        let pem = pem.map_err(|error| unreadable(file, &error).to_string())?;
        let roots = roots(&pem).map_err(|cause| unreadable(file, &cause).to_string())?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        start(tls.map_err(|error| format!("TLS: {error}"))?).await
    }
}

impl Collect for CollectorClient {
    async fn post(&mut self, batch: Bytes) -> Attempt {
        let posted = self.try_post(batch).await;
        posted.unwrap_or_else(|cause| Attempt::Retry { cause, after: None })
    }
}

async fn start<S>(io: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        handshake(TokioIo::new(io)).await.map_err(|error| describe(&error))?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the collector ended");
        }
    });
    Ok(Connection { sender, _task: task })
}

/// Returns what a response says about the batch.
fn attempt_of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Attempt {
    if status.is_success() {
        let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
        let partial = response.partial_success.unwrap_or_default();
        let rejected = usize::try_from(partial.rejected_spans).unwrap_or_default();
        let message = partial.error_message.chars().take(MESSAGE_CHARS_MAX).collect();
        return Attempt::Accepted { rejected, message };
    }
    let cause = format!("status {}", status.as_u16());
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Attempt::Retry { cause, after: retry_after(headers) },
        _ => Attempt::Refused(cause),
    }
}

/// Returns the pause that a response asks for, in either of its forms: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(wait) = parse_retry_after(headers) {
        return Some(wait);
    }
    let date = jiff::fmt::rfc2822::parse(headers.get(RETRY_AFTER)?.to_str().ok()?).ok()?;
    Duration::try_from(jiff::Timestamp::now().duration_until(date.timestamp())).ok()
}

fn roots(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "is not in PEM")?;
        roots.add(certificate).map_err(|_| "has a certificate that cannot be parsed")?;
    }
    if roots.is_empty() { Err("has no certificate") } else { Ok(roots) }
}

fn unreadable(file: &Path, cause: &dyn fmt::Display) -> CollectorError {
    CollectorError { file: file.display().to_string(), cause: cause.to_string() }
}

/// hyper's own message leaves out the cause.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// A response has a count and a sentence.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// A sentence of the collector's, in the log.
const MESSAGE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::otlp::ExportTracePartialSuccess;

    fn attempt(status: u16, after: Option<&'static str>, body: &[u8]) -> Attempt {
        let after = after.map(|after| (RETRY_AFTER, HeaderValue::from_static(after)));
        let headers = HeaderMap::from_iter(after);
        attempt_of(StatusCode::from_u16(status).unwrap(), &headers, body)
    }

    #[test]
    fn a_success_may_be_a_partial_one() {
        let accepted =
            |rejected, message: &str| Attempt::Accepted { rejected, message: message.to_owned() };
        assert_eq!(attempt(200, None, b""), accepted(0, ""));
        assert_eq!(attempt(202, None, b"\xff not protobuf"), accepted(0, ""));
        for (spans, rejected) in [(3, 3), (0, 0), (-1, 0)] {
            let error_message = "x".repeat(1_000);
            let partial = ExportTracePartialSuccess { rejected_spans: spans, error_message };
            let response = ExportTraceServiceResponse { partial_success: Some(partial) };
            let attempt = attempt(200, None, &response.encode_to_vec());
            assert_eq!(attempt, accepted(rejected, &"x".repeat(MESSAGE_CHARS_MAX)));
        }
    }

    #[test]
    fn only_what_the_specification_says_is_sent_again() {
        let retry = |after: Option<u64>, status: u16| Attempt::Retry {
            cause: format!("status {status}"),
            after: after.map(Duration::from_secs),
        };
        for status in [429, 502, 503, 504] {
            assert_eq!(attempt(status, None, b""), retry(None, status));
            assert_eq!(attempt(status, Some("7"), b""), retry(Some(7), status));
            assert_eq!(attempt(status, Some("soon"), b""), retry(None, status));
        }
        for status in [301, 400, 401, 404, 408, 413, 500, 501] {
            let refused = Attempt::Refused(format!("status {status}"));
            assert_eq!(attempt(status, Some("7"), b""), refused);
        }
        // A date in the past asks for no pause, or is none.
        let past = attempt(503, Some("Wed, 21 Oct 2015 07:28:00 GMT"), b"");
        assert_eq!(past, retry(None, 503));
        let far = attempt(503, Some("Wed, 21 Oct 2099 07:28:00 GMT"), b"");
        let Attempt::Retry { after: Some(after), .. } = far else { panic!("{far:?}") };
        assert!(after > Duration::from_secs(365 * 24 * 3600));
    }

    #[test]
    fn a_ca_must_have_a_certificate() {
        assert_eq!(roots(b"").unwrap_err(), "has no certificate");
        let broken = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert!(roots(broken).is_err());
    }
}
