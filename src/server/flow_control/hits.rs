//! GETs that a cache answers, added up on their connection before they are charged.
//!
//! To classify a GET and to add its cost takes some 2,000 instructions, 4 % of what the whole GET
//! takes. So the first one of a [`Pattern`] is classified, and those that are alike are only added
//! to its sums: requests of one sender, user agent, resource and namespace, which have one class,
//! flow and origin. [`FlowControl::tend`] charges the sums of a connection every ten seconds, and
//! whoever reads the costs has all of them charged first. Nothing is a sample, and a connection that
//! has ended is charged too: the list of those with sums keeps them. The metrics count each at once.
//!
//! Connections that came together are charged a tenth at a time, so that no tick is long.
//!
//! A pattern ends after a minute, so that an API server's new warning is seen, and at once with a
//! new plan.
//!
//! Lock order: the sums of a connection, then a batch. The list of connections alone.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderValue;
use http::header::WARNING;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::flow::cost::Cost;
use crate::flow::costs::Origin;
use crate::server::flow_control::memo::LastGets;
use crate::server::flow_control::meter::{Answered, short_body};
use crate::server::flow_control::plan::Class;
use crate::server::flow_control::requester::Requester;
use crate::server::flow_control::{Classified, FlowControl};
use crate::server::metrics::CacheStatus;
use crate::server::request::context::RequestContext;

/// The hits of a connection that are not charged yet, by what they have in common.
#[derive(Default)]
pub(super) struct UnchargedHits(Mutex<Patterns>);

#[derive(Default)]
struct Patterns {
    patterns: Vec<Pattern>,
    /// Whether the list of connections has this one.
    is_listed: bool,
}

/// Hits that are alike.
struct Pattern {
    alike: Alike,
    class: Arc<Class>,
    /// By whether the object was read just before.
    sums: [Sum; 2],
    gets: LastGets,
    /// How often its sums were charged.
    age: u8,
}

/// What hits must have in common to be charged together.
struct Alike {
    /// The number of the plan.
    plan: u64,
    sender: Requester,
    agent: Option<HeaderValue>,
    /// As discovery described it: the same one until it is described anew.
    resource: Arc<ApiResource>,
    namespace: Arc<str>,
}

/// The sum of hits, and to whom it is charged.
struct Sum {
    origin: Origin,
    /// Stands for the origin.
    hash: u64,
    hits: Hits,
}

/// Hits that are charged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hits {
    requests: u64,
    /// The bytes of their bodies.
    bytes: u64,
    /// For how long Weir worked for them.
    busy: Duration,
}

/// The connections with sums, and since when they have some. The oldest comes first.
#[derive(Default)]
pub(super) struct UnchargedList(Mutex<VecDeque<(Instant, Arc<UnchargedHits>)>>);

impl FlowControl {
    /// Adds a request to the sums of its connection, if it is a GET that a cache answered and that
    /// nothing else has to see. Returns whether it is.
    pub(super) fn add_hit(&self, context: &RequestContext<'_>, answered: &Answered<'_>) -> bool {
        if answered.status != CacheStatus::Hit || context.info.verb != Verb::Get {
            return false;
        }
        let subject = (&context.info.resource, &context.resource);
        let (Some(bytes), (Some(request), Some(resource))) =
            (short_body(answered.response), subject)
        else {
            return false;
        };
        let memo = &context.client.flows;
        if !request.subresource.is_empty() || memo.has_refusals(context.started) {
            return false;
        }
        let hit = Hits { requests: 1, bytes, busy: answered.busy };
        let plan = self.plan_number.load(Ordering::Relaxed);
        let mut patterns = memo.uncharged().0.lock();
        let known = patterns.patterns.iter_mut().find(|pattern| {
            pattern.alike.plan == plan && pattern.alike.is_of(context, resource, request)
        });
        if let Some(pattern) = known {
            pattern.add(self.hasher.hash_one(&request.name), context.started, hit);
            return true;
        }
        let is_full = patterns.patterns.len() >= PATTERNS_MAX;
        drop(patterns);
        !is_full && self.add_first_hit(context, (resource, request), answered, plan, hit)
    }

    /// Begins a pattern with its first hit, if nothing else has to see that.
    #[inline(never)]
    fn add_first_hit(
        &self,
        context: &RequestContext<'_>,
        (resource, request): (&Arc<ApiResource>, &ResourceRequest),
        answered: &Answered<'_>,
        plan: u64,
        hit: Hits,
    ) -> bool {
        if answered.response.headers().contains_key(WARNING) {
            return false;
        }
        let mut pattern = self.begin_pattern(context, resource, &request.namespace, plan);
        pattern.add(self.hasher.hash_one(&request.name), context.started, hit);
        let uncharged = context.client.flows.uncharged();
        let mut patterns = uncharged.0.lock();
        patterns.patterns.push(pattern);
        if !std::mem::replace(&mut patterns.is_listed, true) {
            drop(patterns);
            self.uncharged.0.lock().push_back((Instant::now(), Arc::clone(uncharged)));
        }
        true
    }

    /// Returns a pattern without hits.
    fn begin_pattern(
        &self,
        context: &RequestContext<'_>,
        resource: &Arc<ApiResource>,
        namespace: &Arc<str>,
        plan: u64,
    ) -> Pattern {
        let sender = Self::requester(context);
        let client = self.client(context, &sender);
        let sum = |is_read_again| {
            let classified = self.classify(context, &sender, client, is_read_again);
            let Classified { class, hash, habit, .. } = classified;
            let origin = self.origin(context, &sender, &class, habit);
            (class, Sum { origin, hash, hits: Hits::default() })
        };
        let ((class, once), (_, again)) = (sum(false), sum(true));
        let alike = Alike {
            plan,
            agent: context.agent.clone(),
            resource: Arc::clone(resource),
            namespace: Arc::clone(namespace),
            sender,
        };
        Pattern { alike, class, sums: [once, again], gets: LastGets::default(), age: 0 }
    }

    /// Charges the sums of all connections.
    pub(super) fn charge_all_hits(&self) {
        let all = std::mem::take(&mut *self.uncharged.0.lock());
        self.charge_connections(all);
    }

    /// Charges the sums of connections that have had some for [`CHARGED_AFTER`], at most a tenth of
    /// all. Call this every second.
    pub(super) fn charge_due_hits(&self) {
        let due: VecDeque<_> = {
            let mut listed = self.uncharged.0.lock();
            let is_due = |(since, _): &&(Instant, _)| since.elapsed() >= CHARGED_AFTER;
            let most = listed.len().div_ceil(CHARGED_AFTER.as_secs() as usize);
            let count = listed.iter().take(most).take_while(is_due).count();
            listed.drain(..count).collect()
        };
        self.charge_connections(due);
    }

    fn charge_connections(&self, due: VecDeque<(Instant, Arc<UnchargedHits>)>) {
        for (_, uncharged) in due {
            // One that has ended gets no more hits.
            let is_open = Arc::strong_count(&uncharged) > 1;
            if self.charge_connection(&uncharged) && is_open {
                self.uncharged.0.lock().push_back((Instant::now(), uncharged));
            }
        }
    }

    /// Charges the sums of a connection, and ends its patterns that are old or not used any more.
    /// Returns whether there are others.
    fn charge_connection(&self, uncharged: &UnchargedHits) -> bool {
        let mut patterns = uncharged.0.lock();
        patterns.patterns.retain_mut(|pattern| {
            pattern.age = pattern.age.saturating_add(1);
            self.charge_pattern(pattern) && pattern.age < AGE_MAX
        });
        patterns.is_listed = !patterns.patterns.is_empty();
        if !patterns.is_listed {
            patterns.patterns = Vec::new();
        }
        patterns.is_listed
    }

    /// Charges the sums of a pattern. Returns whether it had any.
    fn charge_pattern(&self, pattern: &mut Pattern) -> bool {
        let mut has_hits = false;
        for Sum { origin, hash, hits } in &mut pattern.sums {
            if hits.requests > 0 {
                let Hits { requests, bytes, busy } = std::mem::take(hits);
                let (requests, bytes) = (requests as f64, bytes as f64);
                let cpu_seconds = busy.as_secs_f64();
                let cost = Cost { requests, bytes, cpu_seconds, ..Cost::default() };
                self.add_cost(*hash, &cost, || origin.clone());
                has_hits = true;
            }
        }
        has_hits
    }
}

impl Pattern {
    /// Adds a GET of an object, which arrived at `now`.
    fn add(&mut self, object: u64, now: Instant, hit: Hits) {
        self.class.metrics.add_hit(hit.bytes);
        let [once, again] = &mut self.sums;
        let sum = if self.gets.is_read_again(object, now) { again } else { once };
        sum.hits.requests += hit.requests;
        sum.hits.bytes += hit.bytes;
        sum.hits.busy += hit.busy;
    }
}

impl Alike {
    fn is_of(
        &self,
        context: &RequestContext<'_>,
        resource: &Arc<ApiResource>,
        request: &ResourceRequest,
    ) -> bool {
        Arc::ptr_eq(&self.resource, resource)
            && self.namespace == request.namespace
            && self.agent == context.agent
            && self.sender.sent(&context.auth)
    }
}

/// Costs are at most this old, and some seconds more where many connections came together.
const CHARGED_AFTER: Duration = Duration::from_secs(10);
/// How often patterns of a connection are charged before they begin anew.
const AGE_MAX: u8 = 6;
/// Patterns of a connection at one time. Further GETs are charged one by one.
const PATTERNS_MAX: usize = 8;

#[cfg(test)]
mod tests;
