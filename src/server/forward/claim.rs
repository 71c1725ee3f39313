//! The permit of a forwarded list or watch, and the rules for its release.
//!
//! A list holds its permit until its response ends. A watch lasts for minutes, so that this rule
//! would keep the others out long after the reason is gone:
//!
//! * While a cache is cold or fails, a forwarded watch holds its permit. As soon as a cache can
//!   take over, the watch ends cleanly between two events. Its client resumes where it was, and
//!   finds the cache.
//! * While discovery knows no resource yet, the same holds, but the watch ends as soon as its
//!   resource is known: its client then waits for the cache.
//! * While a cache exceeds a byte budget, which may last, a watch holds its permit only until it
//!   has begun, as in kube-apiserver (`docs/decisions/herds.md`). It also ends when a cache
//!   can take over.
//! * While discovery cannot rule out that an aggregated API server serves the resource, or an API
//!   server refused the list of the cache, as one that starts does, or sent what cannot be parsed,
//!   a watch holds no permit. It also ends when a cache can take over, and has a refused cache
//!   tried again.
//! * While reviews of its client's token or permission have no answer, a watch holds no permit, and
//!   a cache may be ready. It ends after a while, when a cache can take over: then the client is
//!   reviewed again.
//!
//! A watch must not end where its client could not resume it. It could not do so before the
//! bookmark after the initial events, if it receives these. Without bookmarks that moment is
//! unknown, and without initial events and a resourceVersion the client has nothing to resume from.
//! Such a watch goes on when a cache can take over, and only releases its permit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep};

use crate::api::request_info::{RequestInfo, ResourceRequest};
use crate::api::status::Status;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::server::cached::read::CacheServices;
use crate::server::connection::client_id::ClientId;
use crate::server::delegate::{CachedDecision, Reason, Start, Target};
use crate::server::forward::share::{ForwardShares, ShareKey, SharedPermit};
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Rejection, RejectionCause};

/// The part of a forward budget that one forwarded request has.
pub(crate) struct ForwardClaim {
    /// `None` for what counts against no budget.
    permit: Option<SharedPermit>,
    watch: Option<WatchRules>,
}

/// The part of a forward budget that a running watch has.
pub(super) struct WatchClaim {
    permit: Option<SharedPermit>,
    rules: WatchRules,
    taken_over: bool,
    /// Whether the bookmark that ends the initial events was relayed.
    marked: bool,
    /// When the watch may end after that bookmark, or when it counts as begun without one.
    settled: Pin<Box<Sleep>>,
}

struct WatchRules {
    /// Whether it counts only until the watch has begun.
    until_begun: bool,
    beginning: Beginning,
    /// Completes when a cache can take over, or when its resource is discovered.
    takeover: BoxFuture<'static, ()>,
}

/// When a watch has begun, so that its client can resume it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// It begins with the head of its response.
    Head,
    /// It has begun when the bookmark arrives that ends its initial events.
    Bookmark,
    /// The moment is unknown: its initial events end without a bookmark.
    Unknown,
}

impl ForwardClaim {
    /// Acquires what the budgets must give to a request that is forwarded for `reason`; `None` if
    /// that is nothing. Fails with a 429 if the budget is exhausted, or if `client` has half of it;
    /// `None` for a client of a sidecar.
    pub(crate) fn acquire(
        caches: &CacheServices,
        context: &RequestContext<'_>,
        reason: Reason,
        client: Option<(&ForwardShares, ClientId)>,
    ) -> Result<Option<Self>, Rejection> {
        let registry = &caches.registry;
        let Some(request) = budgeted(&context.info, reason) else {
            return Ok(Self::without_permit(registry, context, reason));
        };
        let is_over_budget = reason == Reason::Refused(Refusal::OverBudget);
        let exhausted = || {
            let waiting = registry.waiting(&request.gvr, &request.namespace);
            let seconds = caches.herd.for_cache(waiting);
            let status = Status { retry_after_seconds: Some(seconds), ..Status::initializing() };
            Rejection::new(status, RejectionCause::Forward(reason))
        };
        let share = match client {
            None => None,
            Some((shares, client)) => {
                let permits = match is_over_budget {
                    true => caches.seams.over_budget_forwards,
                    false => registry.config().forward_budget,
                };
                let key = ShareKey { client, gvr: request.gvr.clone(), is_over_budget };
                Some(Box::new(shares.try_acquire(key, permits).ok_or_else(exhausted)?))
            }
        };
        let permit = registry.forward_permit(&request.gvr, is_over_budget);
        let permit = Some(SharedPermit { _permit: permit.ok_or_else(exhausted)?, _share: share });
        let watch = WatchRules::new(registry, context, request, (is_over_budget, false));
        Ok(Some(Self { permit, watch }))
    }

    /// Returns the claim of a watch that counts against no budget, but may be taken over: discovery
    /// could not rule out that an aggregated API server serves the resource, Weir may not list it
    /// or cannot parse it, or nobody could say what the client may do. Each may change.
    fn without_permit(
        registry: &Registry,
        context: &RequestContext<'_>,
        reason: Reason,
    ) -> Option<Self> {
        let is_unreviewed = matches!(reason, Reason::Identity | Reason::Authorization);
        let is_refused = matches!(
            reason,
            Reason::Refused(Refusal::Aggregated | Refusal::Forbidden | Refusal::Unreadable)
        );
        if !is_unreviewed && !is_refused {
            return None;
        }
        let request = context.info.resource.as_ref()?;
        let mut watch = WatchRules::new(registry, context, request, (false, is_refused))?;
        if is_unreviewed {
            let (until, takeover) = (UNREVIEWED_FOR.mul_f64(1.0 + fastrand::f64()), watch.takeover);
            watch.takeover = async move {
                tokio::time::sleep(until).await;
                takeover.await;
            }
            .boxed();
        }
        Some(Self { permit: None, watch: Some(watch) })
    }

    /// Returns the permit of a response that holds it until its end.
    pub(super) fn into_permit(self) -> Option<SharedPermit> {
        self.permit
    }

    /// Returns the claim of a watch whose response has arrived; `None` if the permit stays with the
    /// response.
    pub(super) fn into_watch(self) -> Result<WatchClaim, Option<SharedPermit>> {
        let Some(rules) = self.watch else { return Err(self.permit) };
        let permit =
            self.permit.filter(|_| !(rules.until_begun && rules.beginning == Beginning::Head));
        let settled = Box::pin(tokio::time::sleep(SETTLED_AFTER));
        Ok(WatchClaim { permit, rules, taken_over: false, marked: false, settled })
    }
}

impl WatchRules {
    /// Returns the rules of a forwarded watch: whether its permit counts only until it has begun,
    /// and whether it has the cache tried again.
    fn new(
        registry: &Registry,
        context: &RequestContext<'_>,
        request: &ResourceRequest,
        (until_begun, retries): (bool, bool),
    ) -> Option<Self> {
        let Ok(decision @ CachedDecision::Watch(plan, _)) = &context.decision else {
            return None;
        };
        let takeover = match context.resource.as_deref() {
            None => registry.discovered(&request.gvr).boxed(),
            Some(resource) => {
                let options = decision.options();
                let target = Target::resolve(context.parts, &context.info, options, resource);
                let representation = resource.representation(target.ok()?.form);
                let namespace = &request.namespace;
                registry.takeover(&request.gvr, namespace, representation, retries).boxed()
            }
        };
        let is_marked = plan.bookmarks && plan.marks_initial_end && registry.may_have_watch_lists();
        let beginning = match plan.start {
            Start::After(_) => Beginning::Head,
            Start::State(_) | Start::ConsistentState if is_marked => Beginning::Bookmark,
            // Without an event, the client of a watch from now on has no resourceVersion to resume.
            Start::State(_) | Start::ConsistentState | Start::Now | Start::ConsistentNow => {
                Beginning::Unknown
            }
        };
        Some(Self { until_begun, beginning, takeover })
    }
}

impl WatchClaim {
    /// Releases the permit when it is due. Returns whether the watch is to end at the next end of
    /// an event, because a cache can take over. `marked` is whether the bookmark that ends the
    /// initial events was relayed.
    pub(super) fn poll_takeover(&mut self, context: &mut Context<'_>, marked: bool) -> bool {
        if marked && !std::mem::replace(&mut self.marked, true) {
            self.settled.as_mut().reset(Instant::now() + RESUMABLE_AFTER);
        }
        if self.rules.until_begun && self.permit.is_some() {
            let has_begun = match self.rules.beginning {
                Beginning::Head => true,
                Beginning::Bookmark => marked,
                Beginning::Unknown => self.settled.as_mut().poll(context).is_ready(),
            };
            if has_begun {
                self.permit = None;
            }
        }
        if !self.taken_over {
            self.taken_over = self.rules.takeover.as_mut().poll(context) == Poll::Ready(());
        }
        if !self.taken_over {
            return false;
        }
        match self.rules.beginning {
            Beginning::Head => true,
            Beginning::Bookmark => marked && self.settled.as_mut().poll(context).is_ready(),
            Beginning::Unknown => {
                self.permit = None;
                false
            }
        }
    }
}

/// Returns the resource whose forward budget a forwarded request uses: that of lists and watches
/// that a cache would have answered.
fn budgeted(info: &RequestInfo, reason: Reason) -> Option<&ResourceRequest> {
    let request = info.resource.as_ref()?;
    let single = !request.name.is_empty() && !request.name_lifted;
    (reason.wants_cache() && !single).then_some(request)
}

/// The shortest time for which a watch is forwarded whose client could not be reviewed; the longest
/// is twice as long. Reviews that have no answer for longer cost the watch a resume each time.
const UNREVIEWED_FOR: Duration = Duration::from_secs(12);
/// After this time the initial events of a watch count as sent, if no bookmark shows it.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// How long a watch goes on after the bookmark that ends its initial events. client-go counts from
/// there, and lists again after a watch of less than a second (`docs/semantics.md` §5.7).
const RESUMABLE_AFTER: Duration = Duration::from_secs(2);
