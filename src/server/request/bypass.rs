//! Why a request is not answered from a cache.

use crate::api::status::Status;
use crate::server::delegate::Reason;

/// Why a request is not answered from a cache.
#[derive(Debug)]
pub(crate) enum Bypass {
    /// The upstream answers it.
    Forward(Reason),
    /// Weir refuses it.
    Refuse(Rejection),
}

/// A refusal of Weir's own.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) status: Box<Status>,
    /// The label value in metrics.
    pub(crate) reason: &'static str,
}

impl Rejection {
    /// Creates a rejection that is counted under `reason`.
    pub(crate) fn new(status: Status, reason: &'static str) -> Self {
        Self { status: Box::new(status), reason }
    }
}

impl From<Reason> for Bypass {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}

impl From<Rejection> for Bypass {
    fn from(rejection: Rejection) -> Self {
        Self::Refuse(rejection)
    }
}
