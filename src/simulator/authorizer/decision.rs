//! The decision about a request.

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// Whether it is allowed.
    pub(crate) allowed: bool,
    /// Why, or what went wrong; mostly empty if it is not allowed.
    pub(crate) reason: String,
}
