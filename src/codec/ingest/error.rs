//! The error of reading an object of the upstream's.

/// Why bytes from the upstream could not be taken for an object. Never carries any of the bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    /// Not of the encoding, or not of the expected shape.
    #[error("the upstream sent an object that cannot be read")]
    Malformed,
    /// `metadata.resourceVersion` is missing or not a `u64`: such a resource is never cached.
    #[error("the upstream sent an object whose resourceVersion is not a number")]
    ResourceVersion,
    /// `metadata.name` is missing, or contains a `/`.
    #[error("the upstream sent an object without a usable name")]
    Name,
}
