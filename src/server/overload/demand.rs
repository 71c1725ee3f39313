//! The cost of a request for Weir, and the stage that refuses it.
//!
//! The order: large lists of the lower levels, then all large lists and the initial states of
//! watches, then everything but what keeps nodes and leases alive. GETs from a cache cost no more
//! than their refusal. Exempt requests, health checks and Weir's own are never refused.

use crate::api::request_info::{RequestInfo, Verb};
use crate::flow::overload::Stage;
use crate::flow::rules::rank;

/// The facts about a request that decide whether a stage admits it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) info: &'a RequestInfo,
    /// The rank of its priority level; a lower one is better. `None` if it has none: its sender is
    /// not known, or nothing is classified.
    pub(crate) rank: Option<u8>,
    /// The bytes of the requested collection, if known.
    pub(crate) bytes: Option<u64>,
    pub(crate) is_forwarded: bool,
    /// Whether it was admitted before, as a request for a cache.
    pub(crate) is_checked: bool,
    /// The flow of its large answers.
    pub(crate) flow: u64,
}

impl Demand<'_> {
    /// Returns what kind of request a stage refuses; `None` if it admits this one.
    pub(crate) fn refused_at(&self, stage: Stage) -> Option<&'static str> {
        let own_rank = self.rank.unwrap_or(u8::MAX);
        if stage < Stage::LargeLists || own_rank <= rank("exempt") {
            return None;
        }
        let is_spared = stage == Stage::LargeLists && own_rank <= rank("workload-high");
        if self.is_large_list() && !is_spared {
            return Some("large-list");
        }
        if stage >= Stage::InitialStates && self.begins_with_state() {
            return Some("initial-state");
        }
        (stage >= Stage::VitalOnly && !self.is_vital()).then_some("other")
    }

    /// Returns the kind of request as which a stage refuses it, and did not refuse it before.
    pub(super) fn newly_refused_at(&self, stage: Stage) -> Option<&'static str> {
        let before = Self { is_forwarded: false, ..*self };
        let is_new = !self.is_checked || before.refused_at(stage).is_none();
        self.refused_at(stage).filter(|_| is_new)
    }

    /// Whether it asks this Weir for many objects, and is not exempt.
    pub(super) fn is_for_many(&self) -> bool {
        let is_exempt = self.rank.is_some_and(|request_rank| request_rank <= rank("exempt"));
        let is_many = self.info.verb == Verb::List || self.begins_with_state();
        is_many && !is_exempt && !self.is_forwarded
    }

    /// Whether it lists a whole collection of many bytes. How much a selector or a namespace
    /// leaves of one is not known before it is read.
    fn is_large_list(&self) -> bool {
        let Self { info, bytes, .. } = *self;
        let Some(resource) = info.resource.as_ref().filter(|_| info.verb == Verb::List) else {
            return false;
        };
        let is_empty = |name| info.query.first(name).is_none_or(str::is_empty);
        let limit = info.query.first("limit").and_then(|limit| limit.parse::<u64>().ok());
        let is_page = limit.is_some_and(|limit| (1..=PAGE_MAX).contains(&limit));
        resource.namespace.is_empty()
            && !is_page
            && is_empty("fieldSelector")
            && is_empty("labelSelector")
            && bytes.is_some_and(|bytes| bytes > LARGE_BYTES)
    }

    /// Whether it is a watch that begins with the state of its collection. A watch of one object
    /// costs as little as a GET.
    fn begins_with_state(&self) -> bool {
        let Self { info, .. } = *self;
        let first = |name| info.query.first(name).unwrap_or_default();
        let resumes = !matches!(first("resourceVersion"), "" | "0");
        let is_narrow = first("fieldSelector").contains("metadata.name=");
        let asks = matches!(first("sendInitialEvents"), "true" | "1");
        info.verb == Verb::Watch && !is_narrow && (asks || !resumes)
    }

    /// Whether it keeps nodes and leases alive, is a health check, or a GET from a cache.
    fn is_vital(&self) -> bool {
        let Self { info, is_forwarded, .. } = *self;
        let Some(resource) = &info.resource else {
            let path = info.non_resource.as_ref();
            return path
                .is_some_and(|path| HEALTH.iter().any(|prefix| path.path.starts_with(prefix)));
        };
        let is_write = matches!(info.verb, Verb::Update | Verb::Patch | Verb::Create);
        let gvr = (&*resource.gvr.group, &*resource.gvr.resource);
        let is_heartbeat = matches!(gvr, ("coordination.k8s.io", "leases") | ("", "nodes"));
        match info.verb {
            Verb::Get => !is_forwarded || is_heartbeat,
            _ => is_write && is_heartbeat,
        }
    }
}

/// A collection of more bytes is large: it takes a millisecond to write.
const LARGE_BYTES: u64 = 1 << 20;
/// A page of this number of objects, the default of client-go, is not large.
const PAGE_MAX: u64 = 500;
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];
