//! The decision about a request.

/// The decision about a request, with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// The reason, or the errors of the evaluation. Usually empty for a denial.
    pub(crate) reason: String,
}
