//! A request that Weir does not answer itself.

use hyper::body::Incoming;

use crate::server::delegate::Reason;
use crate::server::request::auth::Caller;

/// A request that Weir does not answer itself.
pub(super) struct Unanswered {
    pub(super) caller: Caller,
    pub(super) body: Incoming,
    /// Why it is forwarded.
    pub(super) reason: Reason,
}
