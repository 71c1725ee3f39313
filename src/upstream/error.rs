//! What can go wrong on the way to the upstream.

/// An upstream failure. Whose fault, and whether anything was sent, is in the variant: the server answers 503 or 502 by it
/// (design, section 7). Messages name what to check and never carry a credential or a body.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The kubeconfig, a file in it, or an exec plugin is unusable.
    #[error("credentials for the upstream are unusable: {0}")]
    Credentials(String),
    /// No connection: refused, time-out, name not resolved, TLS.
    #[error("cannot connect to the upstream at {address}: {cause}")]
    Connect {
        /// The address tried.
        address: String,
        /// What the system or TLS said.
        cause: String,
    },
    /// The connection broke after the request was (partly) sent.
    #[error("the upstream closed the connection before it answered: {0}")]
    Lost(String),
    /// It answered, but not within the time allowed.
    #[error("the upstream did not answer within {0:?}")]
    Timeout(std::time::Duration),
    /// It answered with a failure status to a request of Weir's own. `reason` and `message` are from its Status, shortened.
    #[error("the upstream answered {code}: {message}")]
    Status {
        /// The HTTP status.
        code: http::StatusCode,
        /// The Status' reason; empty if there was none.
        reason: String,
        /// The Status' message, shortened.
        message: String,
        /// The `Retry-After` it asked for.
        retry_after: Option<std::time::Duration>,
    },
    /// It answered with more than there is room for.
    #[error("the upstream's answer has more than {0} bytes")]
    TooLong(usize),
    /// The request can't be sent on, for a reason that is in it.
    #[error("the request cannot be sent to the upstream: {0}")]
    Request(String),
    /// It answered with something that can't be read.
    #[error("the upstream's answer cannot be read: {0}")]
    Malformed(String),
}

impl UpstreamError {
    /// A fixed word for metrics and logs.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Connect { .. } => "connect",
            Self::Lost(_) => "lost",
            Self::Timeout(_) => "timeout",
            Self::Status { .. } => "status",
            Self::TooLong(_) => "too-long",
            Self::Request(_) => "request",
            Self::Malformed(_) => "malformed",
        }
    }

    /// Whether it is the request's own fault.
    pub fn is_request_error(&self) -> bool {
        matches!(self, Self::Request(_))
    }

    /// Whether it is certain that the upstream has processed nothing of the request: the answer is then 503, else 502.
    pub fn is_not_sent(&self) -> bool {
        matches!(self, Self::Credentials(_) | Self::Connect { .. })
    }
}

/// An error and its causes in one line, for messages; each level of `std::error::Error` prints only itself.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many libraries repeat the cause in their own text; once is enough.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
