//! What an upstream failure means to a reflector.

use std::time::Duration;

use http::StatusCode;

use crate::cache::refusal::Refusal;
use crate::upstream::error::UpstreamError;

/// A failure of a list or watch, by what is to be done about it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 410: the asked resourceVersion or continue token is too old (semantics.md §3.5, §5.8): list anew.
    Expired,
    /// 400 or 422: the upstream does not know what was asked for; of a watch-list this says that it has none.
    Invalid(String),
    /// It answered with what cannot be read. Once may be a stream cut in an odd place; again means that the resource cannot be cached.
    Malformed(String),
    /// 429, 5xx, a broken connection, a time-out: wait and try again, not before the time it asked for.
    Retry(String, Option<Duration>),
    /// A watch-list neither ended its initial events nor sent anything for long, or ended before them.
    Silent,
    /// The cache is not to be, for now.
    Stop(Refusal),
    /// The upstream says that it has not yet reached the asked resourceVersion (semantics.md §2.2).
    TooLarge,
}

impl Failure {
    /// What is logged.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Expired => "the resourceVersion is too old",
            Self::Invalid(text) | Self::Malformed(text) | Self::Retry(text, _) => text,
            Self::Silent => "the watch-list did not come to the end of its initial events",
            Self::Stop(refusal) => refusal.as_str(),
            Self::TooLarge => "the upstream has not reached the resourceVersion held here",
        }
    }

    /// The `result` label of the watches metric.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Invalid(_) => "invalid",
            Self::Malformed(_) => "malformed",
            Self::Retry(..) => "error",
            Self::Silent => "silent",
            Self::Stop(_) => "refused",
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
                StatusCode::FORBIDDEN => Self::Stop(Refusal::Forbidden),
                // It has no such encoding; where it has, a request negotiated it.
                StatusCode::NOT_ACCEPTABLE => Self::Stop(Refusal::Unreadable),
                StatusCode::NOT_FOUND => Self::Stop(Refusal::Unknown),
                StatusCode::METHOD_NOT_ALLOWED => Self::Stop(Refusal::NotWatchable),
                StatusCode::GATEWAY_TIMEOUT if message.contains(TOO_LARGE) => Self::TooLarge,
                _ => Self::Retry(text, retry_after),
            },
            _ => Self::Retry(text, None),
        }
    }
}

/// In the message of that Status, beside its cause; client-go falls back on the text too (semantics.md §2.2).
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
    fn each_status_has_its_consequence() {
        assert!(matches!(status(410, ""), Failure::Expired));
        assert!(matches!(status(422, ""), Failure::Invalid(_)));
        assert!(matches!(status(403, ""), Failure::Stop(Refusal::Forbidden)));
        assert!(matches!(status(404, ""), Failure::Stop(Refusal::Unknown)));
        assert!(matches!(status(406, ""), Failure::Stop(Refusal::Unreadable)));
        assert!(matches!(status(401, ""), Failure::Retry(_, Some(_))));
        assert!(matches!(status(429, ""), Failure::Retry(_, Some(_))));
        assert!(matches!(
            status(504, "Timeout: Too large resource version: 9, current: 3"),
            Failure::TooLarge
        ));
        assert!(matches!(status(504, "gateway"), Failure::Retry(..)));
    }
}
