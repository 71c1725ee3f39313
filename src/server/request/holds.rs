//! The limited resources that a request takes since it was admitted ([`server::admission`]), in one
//! guard: it moves into the body of the response.
//!
//! [`server::admission`]: crate::server::admission

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;

use crate::server::flow_control::queue::SeatHold;
use crate::server::flow_control::rules::Admission;
use crate::server::forward::list_times::ListTimer;
use crate::server::forward::quota::QuotaPermit;
use crate::server::forward::share::SharedPermit;
use crate::server::open_watches::CountedWatch;
use crate::server::shadow::copy::AnswerCopy;

/// The limited resources that a request holds until its response has ended.
#[derive(Default)]
pub(crate) struct Holds {
    /// Whether the present stage of overload has admitted it, as a request for a cache.
    pub(crate) passed_overload: bool,
    /// The part that operators' rules count; `None` before they were applied, and without rules.
    pub(crate) rules: Option<Box<Admission>>,
    /// Counts a watch among the open ones of its client.
    pub(crate) watch: Option<Arc<CountedWatch>>,
    /// The client's part of the upstream.
    pub(crate) quota: Option<Arc<QuotaPermit>>,
    pub(crate) seats: Option<Box<SeatHold>>,
    pub(crate) budget: Option<SharedPermit>,
    /// Measures how long the response takes.
    pub(crate) timer: Option<Box<ListTimer>>,
    pub(crate) copy: Option<Box<AnswerCopy>>,
}

impl Holds {
    /// Takes the part that the body of a forwarded response holds. The part that rules count stays
    /// for the meter of its bytes.
    pub(crate) fn take_for_body(&mut self) -> Box<Self> {
        let rules = self.rules.take();
        let holds = std::mem::take(self);
        self.rules = rules;
        Box::new(holds)
    }

    /// Takes the part that an upgraded connection holds until it is closed. It needs neither seats
    /// nor a budget any more.
    pub(crate) fn take_for_upgrade(&mut self) -> Self {
        let mut holds = std::mem::take(self);
        (holds.seats, holds.budget) = (None, None);
        holds
    }

    /// Releases everything. The account of rules stays: the refusal itself is charged.
    pub(crate) fn release(&mut self) {
        let mut rules = self.rules.take();
        rules.iter_mut().for_each(|rules| rules.end_watches());
        *self = Self::default();
        self.rules = rules;
    }

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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use prometheus::Registry;

    use super::*;
    use crate::server::connection::client_id::ClientId;
    use crate::server::forward::quota::{Capacity, ClientIds, UpstreamQuota};
    use crate::server::metrics::ServerMetrics;
    use crate::server::open_watches::OpenWatches;
    use crate::upstream::TrafficClass;

    /// A refusal waits for the audit log, or to hold its client back. Others use what it held.
    #[test]
    fn a_refused_request_holds_only_the_account_of_its_bytes() {
        let watches = OpenWatches::new(1, ServerMetrics::register(&Registry::new()).unwrap());
        let quota = UpstreamQuota::new();
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let open = || watches.open(ClientId::from_address(address)).ok();
        let send = || {
            let capacity = Capacity { streams_max: 2, resets_max: 2 };
            let client = ClientIds::from_address(address, None);
            quota.try_acquire(client, TrafficClass::Stream, false, capacity).ok().map(Arc::new)
        };
        let mut holds = Holds {
            passed_overload: true,
            rules: Some(Box::default()),
            watch: open(),
            quota: send(),
            ..Holds::default()
        };
        assert!(holds.watch.is_some() && holds.quota.is_some());
        assert!(open().is_none() && send().is_none());
        holds.release();
        assert!(holds.rules.is_some());
        assert!(open().is_some() && send().is_some());
    }

    /// The meter charges the bytes of a response to the account of rules, and an upgraded
    /// connection counts until it is closed.
    #[test]
    fn a_body_leaves_the_account_of_rules_and_an_upgrade_takes_it() {
        let admitted = || Holds { rules: Some(Box::default()), ..Holds::default() };
        let mut holds = admitted();
        assert!(holds.take_for_body().rules.is_none() && holds.rules.is_some());
        assert!(holds.take_for_upgrade().rules.is_some() && holds.rules.is_none());
    }
}
