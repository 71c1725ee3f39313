//! The client doctor: which client makes work with which habit, what that costs, and what ends it
//! (`docs/decisions/client-costs.md`).
//!
//! A rule is a pure function ([`measure`]) of the [`sums`] of what one client does with one
//! resource. It is on from its bound, and off again below half of that, so that a finding does not
//! come and go. kubectl and kubelets are left out. A finding names no object.
//!
//! Memory: a set of the findings that are on, of which there is at most one of each rule for each
//! pair of client and resource that [`Costs`] keeps.

mod measure;
mod rule;
mod sums;

use std::collections::HashSet;
use std::time::Duration;

pub use crate::cost::{
    GZIP_RATIO, SECONDS_PER_BYTE, SECONDS_PER_EVENT, SECONDS_PER_REQUEST, seconds_per_sent_byte,
};
use crate::costs::Costs;
pub use crate::doctor::measure::says_who;
pub use crate::doctor::rule::{Library, Rule, Weight};
use crate::doctor::sums::{ALL_RESOURCES, Who, collect};

/// A habit of a client, with what it costs by estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The weight of the finding.
    pub weight: Weight,
    /// The user; empty in a sidecar.
    pub user: Box<str>,
    /// The user agent.
    pub agent: Box<str>,
    /// The resource, with its group; `(all)` for a habit of all requests.
    pub resource: Box<str>,
    /// The observation that the rule found, as a sentence.
    pub evidence: String,
    /// Processors of the API server, by estimate.
    pub upstream_cores: f64,
    /// Processors of Weir.
    pub cores: f64,
    /// Bytes of responses a second.
    pub bytes_per_second: f64,
}

impl Finding {
    /// Returns the number by which findings of one weight are ordered, the largest first: the
    /// processors of the API server, and so little for the bytes that they only decide between
    /// equals.
    fn order(upstream_cores: f64, bytes_per_second: f64) -> f64 {
        upstream_cores + CORES_PER_BYTE * bytes_per_second
    }

    /// Returns a cost for people.
    pub fn cost_text(upstream_cores: f64, cores: f64, bytes_per_second: f64) -> String {
        let bytes = if bytes_per_second < 1e6 {
            format!("{:.0} KB/s", bytes_per_second / 1e3)
        } else {
            format!("{:.1} MB/s", bytes_per_second / 1e6)
        };
        let [upstream, weir_millicores] = [upstream_cores, cores].map(|cores| 1e3 * cores);
        // The first number is an estimate, of which only two digits say anything.
        let upstream =
            if upstream < 10.0 { format!("{upstream:.1}") } else { format!("{upstream:.0}") };
        format!(
            "about {upstream} mCPU on the API server, {weir_millicores:.1} mCPU in Weir, {bytes}"
        )
    }
}

/// The rules, and which findings are on.
#[derive(Debug, Default)]
pub struct Doctor {
    on: HashSet<(Rule, Who)>,
}

impl Doctor {
    /// Returns the findings at `now`, the weightiest and most expensive first. `costs` are of the
    /// same moment.
    pub fn examine(&mut self, now: Duration, costs: &Costs) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut on = HashSet::new();
        for (who, sums) in collect(now, costs) {
            let [user, agent, resource] = &who;
            let is_all = &**resource == ALL_RESOURCES;
            for rule in Rule::ALL.into_iter().filter(|rule| rule.is_of_client() == is_all) {
                let Some((size, evidence, cost)) = rule.measure(&sums, agent) else { continue };
                let was_on = self.on.contains(&(rule, who.clone()));
                if size < if was_on { OFF_BELOW } else { 1.0 } {
                    continue;
                }
                on.insert((rule, who.clone()));
                let upstream_cores = cost.upstream_seconds / sums.seconds;
                let bytes_per_second = cost.bytes / sums.seconds;
                findings.push(Finding {
                    rule,
                    weight: rule.weight(upstream_cores, bytes_per_second),
                    user: user.clone(),
                    agent: agent.clone(),
                    resource: resource.clone(),
                    evidence,
                    upstream_cores,
                    cores: cost.cpu_seconds / sums.seconds,
                    bytes_per_second,
                });
            }
        }
        self.on = on;
        let order =
            |finding: &Finding| Finding::order(finding.upstream_cores, finding.bytes_per_second);
        findings.sort_by(|one, other| {
            other.weight.cmp(&one.weight).then(order(other).total_cmp(&order(one)))
        });
        findings
    }
}

/// A finding that is on stays on until here.
const OFF_BELOW: f64 = 0.5;
/// The part of bytes per second in the order of findings.
const CORES_PER_BYTE: f64 = 1e-9;

#[cfg(test)]
mod tests;
