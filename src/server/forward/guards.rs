//! The guards that a forwarded response holds until its body ends.

use std::sync::Arc;

use crate::server::flow_control::queue::SeatHold;
use crate::server::forward::list_times::ListTimer;
use crate::server::forward::quota::QuotaPermit;
use crate::server::forward::share::SharedPermit;
use crate::server::open_watches::CountedWatch;

/// The guards that a forwarded response holds until its body ends.
#[derive(Debug, Default)]
pub(crate) struct BodyGuards {
    /// A permit of the forward budget.
    pub(crate) budget: Option<SharedPermit>,
    /// The client's part of the upstream quota.
    pub(crate) _quota: Option<Arc<QuotaPermit>>,
    /// Its seats of the API server.
    pub(crate) seat: Option<SeatHold>,
    /// Counts a watch for its client.
    pub(crate) _watch: Option<Arc<CountedWatch>>,
    /// Measures how long the response takes.
    pub(crate) timer: Option<ListTimer>,
}
