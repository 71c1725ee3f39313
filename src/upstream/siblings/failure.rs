//! Why a sibling sent no list, by the error of the request.

use http::StatusCode;

use crate::upstream::error::UpstreamError;

/// Why a sibling sent no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiblingFailure {
    /// It has none to send.
    Refused,
    /// It does not know Weir's identity, or does not let it list the resource.
    Denied,
    /// Its response is no list of a cache of the same kind.
    Unusable,
    /// The own credentials, or the CA of siblings, cannot be read.
    Credentials,
    /// It did not answer.
    Unreachable,
}

impl SiblingFailure {
    /// Returns the cause of an error.
    pub(crate) fn of(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::Status {
                code: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
                ..
            } => Self::Denied,
            UpstreamError::Status { .. } => Self::Refused,
            UpstreamError::Malformed(_) | UpstreamError::TooLong(_) => Self::Unusable,
            UpstreamError::Credentials(_) => Self::Credentials,
            _ => Self::Unreachable,
        }
    }

    /// Whether it would fail other caches as well, which need not ask it for a while.
    pub(super) fn concerns_all(self) -> bool {
        matches!(self, Self::Credentials | Self::Unreachable)
    }
}

/// Returns the message of an error. The messages of [`UpstreamError`] itself name the API server.
pub(crate) fn message_of(error: &UpstreamError) -> String {
    match error {
        UpstreamError::Status { code, message, .. } => format!("{code}: {message}"),
        UpstreamError::Connect { address, cause } => format!("{address}: {cause}"),
        UpstreamError::Lost(cause) => format!("the connection broke: {cause}"),
        UpstreamError::Timeout(limit) => format!("no response within {limit:?}"),
        UpstreamError::TooLong(limit) => format!("more than {limit} bytes"),
        UpstreamError::Credentials(cause)
        | UpstreamError::Request(cause)
        | UpstreamError::Malformed(cause) => cause.clone(),
        UpstreamError::Exhausted { .. } => "every connection to it is in use".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(code: u16) -> UpstreamError {
        let code = StatusCode::from_u16(code).unwrap();
        let message = "no cache".to_owned();
        UpstreamError::Status { code, reason: String::new(), message, retry_after: None }
    }

    #[test]
    fn each_error_has_a_cause_and_a_message_that_names_no_upstream() {
        let (text, address) = ("text".to_owned(), "10.0.0.1:443".to_owned());
        for (error, failure) in [
            (status(503), SiblingFailure::Refused),
            (status(429), SiblingFailure::Refused),
            (status(401), SiblingFailure::Denied),
            (status(403), SiblingFailure::Denied),
            (UpstreamError::Malformed(text.clone()), SiblingFailure::Unusable),
            (UpstreamError::TooLong(7), SiblingFailure::Unusable),
            (UpstreamError::Credentials(text.clone()), SiblingFailure::Credentials),
            (UpstreamError::Timeout(Duration::from_secs(1)), SiblingFailure::Unreachable),
            (UpstreamError::Lost(text.clone()), SiblingFailure::Unreachable),
            (UpstreamError::Connect { address, cause: text }, SiblingFailure::Unreachable),
        ] {
            assert_eq!(SiblingFailure::of(&error), failure, "{error}");
            assert!(!message_of(&error).contains("upstream"), "{error}");
        }
    }
}
