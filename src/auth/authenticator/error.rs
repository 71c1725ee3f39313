//! Errors of authentication.

/// Why Weir has no identity for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The credential is invalid: status 401.
    #[error("the credential is invalid")]
    Unauthorized,
    /// Weir cannot authenticate the client; the request is forwarded, and the upstream decides.
    #[error("the client cannot be authenticated by Weir")]
    Unavailable,
    /// Too many unknown tokens of the client's address are being reviewed: status 429.
    #[error("too many tokens of this client address are being reviewed")]
    TooManyRequests,
}

/// Why authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthSetupError {
    /// A file of the configuration cannot be used.
    #[error("{path}: {cause}")]
    File {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The reason.
        cause: String,
    },
}
