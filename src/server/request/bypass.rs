//! Why a request is not answered from a cache.

use http::StatusCode;

use crate::api::status::Status;
use crate::server::delegate::Reason;
use crate::server::request::refusal_reason::RefusalReason;

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
    pub(crate) reason: RefusalReason,
    /// The reason why flow control or Weir's own overload sheds it.
    shed: Option<&'static str>,
}

impl Rejection {
    /// Creates a rejection that is counted under `reason`.
    pub(crate) fn new(status: Status, reason: RefusalReason) -> Self {
        Self { status: Box::new(status), reason, shed: None }
    }

    /// Creates the rejection of a request that flow control sheds.
    pub(crate) fn with_shed(status: Status, shed: &'static str) -> Self {
        Self { status: Box::new(status), reason: RefusalReason::Shed, shed: Some(shed) }
    }

    /// Returns the value of `X-Weir-Shed`: each 429 has one.
    pub(crate) fn shed(&self) -> Option<&'static str> {
        let is_limit = self.status.code == StatusCode::TOO_MANY_REQUESTS;
        self.shed.or(is_limit.then_some(self.reason.as_str()))
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
