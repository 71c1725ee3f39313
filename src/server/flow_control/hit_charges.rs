//! Adds the GETs that a cache answers to the sums of their connections ([`hits`](super::hits)), and
//! charges these.
//!
//! [`FlowControl::tend`] charges the sums of a connection every ten seconds, and whoever reads the
//! costs has all of them charged first. A connection that has ended is charged too: the list of
//! those with sums keeps them. The metrics count each hit at once. Connections that came together
//! are charged a tenth at a time, so that no tick is long.
//!
//! A pattern ends after a minute, so that an API server's new warning is seen, and at once with a
//! new plan.
//!
//! Lock order: the patterns of a connection, then a batch. The list of connections alone.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::WARNING;
use tokio::time::Instant;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::auth::user::User;
use crate::flow::cost::Cost;
use crate::server::flow_control::hits::{Alike, Hits, Pattern, Sum, UnchargedHits};
use crate::server::flow_control::last_gets::LastGets;
use crate::server::flow_control::meter::{Answered, short_body};
use crate::server::flow_control::requester::Requester;
use crate::server::flow_control::{Classified, FlowControl};
use crate::server::metrics::CacheStatus;
use crate::server::request::auth::AuthContext;
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
        let plan = self.plan_number.load(Ordering::Relaxed);
        let mut patterns = memo.uncharged().0.lock();
        let known = patterns.patterns.iter_mut().find(|pattern| {
            pattern.alike.plan == plan && is_of(&pattern.alike, context, resource, request)
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
        && has_sent(&alike.sender, &context.auth)
}

/// Whether somebody sent the request of which `auth` is known.
fn has_sent(sender: &Requester, auth: &AuthContext) -> bool {
    let is_user =
        |user: &Arc<User>, other: &Arc<User>| Arc::ptr_eq(user, other) || user.key() == other.key();
    match (sender, &auth.identity, &auth.requester) {
        (Requester::User(user), Some(identity), _) => is_user(user, &identity.user),
        (_, Some(_), _) => false,
        (Requester::User(user), None, Requester::User(other)) => is_user(user, other),
        (Requester::Token(hash), None, Requester::Token(other)) => hash == other,
        (Requester::Unidentified, None, Requester::Unidentified)
        | (Requester::Sidecar, None, Requester::Sidecar) => true,
        _ => false,
    }
}

/// Costs are at most this old, and some seconds more where many connections came together.
const CHARGED_AFTER: Duration = Duration::from_secs(10);
/// How often patterns of a connection are charged before they end.
const AGE_MAX: u8 = 6;
/// Patterns of a connection at one time. Further GETs are charged one by one.
const PATTERNS_MAX: usize = 8;

#[cfg(test)]
mod tests;
