//! Operators' rules, which the cluster's FlowSchemas cannot express: bans, rates, limits on watches
//! and on lists without pages, and levels by user agent (`docs/decisions/flow-rules.md`).
//!
//! A rule matches as a FlowSchema does, and by user agent. All rules that match a request apply; of
//! those that name a level, the first.
//!
//! Invariant: a user agent is what the client claims. A rule that matches by it never gives a
//! request a better level than it has, and never the level `exempt`.

use std::fmt;
use std::sync::Arc;

use crate::classify::{KnownUser, Policies};
use crate::rate_limit::Rate;
use weir_api::request_info::{RequestInfo, Verb};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which metrics and logs show, and no client.
    pub name: Arc<str>,
    /// The requests that it matches, as `spec.rules` of a FlowSchema; `None` for every request.
    pub policies: Option<Policies>,
    /// The user agents that it matches; none for all.
    pub agents: Box<[AgentPattern]>,
    /// Whether it acts, or only counts what it would do.
    pub enforces: bool,
    /// Whether it is only about requests that are forwarded.
    pub is_upstream_only: bool,
    /// Whether it refuses all that it matches.
    pub denies: bool,
    /// Its limits for each flow.
    pub limits: Limits,
    /// The distinguisher by which the requests that it matches are divided into flows.
    pub flow_by: FlowBy,
    /// The priority level that forwarded requests get.
    pub level: Option<Arc<str>>,
}

/// The limits of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second.
    pub requests: Option<Rate>,
    /// Bytes of responses a second.
    pub bytes: Option<Rate>,
    /// Open watches.
    pub watches: Option<u32>,
    /// The bytes of a collection that may be listed without `limit`.
    pub unpaged_bytes: Option<u64>,
}

/// The distinguisher by which requests are divided into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowBy {
    /// The name of the user; of unknown ones, the credential and the address.
    User,
    /// The namespace of the request.
    Namespace,
    /// The user agent.
    UserAgent,
    /// The user and the user agent.
    UserAndAgent,
    /// Nothing: all are one flow.
    Nothing,
}

/// A user agent, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPattern {
    /// This product, such as `kubectl/v1.36.0`.
    Exact(Box<str>),
    /// All that begin with this.
    Prefix(Box<str>),
}

impl Rule {
    /// Whether it matches a request with this User-Agent.
    pub fn matches(&self, user: KnownUser<'_>, agent: &str, info: &RequestInfo) -> bool {
        let product = product(agent);
        (self.agents.is_empty() || self.agents.iter().any(|pattern| pattern.matches(product)))
            && self.policies.as_ref().is_none_or(|policies| policies.match_request(user, info))
    }

    /// Whether it refuses a list of a collection of `bytes` bytes, if this size is known. An
    /// unknown collection may be listed, unless none may.
    pub fn forbids_list(&self, info: &RequestInfo, bytes: Option<u64>) -> bool {
        let Some(most) = self.limits.unpaged_bytes else { return false };
        is_unpaged_list(info) && (most == 0 || bytes.is_some_and(|bytes| bytes > most))
    }
}

impl AgentPattern {
    /// Parses `kubectl/v1.36.0` or `kubectl/*`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text.strip_suffix('*') {
            _ if text.is_empty() => Err("is empty"),
            _ if text.contains(' ') => Err("has a space; only the first product is compared"),
            Some(prefix) if prefix.contains('*') => Err("has a * that is not at its end"),
            Some(prefix) => Ok(Self::Prefix(prefix.into())),
            None if text.contains('*') => Err("has a * that is not at its end"),
            None => Ok(Self::Exact(text.into())),
        }
    }

    /// Whether every user agent matches.
    pub fn matches_any(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if prefix.is_empty())
    }

    /// Whether a product matches.
    pub fn matches(&self, product: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *product,
            Self::Prefix(prefix) => product.starts_with(&**prefix),
        }
    }
}

/// Writes the text that [`AgentPattern::parse`] reads.
impl fmt::Display for AgentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(exact) => f.write_str(exact),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Returns the first product of a User-Agent.
pub fn product(agent: &str) -> &str {
    agent.split(' ').next().unwrap_or_default()
}

/// Whether a request lists a collection at once. A list of one name is none.
fn is_unpaged_list(info: &RequestInfo) -> bool {
    let limit = info.query.first("limit");
    let has_limit = limit.is_some_and(|limit| limit.parse::<i64>().is_ok_and(|limit| limit > 0));
    let of_one = info.resource.as_ref().is_some_and(|resource| !resource.name.is_empty());
    info.verb == Verb::List && !has_limit && !of_one
}

/// Returns the rank of a level of kube-apiserver: a lower one is better.
pub fn rank(level: &str) -> u8 {
    let ranked = RANKED.iter().find(|(name, _)| *name == level);
    ranked.map_or(RANK_OF_OTHERS, |(_, rank)| *rank)
}

/// The levels of kube-apiserver whose rank differs from that of others.
const RANKED: [(&str, u8); 7] = [
    ("exempt", 0),
    ("leader-election", 1),
    ("node-high", 2),
    ("system", 3),
    ("workload-high", 4),
    ("global-default", 6),
    ("catch-all", 7),
];
const RANK_OF_OTHERS: u8 = 5;

#[cfg(test)]
mod tests;
