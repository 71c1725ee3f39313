//! Adds the GETs that a cache answers to the sums of their connections ([`hits`](super::hits)), and
//! charges these.
//!
//! [`FlowControl::tend`] charges the sums of a connection every ten seconds, and whoever reads the
//! costs has all of them charged first, which ends no pattern. A connection that has ended is
//! charged too: the list of those with sums keeps them. The metrics count each hit at once.
//! Connections that came together are charged a tenth at a time, so that no tick is long.
//!
//! A pattern ends after a minute, so that an API server's new warning is seen, and at once with a
//! new plan.
//!
//! Lock order: the lock of a sweep, then one of: the list of connections, the patterns of one, a
//! batch and then the costs.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderValue;
use http::header::WARNING;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::flow::cost::Cost;
use crate::flow::costs::Origin;
use crate::server::flow_control::hits::{Alike, Hits, Pattern, Patterns, Sum, UnchargedHits};
use crate::server::flow_control::last_gets::LastGets;
use crate::server::flow_control::meter::{Answered, short_body};
use crate::server::flow_control::requester::Requester;
use crate::server::flow_control::{Classified, FlowControl};
use crate::server::metrics::CacheStatus;
use crate::server::request::context::RequestContext;

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
        let plan = self.plan_number.load(Ordering::Acquire);
        let mut patterns = memo.uncharged().0.lock();
        let pattern_found = patterns.patterns.iter_mut().find(|pattern| {
            pattern.alike.plan == plan && is_of(&pattern.alike, context, resource, request)
        });
        if let Some(pattern) = pattern_found {
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
        let agent = context.agent.as_ref().map_or(&[][..], HeaderValue::as_bytes);
        if agent.len() > AGENT_BYTES_MAX || answered.response.headers().contains_key(WARNING) {
            return false;
        }
        // A copy: the header is a part of the whole head, which would stay in memory.
        let Ok(agent) = context.agent.as_ref().map(|_| HeaderValue::from_bytes(agent)).transpose()
        else {
            return false;
        };
        let subject = (resource, &request.namespace);
        let mut pattern = self.begin_pattern(context, agent, subject, plan);
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
        agent: Option<HeaderValue>,
        (resource, namespace): (&Arc<ApiResource>, &Arc<str>),
        plan: u64,
    ) -> Pattern {
        let client = self.client(context);
        let sum = |is_read_again| {
            let Classified { class, hash, habit, .. } =
                self.classify(context, client, is_read_again);
            let origin = Arc::new(self.origin(context, habit));
            (class, Sum { origin, hash, hits: Hits::default() })
        };
        let ((class, once), (_, again)) = (sum(false), sum(true));
        let alike = Alike {
            plan,
            agent,
            resource: Arc::clone(resource),
            namespace: Arc::clone(namespace),
            sender: context.sender().clone(),
        };
        let (sums, gets) = ([once, again], LastGets::default());
        Pattern { alike, class, sums, gets, is_used: false, age: 0 }
    }

    /// Charges the sums of all connections. Patterns stay. A second caller waits for the first.
    pub(super) fn charge_all_hits(&self) {
        let _sweep = self.hit_sweep.lock();
        let patterns_uncharged: Vec<_> =
            self.uncharged.0.lock().iter().map(|(_, uncharged)| Arc::clone(uncharged)).collect();
        for uncharged in patterns_uncharged {
            let sums = take_sums(&mut uncharged.0.lock());
            self.charge_sums(sums);
        }
    }

    /// Charges the sums of connections that have had some for [`CHARGED_AFTER`], at most a tenth of
    /// all. Call this every second.
    pub(super) fn charge_due_hits(&self) {
        let _sweep = self.hit_sweep.lock();
        let due: Vec<_> = {
            let mut listed = self.uncharged.0.lock();
            let is_due = |(since, _): &&(Instant, _)| since.elapsed() >= CHARGED_AFTER;
            let most = listed.len().div_ceil(CHARGED_AFTER.as_secs() as usize);
            let count = listed.iter().take(most).take_while(is_due).count();
            listed.drain(..count).collect()
        };
        for (_, uncharged) in due {
            // One that has ended gets no more hits.
            let is_open = Arc::strong_count(&uncharged) > 1;
            if self.charge_and_age(&uncharged) && is_open {
                self.uncharged.0.lock().push_back((Instant::now(), uncharged));
            }
        }
    }

    /// Charges the sums of a connection, and ends its patterns that are old or not used any more.
    /// Returns whether there are others.
    fn charge_and_age(&self, uncharged: &UnchargedHits) -> bool {
        let mut patterns = uncharged.0.lock();
        let sums = take_sums(&mut patterns);
        patterns.patterns.retain_mut(|pattern| {
            pattern.age = pattern.age.saturating_add(1);
            std::mem::take(&mut pattern.is_used) && pattern.age < AGE_MAX
        });
        patterns.is_listed = !patterns.patterns.is_empty();
        if !patterns.is_listed {
            patterns.patterns = Vec::new();
        }
        let is_listed = patterns.is_listed;
        drop(patterns);
        self.charge_sums(sums);
        is_listed
    }

    /// Charges sums. The lock of their connection is not held, since this may wait for the costs.
    fn charge_sums(&self, sums: SmallVec<[TakenSum; SUMS_INLINE]>) {
        for (origin, hash, Hits { requests, bytes, busy }) in sums {
            let (requests, bytes) = (requests as f64, bytes as f64);
            let cpu_seconds = busy.as_secs_f64();
            let cost = Cost { requests, bytes, cpu_seconds, ..Cost::default() };
            self.add_cost(hash, &cost, || (*origin).clone());
        }
    }
}

/// The hits that are taken out of a sum, and to whom they are charged.
type TakenSum = (Arc<Origin>, u64, Hits);

/// Takes all hits out of the sums of a connection.
fn take_sums(patterns: &mut Patterns) -> SmallVec<[TakenSum; SUMS_INLINE]> {
    let sums = patterns.patterns.iter_mut().flat_map(|pattern| &mut pattern.sums);
    let sums = sums.filter(|sum| sum.hits.requests > 0);
    sums.map(|sum| (Arc::clone(&sum.origin), sum.hash, std::mem::take(&mut sum.hits))).collect()
}

/// Whether a request is like the hits of a pattern.
fn is_of(
    alike: &Alike,
    context: &RequestContext<'_>,
    resource: &Arc<ApiResource>,
    request: &ResourceRequest,
) -> bool {
    Arc::ptr_eq(&alike.resource, resource)
        && alike.namespace == request.namespace
        && alike.agent == context.agent
        && is_same(&alike.sender, context.sender())
}

/// Whether two senders are one. A user's objects with other fields are not.
fn is_same(one: &Requester, other: &Requester) -> bool {
    match (one, other) {
        (_, Requester::User(user)) => one.is_user(user),
        (Requester::Token(one), Requester::Token(other)) => one == other,
        (Requester::Unidentified, Requester::Unidentified)
        | (Requester::Sidecar, Requester::Sidecar) => true,
        _ => false,
    }
}

/// Costs are at most this old, and some seconds more where many connections came together.
const CHARGED_AFTER: Duration = Duration::from_secs(10);
/// A longer user agent is not kept.
const AGENT_BYTES_MAX: usize = 1024;
/// The sums that most connections have.
const SUMS_INLINE: usize = 4;
/// How often patterns of a connection are charged before they end.
const AGE_MAX: u8 = 6;
/// Patterns of a connection at one time. Further GETs are charged one by one.
const PATTERNS_MAX: usize = 8;

#[cfg(test)]
mod tests;
