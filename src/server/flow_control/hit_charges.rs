//! Charges GETs that a cache answers, by the last ones of their connection that were like them
//! ([`memo`](super::memo)).
//!
//! Lock order: the patterns of a connection, alone; then a batch, and then the costs.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderValue;
use http::header::WARNING;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::ApiResource;
use crate::flow::cost::Cost;
use crate::flow::costs::Origin;
use crate::flow::habit::Habit;
use crate::server::flow_control::memo::{LastObjects, Pattern};
use crate::server::flow_control::meter::{Answered, short_body};
use crate::server::flow_control::requester::Requester;
use crate::server::flow_control::{Classified, FlowControl};
use crate::server::metrics::CacheStatus;
use crate::server::request::context::RequestContext;

impl FlowControl {
    /// Charges a request if it is a GET that a cache answered and that nothing else has to see.
    /// Returns whether it is.
    pub(super) fn charge_hit(&self, context: &RequestContext<'_>, answered: &Answered<'_>) -> bool {
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
        if !request.subresource.is_empty()
            || memo.has_refusals(context.started)
            || answered.response.headers().contains_key(WARNING)
        {
            return false;
        }
        let plan = self.plan_number.load(Ordering::Acquire);
        let object = self.hasher.hash_one(&request.name);
        let add = |pattern: &mut Pattern| pattern.add(object, context.started, bytes);
        let is_of = |pattern: &&mut Pattern| {
            pattern.plan == plan && is_of(pattern, context, resource, request)
        };
        let added = memo.last_hits().0.iter_mut().find(is_of).map(add);
        let (origin, is_read_again) = match added {
            Some(added) => added,
            None => {
                let subject = (resource, request);
                let Some(mut pattern) = self.pattern(context, subject, plan) else { return false };
                let added = add(&mut pattern);
                memo.last_hits().push(pattern);
                added
            }
        };
        let (bytes, cpu_seconds) = (bytes as f64, answered.busy.as_secs_f64());
        let cost = Cost { requests: 1.0, bytes, cpu_seconds, ..Cost::default() };
        self.add_cost(origin, &cost, || self.hit_origin(context, is_read_again));
        true
    }

    /// Returns the pattern of a GET; `None` if it is not worth its memory.
    #[inline(never)]
    fn pattern(
        &self,
        context: &RequestContext<'_>,
        (resource, request): (&Arc<ApiResource>, &ResourceRequest),
        plan: u64,
    ) -> Option<Pattern> {
        // A copy: the header is a part of the whole head, which would stay in memory.
        let agent = match &context.agent {
            Some(agent) if agent.len() > AGENT_BYTES_MAX => return None,
            Some(agent) => Some(HeaderValue::from_bytes(agent.as_bytes()).ok()?),
            None => None,
        };
        let client = self.client(context);
        let Classified { class, origin, hash, habit } = self.classify(context, client, false);
        let again = self.hasher.hash_one((origin, Habit { is_repeated: true, ..habit }));
        Some(Pattern {
            plan,
            sender: context.sender().clone(),
            agent,
            resource: Arc::clone(resource),
            namespace: Arc::clone(&request.namespace),
            class,
            origins: [hash, again],
            objects: LastObjects::default(),
        })
    }

    #[inline(never)]
    fn hit_origin(&self, context: &RequestContext<'_>, is_repeated: bool) -> Origin {
        self.origin(context, Habit { is_repeated, ..context.habit })
    }
}

fn is_of(
    pattern: &Pattern,
    context: &RequestContext<'_>,
    resource: &Arc<ApiResource>,
    request: &ResourceRequest,
) -> bool {
    Arc::ptr_eq(&pattern.resource, resource)
        && pattern.namespace == request.namespace
        && pattern.agent == context.agent
        && is_same(&pattern.sender, context.sender())
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

/// A longer user agent is not kept.
const AGENT_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
