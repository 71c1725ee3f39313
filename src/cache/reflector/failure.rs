//! Failures of upstream requests, by how a reflector reacts to them.

use std::time::Duration;

use http::StatusCode;

use crate::cache::refusal::Refusal;
use crate::upstream::error::UpstreamError;

/// A failure of a list or watch, by the reaction that it needs.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 410: the requested resourceVersion or continue token is too old (`docs/semantics.md` §3.5,
    /// §5.8). The reflector lists again.
    Expired,
    /// 400 or 422: the upstream does not support the request. An upstream without
    /// watch-lists rejects one so.
    Invalid(String),
    /// The response cannot be parsed. A single one may be a stream that was cut within an object.
    /// Repeated ones mean that the resource cannot be cached.
    Malformed(String),
    /// 429, 5xx, a broken connection or a time-out. The reflector retries after a back-off of at
    /// least the requested `Retry-After`.
    Retry(String, Option<Duration>),
    /// 403, 404, 405 or 406. An API server that starts, or that has not seen a definition yet,
    /// answers so for a moment. The reflector ends only if the refusal lasts ([`RefusalStreak`]).
    ///
    /// [`RefusalStreak`]: crate::cache::reflector::refusals::RefusalStreak
    Refused(Refusal, String),
    /// A watch-list went silent before the end of its initial events, or ended before it.
    Silent,
    /// The resource cannot be cached for now. The reflector ends.
    Stop(Refusal),
    /// The upstream has not reached the requested resourceVersion yet (`docs/semantics.md` §2.2).
    TooLarge,
}

impl Failure {
    /// Returns the text for the log.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Expired => "the resourceVersion is too old",
            Self::Invalid(text)
            | Self::Malformed(text)
            | Self::Refused(_, text)
            | Self::Retry(text, _) => text,
            Self::Silent => "the watch-list did not come to the end of its initial events",
            Self::Stop(refusal) => refusal.as_str(),
            Self::TooLarge => "the upstream has not reached the resourceVersion held here",
        }
    }

    /// Returns the value of the `result` label of the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Invalid(_) => "invalid",
            Self::Malformed(_) => "malformed",
            Self::Retry(..) => "error",
            Self::Silent => "silent",
            Self::Stop(_) | Self::Refused(..) => "refused",
            Self::TooLarge => "too-large",
        }
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        let text = error.to_string();
        match error {
            UpstreamError::Malformed(_) => Self::Malformed(text),
            UpstreamError::TooLong(_) => Self::Stop(Refusal::OverBudget),
            UpstreamError::Status { code, message, retry_after, .. } => match code {
                StatusCode::GONE => Self::Expired,
                StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid(text),
                StatusCode::FORBIDDEN => Self::Refused(Refusal::Forbidden, text),
                // The upstream does not have the requested encoding for this resource.
                StatusCode::NOT_ACCEPTABLE => Self::Refused(Refusal::Unreadable, text),
                StatusCode::NOT_FOUND => Self::Refused(Refusal::Unknown, text),
                StatusCode::METHOD_NOT_ALLOWED => Self::Refused(Refusal::NotWatchable, text),
                StatusCode::GATEWAY_TIMEOUT if message.contains(TOO_LARGE) => Self::TooLarge,
                _ => Self::Retry(text, retry_after),
            },
            _ => Self::Retry(text, None),
        }
    }
}

/// A part of the message of that Status. client-go falls back on the text too (`docs/semantics.md`
/// §2.2).
const TOO_LARGE: &str = "Too large resource version";

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Failure {
        UpstreamError::Status {
            code: StatusCode::from_u16(code).unwrap(),
            reason: String::new(),
            message: message.to_owned(),
            retry_after: Some(Duration::from_secs(1)),
        }
        .into()
    }

    #[test]
    fn each_status_maps_to_its_failure() {
        assert!(matches!(status(410, ""), Failure::Expired));
        assert!(matches!(status(422, ""), Failure::Invalid(_)));
        assert!(matches!(status(403, ""), Failure::Refused(Refusal::Forbidden, _)));
        assert!(matches!(status(404, ""), Failure::Refused(Refusal::Unknown, _)));
        assert!(matches!(status(406, ""), Failure::Refused(Refusal::Unreadable, _)));
        assert!(matches!(status(401, ""), Failure::Retry(_, Some(_))));
        assert!(matches!(status(429, ""), Failure::Retry(_, Some(_))));
        assert!(matches!(
            status(504, "Timeout: Too large resource version: 9, current: 3"),
            Failure::TooLarge
        ));
        assert!(matches!(status(504, "gateway"), Failure::Retry(..)));
    }
}
