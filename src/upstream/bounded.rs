//! Bounds on calls of the upstream: time-outs, and the size of a body.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::codec::gzip::MembersReader;
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::pool;

/// The longest pause within a body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the result of `call`, or [`UpstreamError::Timeout`] after `timeout`.
///
/// The time counts from the call of this function, not from the first poll. It is not an `async
/// fn`, whose future would hold `call` twice.
pub(crate) fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, UpstreamError>>,
) -> impl Future<Output = Result<T, UpstreamError>> {
    let call = tokio::time::timeout(timeout, call);
    call.map(move |result| result.unwrap_or(Err(UpstreamError::Timeout(timeout))))
}

/// Reads a whole body. Fails with [`UpstreamError::TooLong`] if it has more than `max_bytes`, and
/// with [`UpstreamError::Timeout`] if it pauses for more than 30 s.
pub(crate) async fn read_body(body: pool::Body, max_bytes: usize) -> Result<Bytes, UpstreamError> {
    read(body, None, max_bytes).await
}

/// Reads the whole body of a response like [`read_body`], and decompresses it. It may have
/// `max_bytes` when it is decompressed.
pub(crate) async fn read_decompressed(
    response: Response<pool::Body>,
    max_bytes: usize,
) -> Result<Bytes, UpstreamError> {
    let members = is_gzip(response.headers()).then(MembersReader::default);
    read(response.into_body(), members, max_bytes).await
}

/// Returns whether a response is compressed (RFC 9110, section 8.4.1.3).
pub(crate) fn is_gzip(headers: &HeaderMap) -> bool {
    let coding = headers.get(CONTENT_ENCODING).map(|coding| coding.as_bytes());
    coding.is_some_and(|coding| {
        coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
    })
}

async fn read(
    mut body: pool::Body,
    mut members: Option<MembersReader>,
    max_bytes: usize,
) -> Result<Bytes, UpstreamError> {
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if hint > max_bytes {
        return Err(UpstreamError::TooLong(max_bytes));
    }
    let mut bytes = BytesMut::with_capacity(hint);
    loop {
        let frame = tokio::time::timeout(READ_TIMEOUT, body.frame())
            .await
            .map_err(|_| UpstreamError::Timeout(READ_TIMEOUT))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| UpstreamError::Lost(chain(&error)))?;
        let Ok(mut chunk) = frame.into_data() else { continue };
        while !chunk.is_empty() {
            let plain = MembersReader::take_piece(&mut members, &mut chunk)
                .map_err(|error| UpstreamError::Malformed(error.to_string()))?;
            if bytes.len() + plain.len() > max_bytes {
                return Err(UpstreamError::TooLong(max_bytes));
            }
            bytes.extend_from_slice(&plain);
        }
    }
    if members.is_some_and(|members| !members.is_between_members()) {
        return Err(UpstreamError::Lost("the compressed body ended before its end".to_owned()));
    }
    Ok(bytes.freeze())
}
