//! The guards that a forwarded response holds until its body ends.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;

use crate::server::flow_control::queue::SeatHold;
use crate::server::forward::list_times::ListTimer;
use crate::server::forward::quota::QuotaPermit;
use crate::server::forward::share::SharedPermit;
use crate::server::open_watches::CountedWatch;
use crate::server::shadow::copy::AnswerCopy;

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
    /// Copies it for a comparison with the cache.
    pub(crate) copy: Option<Box<AnswerCopy>>,
}

impl BodyGuards {
    /// Notes what a poll of the body returned.
    pub(crate) fn observe<E>(
        &mut self,
        polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
        is_end_stream: bool,
    ) {
        if let Some(timer) = &mut self.timer {
            timer.observe(polled, is_end_stream);
        }
        if let Some(copy) = &mut self.copy {
            copy.observe(polled, is_end_stream);
        }
    }
}
