//! The client doctor: which client makes work with which habit, what that costs, and what ends it
//! (`docs/decisions/client-doctor.md`).
//!
//! A rule is a pure function of the sums of one client's lists and watches of one resource. It is
//! on from its bound, and off again below half of that, so that a finding does not come and go.
//! kubectl is left out where a person may mean it so. A finding names no object.
//!
//! Memory: a set of the findings that are on, of which there are at most seven for each pair of
//! client and resource that [`Costs`] keeps.

mod advice;
mod rule;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::flow::cost::Cost;
use crate::flow::costs::{Costs, HabitKey};
pub use crate::flow::doctor::advice::Library;
pub use crate::flow::doctor::rule::Rule;
use crate::flow::habit::{AskedForm, Start};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// A hint.
    Info,
    /// It costs the API server something all the time.
    Warning,
    /// It costs the API server a good part of a processor.
    Critical,
}

/// A habit of a client, with what it costs by estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How much it matters.
    pub weight: Weight,
    /// The user; empty in a sidecar.
    pub user: Box<str>,
    /// The user agent.
    pub agent: Box<str>,
    /// The resource, with its group.
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

/// The rules, and which findings are on.
#[derive(Debug, Default)]
pub struct Doctor {
    on: HashSet<(Rule, Who)>,
}

/// A client and a resource: user, agent, resource.
type Who = [Box<str>; 3];

/// The sums of one client's lists and watches of one resource in the last hour, and since when they
/// are counted.
#[derive(Debug, Default)]
struct Sums {
    lists: Vec<(HabitKey, Cost)>,
    watches: Cost,
    /// Watches in JSON.
    json_watches: Cost,
    /// Lists in the last minute.
    lists_of_minute: f64,
    seconds: f64,
}

impl Rule {
    /// Returns what was seen of it, in units of its bound: it is on from 1. `None` if nothing was.
    fn measure(self, sums: &Sums, agent: &str) -> Option<(f64, String, Cost)> {
        let of = |wanted: fn(&HabitKey) -> bool| {
            let mut sum = Cost::default();
            let lists = sums.lists.iter().filter(|(key, _)| wanted(key));
            lists.for_each(|(_, cost)| sum.add(cost));
            sum
        };
        let every = |cost: &Cost| interval(sums.seconds / cost.requests.max(1e-9));
        let mean = |cost: &Cost| cost.bytes / cost.requests.max(1e-9);
        let is_new = |key: &HabitKey| key.habit.start != Start::Continue;
        let is_kubectl = agent.starts_with("kubectl");
        match self {
            Self::PollList if !is_kubectl && sums.watches.requests < 0.5 => {
                let lists = of(is_new);
                let text = format!("a list {}, and no watch", every(&lists));
                (sums.lists_of_minute >= 0.5).then(|| (lists.requests / LISTS_MIN, text, lists))
            }
            Self::UnsetList if !is_kubectl => {
                let lists = of(|key| key.habit.start == Start::Unset);
                let text = format!("a list without a resourceVersion {}", every(&lists));
                // Those that caches answer cost the API server nothing.
                Some((lists.forwarded / LISTS_MIN, text, lists))
            }
            Self::UnpagedList if !is_kubectl => {
                let lists = of(|key| {
                    !key.habit.is_limited
                        && matches!(key.habit.start, Start::Unset | Start::Version)
                });
                let text = format!("lists without a limit, of {} each", bytes(mean(&lists)));
                let size = mean(&lists) / UNPAGED_BYTES;
                (lists.forwarded >= FEW).then_some((size, text, lists))
            }
            Self::RelistLoop if sums.watches.requests >= 0.5 => {
                let lists = of(|key| key.habit.is_repeated && key.habit.start != Start::Continue);
                let text =
                    format!("a new list {} on the same connection, beside watches", every(&lists));
                Some((lists.requests / RELISTS_MIN, text, lists))
            }
            Self::WatchChurn if sums.watches.requests >= LISTS_MIN => {
                let share = sums.watches.short_watches / sums.watches.requests;
                let (percent, starts) = (100.0 * share, every(&sums.watches));
                let text = format!(
                    "{percent:.0} % of the watches end within a minute; one starts {starts}"
                );
                Some((share / SHORT_SHARE_MIN, text, sums.watches))
            }
            Self::NoGzip => {
                let lists = of(|key| !key.habit.takes_gzip);
                let text = format!("lists of {} each, not compressed", bytes(mean(&lists)));
                (lists.requests >= FEW).then(|| (mean(&lists) / PLAIN_BYTES, text, lists))
            }
            Self::Json if is_go(agent) => {
                let mut all = of(|key| key.habit.form == AskedForm::Json);
                all.add(&sums.json_watches);
                let text = format!("{} in JSON in the last hour", bytes(all.bytes));
                Some((all.bytes / JSON_BYTES, text, all))
            }
            _ => None,
        }
    }

    /// Returns how much it matters, with these costs.
    fn weight(self, upstream_cores: f64, bytes_per_second: f64) -> Weight {
        match self {
            _ if upstream_cores >= CRITICAL_CORES => Weight::Critical,
            Self::Json => Weight::Info,
            Self::NoGzip if bytes_per_second < WARNING_BYTES => Weight::Info,
            Self::PollList | Self::UnsetList | Self::UnpagedList
                if upstream_cores < WARNING_CORES && bytes_per_second < WARNING_BYTES =>
            {
                Weight::Info
            }
            _ => Weight::Warning,
        }
    }
}

impl Weight {
    /// All.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the name, as in the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl Doctor {
    /// Returns the findings at `now`, the weightiest and most expensive first. `costs` are of the
    /// same moment.
    pub fn examine(&mut self, now: Duration, costs: &Costs) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut on = HashSet::new();
        for (who, sums) in collect(now, costs) {
            for rule in Rule::ALL {
                let [user, agent, resource] = &who;
                let Some((measured, evidence, cost)) = rule.measure(&sums, agent) else { continue };
                let was_on = self.on.contains(&(rule, who.clone()));
                if measured < if was_on { OFF_BELOW } else { 1.0 } {
                    continue;
                }
                on.insert((rule, who.clone()));
                let upstream_cores = upstream_seconds(&cost) / sums.seconds;
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
        let cost = |finding: &Finding| finding.upstream_cores + 1e-9 * finding.bytes_per_second;
        findings.sort_by(|one, other| {
            other.weight.cmp(&one.weight).then(cost(other).total_cmp(&cost(one)))
        });
        findings
    }
}

/// Adds up the habits by client and resource.
fn collect(now: Duration, costs: &Costs) -> BTreeMap<Who, Sums> {
    let [minute, hour] = costs.windows();
    let mut all = BTreeMap::<Who, Sums>::new();
    let seconds = hour.seconds(now);
    for counter in hour.habits().heaviest() {
        let key = &counter.key;
        let sums = all.entry(who(key)).or_default();
        sums.seconds = seconds;
        if key.verb == "watch" {
            sums.watches.add(&counter.cost);
            if key.habit.form == AskedForm::Json {
                sums.json_watches.add(&counter.cost);
            }
        } else {
            sums.lists.push((key.clone(), counter.cost));
        }
    }
    for counter in minute.habits().heaviest() {
        if let Some(sums) = all.get_mut(&who(&counter.key)).filter(|_| counter.key.verb == "list") {
            sums.lists_of_minute += counter.cost.requests;
        }
    }
    all
}

fn who(key: &HabitKey) -> Who {
    [key.user.clone(), key.agent.clone(), key.resource.clone()]
}

/// Estimates the CPU time of the API server.
fn upstream_seconds(cost: &Cost) -> f64 {
    if cost.forwarded <= 0.0 {
        return 0.0;
    }
    let part = (cost.forwarded / cost.requests.max(1e-9)).min(1.0);
    part * cost.bytes * SECONDS_PER_BYTE + cost.forwarded * SECONDS_PER_REQUEST
}

/// Whether the agent is that of client-go, or of Go's own client.
fn is_go(agent: &str) -> bool {
    agent.contains(" kubernetes/") || agent.starts_with("Go-http-client")
}

fn interval(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.5 => format!("{:.1} times a second", 1.0 / seconds.max(1e-9)),
        seconds if seconds < 120.0 => format!("every {seconds:.0} s"),
        seconds => format!("every {:.0} min", seconds / 60.0),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e6 => format!("{:.0} KB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

/// Lists, or watches, in about an hour that are a habit.
const LISTS_MIN: f64 = 10.0;
/// An informer that works lists once.
const RELISTS_MIN: f64 = 5.0;
/// Fewer say nothing about a habit.
const FEW: f64 = 3.0;
const SHORT_SHARE_MIN: f64 = 0.5;
/// Some hundred pods.
const UNPAGED_BYTES: f64 = 1e6;
/// The API server compresses from here on.
const PLAIN_BYTES: f64 = 131_072.0;
/// Less JSON in an hour is not worth a change.
const JSON_BYTES: f64 = 10e6;
/// A finding that is on stays on until here.
const OFF_BELOW: f64 = 0.5;
const WARNING_CORES: f64 = 0.005;
const CRITICAL_CORES: f64 = 0.5;
const WARNING_BYTES: f64 = 1e6;
/// CPU seconds of kube-apiserver 1.36 for a byte of a list in JSON, as `benches/compare.rs`
/// measured them.
pub const SECONDS_PER_BYTE: f64 = 12e-9;
/// Its CPU seconds for a GET or another small request.
pub const SECONDS_PER_REQUEST: f64 = 0.25e-3;
/// Its CPU seconds for an event that it sends to a watch.
pub const SECONDS_PER_EVENT: f64 = 29e-6;

#[cfg(test)]
mod tests;
