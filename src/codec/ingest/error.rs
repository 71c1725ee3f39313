//! The error of reading an object from the API server.

/// Why bytes from the API server are not a usable object. Never contains any of the bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    /// The bytes have another encoding or shape than expected.
    #[error("the upstream sent an object that cannot be read")]
    Malformed,
    /// `metadata.resourceVersion` is missing or not a `u64`: such a resource is never cached.
    #[error("the upstream sent an object whose resourceVersion is not a number")]
    ResourceVersion,
    /// `metadata.name` is missing, contains a `/`, or cannot be read.
    #[error("the upstream sent an object without a usable name")]
    Name,
}
