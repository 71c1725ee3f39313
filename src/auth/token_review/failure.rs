//! The back-off after a failed token review, and its log line.

use http::StatusCode;

use crate::auth::reviewer::backoff::{BACKOFF, Failure, Outage, is_outage, throttle_pause};
use crate::upstream::error::UpstreamError;

/// Returns how to back off after a failed review. All reviews pause only if the failure cannot be
/// caused by one token.
pub(super) fn backoff(error: &UpstreamError) -> Failure {
    let pause = match error {
        UpstreamError::Credentials(_)
        | UpstreamError::Connect { .. }
        | UpstreamError::Exhausted { .. } => Some(BACKOFF),
        UpstreamError::Status { code, retry_after, .. } => match *code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(BACKOFF),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some(throttle_pause(*retry_after))
            }
            _ => None,
        },
        _ => None,
    };
    let outage = is_outage(error)
        .then(|| Outage { is_certain: pause.is_some(), remember_for: pause.unwrap_or(BACKOFF) });
    Failure { outage, pause }
}

/// Logs the first failure. The upstream's message is not logged, because it could quote the token.
pub(super) fn log(error: &UpstreamError) {
    let code = match error {
        UpstreamError::Status { code, .. } => Some(code.as_u16()),
        _ => None,
    };
    tracing::warn!(
        cause = error.cause(),
        code,
        "a token review failed; requests with unknown tokens are forwarded"
    );
}
