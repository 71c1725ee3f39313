//! Failure statuses of the upstream, as errors.

use std::time::Duration;

use http::{Response, StatusCode};
use serde::Deserialize;

use crate::api::retry_after::parse_retry_after;
use crate::codec::protobuf;
use crate::upstream::bounded::read_decompressed;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool;

/// The largest Status that is read: enough for many causes.
const STATUS_MAX_BYTES: usize = 64 * 1024;
/// The longest message that is kept of a Status, which may quote whole objects.
const MESSAGE_MAX_BYTES: usize = 300;

/// Reads the error of a response with a failure status. A body that cannot be read is left out.
pub(super) async fn failure(response: Response<pool::Body>) -> UpstreamError {
    let (code, after) = (response.status(), parse_retry_after(response.headers()));
    let body = read_decompressed(response, STATUS_MAX_BYTES).await.unwrap_or_default();
    let mut error = status_error(&body, code);
    if let UpstreamError::Status { retry_after, .. } = &mut error {
        *retry_after = after.or(*retry_after);
    }
    error
}

/// Reads a Status object, in JSON or protobuf. `code` is used if the object has no code of its own,
/// or if `body` is not a Status.
pub(super) fn status_error(body: &[u8], code: StatusCode) -> UpstreamError {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Details {
        retry_after_seconds: u64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        message: Option<String>,
        reason: Option<String>,
        code: Option<u16>,
        details: Option<Details>,
    }
    let status = if let Some(status) = protobuf::decode_status(body) {
        let seconds = status.details.and_then(|details| details.retry_after_seconds).unwrap_or(0);
        Status {
            message: status.message,
            reason: status.reason,
            code: status.code.and_then(|code| u16::try_from(code).ok()),
            details: u64::try_from(seconds)
                .ok()
                .map(|retry_after_seconds| Details { retry_after_seconds }),
        }
    } else {
        serde_json::from_slice(body).unwrap_or_else(|_| Status {
            // Plain text, such as a load balancer or a time-out filter sends.
            message: std::str::from_utf8(body).ok().map(|text| text.trim().to_owned()),
            ..Status::default()
        })
    };
    let seconds = status.details.map_or(0, |details| details.retry_after_seconds);
    UpstreamError::Status {
        code: status.code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(code),
        reason: shorten(status.reason.unwrap_or_default()),
        message: shorten(status.message.unwrap_or_default()),
        retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > MESSAGE_MAX_BYTES {
        text.truncate(text.floor_char_boundary(MESSAGE_MAX_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_shortened() {
        let body = format!(
            r#"{{"kind":"Status","message":"{}","reason":"TooManyRequests","details":{{"retryAfterSeconds":7}},"code":429}}"#,
            "ä".repeat(400)
        );
        let UpstreamError::Status { code, reason, message, retry_after } =
            status_error(body.as_bytes(), StatusCode::OK)
        else {
            panic!("not a status")
        };
        assert_eq!((code.as_u16(), reason.as_str()), (429, "TooManyRequests"));
        assert!(message.len() <= MESSAGE_MAX_BYTES + 3);
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn plain_text_keeps_its_code_and_text() {
        let UpstreamError::Status { code, message, .. } =
            status_error(b"no backend\n", StatusCode::BAD_GATEWAY)
        else {
            panic!("not a status")
        };
        assert_eq!((code.as_u16(), message.as_str()), (502, "no backend"));
    }
}
