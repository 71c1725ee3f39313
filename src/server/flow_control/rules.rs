//! Applies operators' rules to requests (`docs/decisions/flow-rules.md`).
//!
//! The use of limits by flows is kept in a bounded map. A flow that is forgotten because others
//! take its place begins again with half of its burst, so that a flood of flows gains little.
//!
//! A watch is counted until its response is dropped, and a response's bytes are charged as they are
//! sent: the request that passes a limit of bytes is not cut, the next one waits for it.
//!
//! Locks: those of the map and of the counter of watches, each taken alone.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::flow::classify::KnownUser;
use crate::flow::rate_limit::{Bucket, Rate};
use crate::flow::rules::Rule;
use crate::server::flow_control::metrics::{FlowMetrics, RuleMetrics};
use crate::server::http::refusal;
use crate::tasks::keyed_counter::{Counted, KeyedCounter};

pub(super) struct Rules {
    rules: Vec<ActiveRule>,
    flows: Cache<u64, Arc<FlowUse>>,
    watches: KeyedCounter<u64>,
    began: Instant,
}

struct ActiveRule {
    rule: Rule,
    metrics: RuleMetrics,
}

#[derive(Debug)]
struct FlowUse {
    requests: Bucket,
    bytes: Bucket,
}

pub(super) struct Subject<'a> {
    pub(super) user: KnownUser<'a>,
    pub(super) agent: &'a str,
    pub(super) info: &'a RequestInfo,
    /// The bytes of the requested collection, if known.
    pub(super) bytes: Option<u64>,
    pub(super) is_forwarded: bool,
    /// Whether rules about all requests were applied to it already.
    pub(super) is_known: bool,
}

/// The charges and counted watches of a request that rules have let pass.
#[derive(Default)]
pub(crate) struct Admission {
    charged: Vec<(Arc<FlowUse>, Rate)>,
    watches: Vec<Counted<u64>>,
    began: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleRefusal {
    Denied,
    /// A list without `limit`.
    Unpaged,
    /// Too many requests; there is one after this time.
    Rate(Rate, Duration),
    Bytes(Rate, Duration),
    Watches(u32),
}

impl Rules {
    pub(super) fn new(rules: &[Rule], metrics: &FlowMetrics) -> Self {
        let active =
            |rule: &Rule| ActiveRule { rule: rule.clone(), metrics: metrics.rule(&rule.name) };
        Self {
            rules: rules.iter().map(active).collect(),
            flows: Cache::new(FLOWS_MAX),
            watches: KeyedCounter::default(),
            began: Instant::now(),
        }
    }

    /// Returns other rules for the same flows.
    pub(super) fn replaced(&self, rules: &[Rule], metrics: &FlowMetrics) -> Self {
        let (flows, watches) = (self.flows.clone(), self.watches.clone());
        Self { flows, watches, began: self.began, ..Self::new(rules, metrics) }
    }

    /// Applies all rules that match. `flow_of` returns a hash of a rule's flow.
    pub(super) fn apply(
        &self,
        subject: &Subject<'_>,
        flow_of: impl Fn(&Rule) -> u64,
        admission: &mut Admission,
    ) -> Result<(), RuleRefusal> {
        admission.began = Some(self.began);
        let Subject { user, agent, info, is_forwarded, is_known, .. } = *subject;
        for ActiveRule { rule, metrics } in &self.rules {
            let is_due = if rule.is_upstream_only { is_forwarded } else { !is_known };
            if !is_due || !rule.matches(user, agent, info) {
                continue;
            }
            if let Err(refusal) = self.apply_one(rule, subject, flow_of(rule), admission) {
                metrics.count(refusal.as_str(), rule.enforces);
                if rule.enforces {
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    fn apply_one(
        &self,
        rule: &Rule,
        subject: &Subject<'_>,
        flow: u64,
        admission: &mut Admission,
    ) -> Result<(), RuleRefusal> {
        if rule.denies {
            return Err(RuleRefusal::Denied);
        }
        if rule.forbids_list(subject.info, subject.bytes) {
            return Err(RuleRefusal::Unpaged);
        }
        let limits = rule.limits;
        let now = self.began.elapsed();
        let used = (limits.requests.is_some() || limits.bytes.is_some())
            .then(|| self.flows.get_with(flow, || Arc::new(self.begin(rule, now))));
        if let Some((used, rate)) = used.as_ref().zip(limits.bytes)
            && let Some(wait) = used.bytes.wait(rate, now)
        {
            return Err(RuleRefusal::Bytes(rate, wait));
        }
        if let Some(most) = limits.watches.filter(|_| subject.info.verb == Verb::Watch) {
            let open_max = usize::try_from(most).unwrap_or(usize::MAX);
            let counted = self.watches.try_add_below(flow, open_max);
            admission.watches.push(counted.ok_or(RuleRefusal::Watches(most))?);
        }
        if let Some((used, rate)) = used.as_ref().zip(limits.requests) {
            used.requests.take(rate, now).map_err(|wait| RuleRefusal::Rate(rate, wait))?;
        }
        admission.charged.extend(used.zip(limits.bytes));
        Ok(())
    }

    /// Returns what a flow has used that is not in the map.
    fn begin(&self, rule: &Rule, now: Duration) -> FlowUse {
        let is_full = self.flows.entry_count() >= FLOWS_MAX;
        let bucket = |rate: Option<Rate>| match rate.filter(|_| is_full) {
            Some(rate) => Bucket::half_full(rate, now),
            None => Bucket::default(),
        };
        FlowUse { requests: bucket(rule.limits.requests), bytes: bucket(rule.limits.bytes) }
    }
}

impl Admission {
    /// Ends what counts a watch: the request is refused.
    pub(crate) fn end_watches(&mut self) {
        self.watches.clear();
    }

    pub(super) fn charge(&self, bytes: u64) {
        let Some(began) = self.began.filter(|_| bytes > 0) else { return };
        for (used, rate) in &self.charged {
            used.bytes.charge(*rate, began.elapsed(), bytes);
        }
    }
}

impl RuleRefusal {
    /// Returns the word for it in `X-Weir-Shed` and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Unpaged => "unpaged",
            Self::Rate(..) => "rate",
            Self::Bytes(..) => "bytes",
            Self::Watches(..) => "watches",
        }
    }

    /// Returns the answer: a 403 for what will never pass, else a 429. It names no rule.
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Denied => refusal::forbidden("weir: this client's requests are refused".into()),
            Self::Unpaged => refusal::forbidden(
                "weir: this list must be read in pages: use limit and continue".into(),
            ),
            Self::Rate(rate, wait) => {
                let what = format!("weir: more than {} requests a second", rate.per_second);
                refusal::limited(wait, what)
            }
            Self::Bytes(rate, wait) => {
                let what = format!("weir: more than {} bytes a second", rate.per_second);
                refusal::limited(wait, what)
            }
            Self::Watches(most) => {
                refusal::too_many_watches(format!("weir: more than {most} open watches"))
            }
        }
    }
}

/// The most flows whose use is known.
const FLOWS_MAX: u64 = 65_536;
