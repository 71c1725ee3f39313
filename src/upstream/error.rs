//! The errors of requests to the upstream.

/// An error of a request to the upstream. The variant shows the cause, and whether anything was
/// sent; the server responds with 503 or 502 accordingly. Messages name what to check, and never
/// contain a credential or a body.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The kubeconfig, a file in it, or an exec plugin is unusable.
    #[error("credentials for the upstream are unusable: {0}")]
    Credentials(String),
    /// There is no connection: refused, timed out, name not resolved, TLS failed.
    #[error("cannot connect to the upstream at {address}: {cause}")]
    Connect {
        /// The upstream's address.
        address: String,
        /// The message of the system or of TLS.
        cause: String,
    },
    /// All connections that are allowed are in use.
    #[error("every allowed connection to the upstream at {address} is in use for {timeout:?}")]
    Exhausted {
        /// The upstream's address.
        address: String,
        /// The longest time that the request waited.
        timeout: std::time::Duration,
    },
    /// The connection broke after the request was sent, at least in part.
    #[error("the connection to the upstream broke before the response was complete: {0}")]
    Lost(String),
    /// There was no response within the time-out.
    #[error("the upstream did not respond within {0:?}")]
    Timeout(std::time::Duration),
    /// The response to a request of Weir's own has a failure status.
    #[error("the upstream responded with {code}: {message}")]
    Status {
        /// The HTTP status.
        code: http::StatusCode,
        /// The reason of the Status, shortened; empty if there is none.
        reason: String,
        /// The message of the Status, shortened.
        message: String,
        /// The `Retry-After` of the response.
        retry_after: Option<std::time::Duration>,
    },
    /// The response is larger than the limit, in bytes.
    #[error("the upstream's response has more than {0} bytes")]
    TooLong(usize),
    /// The request itself cannot be forwarded.
    #[error("the request cannot be sent to the upstream: {0}")]
    Request(String),
    /// The response cannot be parsed.
    #[error("the upstream's response cannot be parsed: {0}")]
    Malformed(String),
}

impl UpstreamError {
    /// Returns a fixed word for metrics and logs.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Connect { .. } => "connect",
            Self::Exhausted { .. } => "exhausted",
            Self::Lost(_) => "lost",
            Self::Timeout(_) => "timeout",
            Self::Status { .. } => "status",
            Self::TooLong(_) => "too-long",
            Self::Request(_) => "request",
            Self::Malformed(_) => "malformed",
        }
    }

    /// Returns whether the request itself is the cause.
    pub fn is_request_error(&self) -> bool {
        matches!(self, Self::Request(_))
    }

    /// Returns whether the cause may be that no API server is usable.
    pub(crate) fn may_be_outage(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Lost(_) | Self::Timeout(_))
    }

    /// Returns whether the upstream certainly processed nothing of the request. The server then
    /// responds with 503, otherwise with 502.
    pub fn is_not_sent(&self) -> bool {
        matches!(self, Self::Credentials(_) | Self::Connect { .. } | Self::Exhausted { .. })
    }
}

/// Returns an error and its causes in one line, for messages: `Display` of an error prints only
/// that error.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many libraries include the cause in their own message.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
