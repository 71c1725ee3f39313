//! The request for seats that a forwarded request makes to the queue: its level, its flow, its
//! seats, and how long it may wait.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderValue;

use crate::api::request_info::{RequestInfo, Verb};
use crate::config::units::parse_duration;
use crate::flow::rules::{self, FlowBy, Rule};
use crate::flow::work::{CollectionSize, Work};
use crate::server::flow_control::limits::flight::{Flight, FlightTarget};
use crate::server::flow_control::plan::{Class, Placement};
use crate::server::flow_control::queue::{SeatRequest, Seats};
use crate::server::flow_control::requester::{self, Requester};
use crate::server::flow_control::rules::Subject;
use crate::server::flow_control::{FlowControl, selectors};
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::Rejection;
use crate::server::request::resolved::Resolved;
use crate::upstream::endpoints::Endpoints;
use crate::upstream::send_options::AttemptObserver;

impl FlowControl {
    /// Asks whether a request may be forwarded. `endpoints` are the API servers. `size` is that of
    /// the request's collection, if known.
    pub(crate) fn ask_for_seats(
        &self,
        context: &RequestContext<'_>,
        size: Option<CollectionSize>,
        endpoints: &Endpoints,
    ) -> Result<Seats, Rejection> {
        let queue = &self.queue;
        if !context.takes_seats() {
            return Ok(Seats::Now(None));
        }
        let (class, flow) = self.flow_of(context);
        let info = &context.info;
        // In a sidecar, seats only limit the number of requests, as in an API server without
        // priority and fairness.
        let seats_max = if self.by_user { class.seats_max } else { 1 };
        let resource =
            info.resource.as_ref().map(|resource| (&resource.gvr, &resource.subresource));
        let list = (info.verb == Verb::List).then(|| list_kind(info));
        let path = requester::path(info);
        let kind = self.hasher.hash_one((info.verb_label(), resource, path, list));
        let response_bytes = match size {
            None if list.is_some() => {
                let expected = queue.expected_bytes(kind);
                expected.unwrap_or_else(|| Work::bytes_at_most(info))
            }
            _ => 0,
        };
        let seats = Work::from_request(info, size).seats(response_bytes, seats_max);
        let target = FlightTarget {
            level: Arc::clone(&class.level),
            seats,
            is_of_core: is_of_core(context),
        };
        if let Some(allotment) = self.limits.changed(endpoints.chosen_from()) {
            queue.set_allotment(&allotment);
        }
        let observer = Flight::new(&self.limits, queue, target);
        Ok(queue.ask(SeatRequest {
            level: &class.level,
            // The short requests of a flow do not wait for its wide ones.
            flow: flow ^ u64::from(seats > 1),
            seats,
            kind,
            wait_max: wait_max(info, &class.level),
            is_short_read: seats == 1 && matches!(info.verb, Verb::Get | Verb::List),
            observer: observer.map(|flight| flight as Arc<dyn AttemptObserver>),
        })?)
    }

    /// Returns the rank of a request's priority level: a lower one is better.
    pub(crate) fn rank(&self, request: &Resolved<'_>) -> u8 {
        self.placement(request).class.rank
    }

    /// Returns the uids of the FlowSchema and the priority level of a request, as far as these are
    /// objects of the cluster.
    pub(crate) fn uids(&self, request: &Resolved<'_>) -> [Option<HeaderValue>; 2] {
        self.placement(request).class.uids.clone()
    }

    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules.load(Ordering::Acquire)
    }

    /// Applies operators' rules to a request. `bytes` is the size of its collection, if known.
    /// `is_forwarded` is false for a request that is answered here. Charges no limit twice.
    pub(crate) fn apply_rules(
        &self,
        context: &mut RequestContext<'_>,
        bytes: Option<u64>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        let is_known = context.holds.rules.is_some();
        let mut admission = context.holds.rules.take().unwrap_or_default();
        let requester = context.sender();
        let (info, peer) = (&context.info, context.client.peer.address);
        let agent = requester::agent(context.agent.as_ref());
        let user = requester.user();
        let subject = Subject {
            user: user.map(|user| (&*user.name, &*user.groups)),
            agent,
            info,
            bytes,
            is_forwarded,
            is_known,
        };
        let unknown = user.is_none().then_some(peer);
        let flow_of = |rule: &Rule| {
            let sender = (requester, unknown);
            let namespace = info.resource.as_ref().map_or("", |resource| &resource.namespace);
            let agent = rules::product(agent);
            match rule.flow_by {
                FlowBy::User => self.hasher.hash_one((&rule.name, sender)),
                FlowBy::Namespace => self.hasher.hash_one((&rule.name, namespace)),
                FlowBy::UserAgent => self.hasher.hash_one((&rule.name, agent)),
                FlowBy::UserAndAgent => self.hasher.hash_one((&rule.name, sender, agent)),
                FlowBy::Nothing => self.hasher.hash_one(&rule.name),
            }
        };
        let applied = self.rules.load().apply(&subject, flow_of, &mut admission);
        context.holds.rules = Some(admission);
        applied.map_err(|refusal| Rejection::with_shed(refusal.status(), refusal.as_str()))
    }

    /// Returns the class of a request and a hash that stands for its flow. A flow of a sidecar is
    /// an agent on a connection; that of an unknown user is a credential at an address.
    fn flow_of<'a>(&self, request: &'a Resolved<'_>) -> (&'a Arc<Class>, u64) {
        let placement = self.placement(request);
        placement.count_effect();
        let Placement { class, flow, .. } = placement;
        let flow = match (&class.schema, request.sender()) {
            (Some(schema), Requester::User(_)) => self.hasher.hash_one((schema, flow)),
            (_, Requester::Sidecar) => {
                let agent = requester::agent(request.agent.as_ref());
                self.hasher.hash_one((agent, request.client.number))
            }
            (_, sender) => self.hasher.hash_one((sender, request.client.peer.address)),
        };
        (class, flow)
    }
}

/// Returns what makes lists of a resource equally large.
fn list_kind(info: &RequestInfo) -> [&str; 4] {
    let namespace = info.resource.as_ref().map_or("", |resource| &resource.namespace);
    let [labels, fields] = selectors(info).map(Option::unwrap_or_default);
    [namespace, info.query.first("limit").unwrap_or_default(), labels, fields]
}

/// Whether kube-apiserver itself answers a request, without an aggregated API server.
fn is_of_core(context: &RequestContext<'_>) -> bool {
    let group = context.info.resource.as_ref().map(|resource| &*resource.gvr.group);
    group == Some("") || context.resource.as_ref().is_some_and(|served| !served.aggregated)
}

/// Returns how long a request may wait: a part of the time that its client gives it.
fn wait_max(info: &RequestInfo, level: &str) -> Duration {
    let given = info.query.first("timeout").and_then(|text| parse_duration(text).ok());
    let given = given.filter(|time| !time.is_zero()).unwrap_or(REQUEST_TIMEOUT);
    let most = if URGENT_LEVELS.contains(&level) { URGENT_WAIT_MAX } else { WAIT_MAX };
    (given / WAIT_PART).min(most)
}

/// kube-apiserver's `--request-timeout` by default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// An answer that comes after most of the time helps nobody.
const WAIT_PART: u32 = 4;
/// Shorter than the 15 s of priority and fairness: behind Weir is a second queue.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A leader renews its lease every 2 s, and gives up after 10 s.
const URGENT_WAIT_MAX: Duration = Duration::from_secs(2);
const URGENT_LEVELS: [&str; 2] = ["leader-election", "node-high"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_a_part_of_its_clients_time() {
        let wait = |query, level| {
            wait_max(&RequestInfo::parse(&http::Method::GET, "/api/v1/pods", query), level)
        };
        assert_eq!(wait("", "workload-low"), Duration::from_secs(5));
        assert_eq!(wait("timeout=10s", "workload-low"), Duration::from_millis(2500));
        assert_eq!(wait("timeout=wrong", "workload-low"), Duration::from_secs(5));
        assert_eq!(wait("timeout=0s", "workload-low"), Duration::from_secs(5));
        assert_eq!(wait("", "leader-election"), Duration::from_secs(2));
        assert_eq!(wait("timeout=5s", "node-high"), Duration::from_millis(1250));
    }
}
