//! `flowControl`. The parts of its rules that FlowSchemas have, too, have the same field names;
//! unlike there, an unknown field is an error.

use std::sync::Arc;

use serde_json::Value;

use crate::config::file::Node;
use crate::config::identity::Mode;
use crate::config::kinds::{Kind, List, Maybe, Member, Required, Shape};
use crate::config::reader::Reader;
use crate::config::scalars::{Flag, Number, Parsed, Plain, Size, Word, words};
use crate::config::section::section;
use crate::config::units::parse_bytes;
use crate::flow::classify::Policies;
use crate::flow::rate_limit::Rate;
use crate::flow::rules::{AgentPattern, FlowBy, Limits, Rule};

section! {
    /// The classes of requests, and what follows from them.
    pub struct FlowControlConfig {
        /// off: nothing. observe: the costs of requests are added up, and none is delayed or
        /// refused. enforce: forwarded requests also wait for seats of the API server, in fair
        /// queues (docs/priority-levels.md). A gateway's default is enforce. A sidecar has one
        /// priority level, and keeps to seatsPerServer in every mode.
        // A sidecar has one user, so that nobody waits for somebody else; it costs about 1 % of a
        // GET from the cache (docs/decisions/client-costs.md), and `weir doctor` needs it.
        restart mode: FlowControlMode = FlowControlMode::Observe, Word;

        /// Seats of one API server that forwarded requests may take, 20 to 1150. Unset, Weir reads
        /// them from the metrics of the API server, if its role may get /metrics, and else assumes
        /// kube-apiserver's default, 600. Without upstream.http2 there are at most 204.
        /// (docs/decisions/adaptive-limits.md)
        restart seats_per_server: Option<u64> = None, Maybe(Number(SEATS_MIN, SEATS_MAX));

        /// Whether an API server that cannot do that much gets fewer requests: one that refuses
        /// some with 429 (observe, enforce), and large lists only as many at once as make no short
        /// request wait there (enforce). off: neither. (docs/decisions/adaptive-limits.md)
        restart adaptive: FlowControlMode = FlowControlMode::Enforce, Word;

        /// Rules for what FlowSchemas cannot say: bans, rates, limits on watches and on lists
        /// without pages, levels by user agent (docs/how-to/overload.md,
        /// docs/decisions/flow-rules.md).
        live rules: Vec<FlowRule> = Vec::new(), List(CompiledRule);
    }
}

section! {
    /// A rule as the file has it.
    pub struct FlowRule {
        /// The name, in metrics and refusals.
        restart name: String = String::new(), Required(Plain);

        /// As spec.rules of a FlowSchema. Without it, every request.
        restart matches["match"]: Vec<FlowMatch> = Vec::new(), List(Member);

        /// First products of User-Agents, such as kubectl/*. Without any, every User-Agent matches.
        restart user_agents: Vec<AgentPattern> = Vec::new(), List(Parsed(agent));

        /// enforce, or observe: the effect is only counted.
        restart mode: RuleMode = RuleMode::Enforce, Word;

        /// all: also requests that a cache answers. upstream: only those that are forwarded.
        restart scope: RuleScope = RuleScope::All, Word;

        /// deny: the requests get 403.
        restart action: Option<RuleAction> = None, Maybe(Word);

        /// Limits of each flow. What is beyond them gets 429 with Retry-After.
        restart limits: FlowLimits = FlowLimits::default(), Member;

        /// The priority level of the cluster in which requests wait that are forwarded (gateway).
        restart level: Option<String> = None, Maybe(Plain);

        /// What tells flows apart, each of which has limits of its own.
        restart distinguisher: FlowBy = FlowBy::User, Word;
    }
}

section! {
    /// The limits of a flow.
    pub struct FlowLimits {
        /// Requests in a second, at least 1.
        restart requests_per_second: Option<u64> = None, Maybe(Number(1, u64::MAX));

        /// Requests that may come at once. The default is requestsPerSecond.
        restart burst: Option<u64> = None, Maybe(Number(1, u64::MAX));

        /// Bytes of responses in a second, such as 10Mi.
        restart bytes_per_second: Option<usize> = None, Maybe(Size);

        /// Open watches.
        restart watches: Option<u32> = None, Maybe(Number(0, u32::MAX as u64));

        /// forbid: lists need a limit. Or a size: so many bytes may be listed without one.
        restart unpaged_lists: Option<String> = None, Maybe(Parsed(unpaged_lists));
    }
}

section! {
    /// A member of `spec.rules` of a FlowSchema.
    pub struct FlowMatch {
        /// The users that the policy is for. One that fits is enough.
        restart subjects: Vec<FlowSubject> = Vec::new(), List(Member);

        /// Requests for resources that the policy is for. One that fits is enough.
        restart resource_rules: Vec<ResourceRule> = Vec::new(), List(Member);

        /// Requests for paths that are no resource's. One that fits is enough.
        restart non_resource_rules: Vec<NonResourceRule> = Vec::new(), List(Member);
    }
}

section! {
    /// A member of `subjects`.
    pub struct FlowSubject {
        /// User, Group or ServiceAccount: the one of the next three fields that counts.
        restart kind: String = String::new(), Required(Plain);

        /// A user, for the kind User.
        restart user: Option<Named> = None, Maybe(Member);

        /// A group, for the kind Group.
        restart group: Option<Named> = None, Maybe(Member);

        /// A service account, for the kind ServiceAccount.
        restart service_account: Option<ServiceAccount> = None, Maybe(Member);
    }
}

section! {
    /// A user or a group.
    pub struct Named {
        /// The name, or * for all.
        restart name: String = String::new(), Required(Plain);
    }
}

section! {
    /// A service account.
    pub struct ServiceAccount {
        /// The service account's namespace.
        restart namespace: String = String::new(), Required(Plain);

        /// The service account's name, or * for all of the namespace.
        restart name: String = String::new(), Required(Plain);
    }
}

section! {
    /// A member of `resourceRules`.
    pub struct ResourceRule {
        /// Verbs such as list and watch, or * for all.
        restart verbs: Vec<String> = Vec::new(), Required(List(Plain));

        /// API groups, an empty text for the core group, or * for all.
        restart api_groups: Vec<String> = Vec::new(), Required(List(Plain));

        /// Resources, also with a subresource (nodes/status), or * for all.
        restart resources: Vec<String> = Vec::new(), Required(List(Plain));

        /// Namespaces of the requests, or * for all. Without it, requests in a namespace do not
        /// match.
        restart namespaces: Vec<String> = Vec::new(), List(Plain);

        /// Whether requests without a namespace match.
        restart cluster_scope: bool = false, Flag;
    }
}

section! {
    /// A member of `nonResourceRules`.
    pub struct NonResourceRule {
        /// Verbs such as get, or * for all.
        restart verbs: Vec<String> = Vec::new(), Required(List(Plain));

        /// Paths such as /healthz or /metrics/*, or * for all.
        restart non_resource_urls["nonResourceURLs"]: Vec<String> = Vec::new(), Required(List(Plain));
    }
}

/// The mode of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControlMode {
    /// Nothing.
    Off,
    /// Requests are classified, and their costs added up. None is delayed or refused.
    Observe,
    /// And forwarded requests wait for seats of the API server, or are refused.
    Enforce,
}

words!(FlowControlMode { Off: "off", Observe: "observe", Enforce: "enforce" });

/// Whether a rule acts, or only counts what it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// It acts.
    Enforce,
    /// It counts.
    Observe,
}

words!(RuleMode { Enforce: "enforce", Observe: "observe" });

/// The requests that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleScope {
    /// All.
    All,
    /// Those that are forwarded.
    Upstream,
}

words!(RuleScope { All: "all", Upstream: "upstream" });

/// The action of a rule besides its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Requests get 403.
    Deny,
}

words!(RuleAction { Deny: "deny" });
words!(FlowBy {
    User: "ByUser",
    Namespace: "ByNamespace",
    UserAgent: "ByUserAgent",
    UserAndAgent: "ByUserAndAgent",
    Nothing: "None"
});

/// A rule that can be compiled.
struct CompiledRule;

impl Kind<FlowRule> for CompiledRule {
    fn shape(&self) -> Option<Shape> {
        Kind::<FlowRule>::shape(&Member)
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<FlowRule> {
        let rule: FlowRule = Member.value(node, reader)?;
        let Err((field, message)) = compile(&rule, Mode::from_gateway_flag(reader.is_gateway))
        else {
            return Some(rule);
        };
        let place = node.get(field).and_then(Node::place).or(node.place());
        reader.inside(field, |reader| reader.add(place, message));
        None
    }

    fn write(&self, value: &FlowRule) -> Value {
        Member.write(value)
    }
}

impl FlowControlConfig {
    /// Returns the rules, in order.
    pub fn compiled_rules(&self) -> Vec<Rule> {
        let compiled = self.rules.iter().map(|rule| compile(rule, Mode::Gateway));
        compiled.filter_map(Result::ok).collect()
    }

    /// Refuses rules that do not belong together or to the mode, and too many seats for HTTP/1.1.
    pub(super) fn check(&self, http2: bool, reader: &mut Reader<'_>) {
        for (index, rule) in self.rules.iter().enumerate() {
            if self.rules.iter().take(index).any(|other| other.name == rule.name) {
                let path = format!("flowControl.rules[{index}].name");
                reader.refuse(path, "is the name of another one");
            }
        }
        if self.rules.len() > RULES_MAX {
            reader.refuse("flowControl.rules", format!("has more than {RULES_MAX} members"));
        }
        if self.mode == FlowControlMode::Off && !self.rules.is_empty() {
            reader.refuse("flowControl.rules", "need flowControl.mode observe or enforce");
        }
        if !http2 && self.seats_per_server.is_some_and(|seats| seats > HTTP1_SEATS_MAX) {
            let text = format!(
                "must be {SEATS_MIN} to {HTTP1_SEATS_MAX}: HTTP/1.1 has no more places (upstream.http2)"
            );
            reader.refuse("flowControl.seatsPerServer", text);
        }
    }

    /// Returns the seats of an API server of which nothing is known.
    pub(crate) fn seats_assumed(&self) -> u64 {
        self.seats_per_server.unwrap_or(SEATS_PER_SERVER)
    }
}

/// Compiles a rule, or returns the field that is wrong and what is wrong with it.
fn compile(rule: &FlowRule, mode: Mode) -> Result<Rule, (&'static str, String)> {
    if rule.name.is_empty() {
        return Err(("name", "is empty".to_owned()));
    }
    let written = List(Member).write(&rule.matches).to_string();
    let policies = (!rule.matches.is_empty()).then(|| Policies::parse(written.as_bytes()));
    let policies = policies.transpose().map_err(|error| ("match", error.to_string()))?;
    let FlowLimits { requests_per_second, burst, bytes_per_second, watches, unpaged_lists } =
        &rule.limits;
    if burst.is_some() && requests_per_second.is_none() {
        return Err(("limits.burst", "needs requestsPerSecond".to_owned()));
    }
    let rate = |per_second: u64, burst| Rate { per_second, burst };
    let unpaged = unpaged_lists.as_deref().map(|text| parse_bytes(text).unwrap_or(0) as u64);
    let limits = Limits {
        requests: requests_per_second.map(|number| rate(number, burst.unwrap_or(number))),
        bytes: bytes_per_second.map(|bytes| rate(bytes as u64, bytes as u64)),
        watches: *watches,
        unpaged_bytes: unpaged,
    };
    let denies = rule.action == Some(RuleAction::Deny);
    let level: Option<Arc<str>> = rule.level.as_deref().map(Into::into);
    if level.is_some() && mode == Mode::Sidecar {
        return Err(("level", "needs authentication.mode gateway".to_owned()));
    }
    if !denies && limits == Limits::default() && level.is_none() {
        return Err(("name", "is of a rule without action, limits and level".to_owned()));
    }
    Ok(Rule {
        name: rule.name.as_str().into(),
        policies,
        agents: rule.user_agents.clone().into(),
        enforces: rule.mode == RuleMode::Enforce,
        is_upstream_only: rule.scope == RuleScope::Upstream,
        denies,
        limits,
        flow_by: rule.distinguisher,
        level,
    })
}

fn agent(text: &str) -> Result<AgentPattern, String> {
    AgentPattern::parse(text).map_err(|message| format!("{text:?} {message}"))
}

fn unpaged_lists(text: &str) -> Result<String, String> {
    if text != "forbid" {
        parse_bytes(text)?;
    }
    Ok(text.to_owned())
}

/// A gateway has many users, of whom one must not take the API server from the others. Nobody waits
/// while there are seats, so that this costs nothing before it is needed.
pub const GATEWAY_FLOW_CONTROL: FlowControlMode = FlowControlMode::Enforce;

/// kube-apiserver's `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
pub const SEATS_PER_SERVER: u64 = 600;
/// Fewer leave no part to the smallest priority level.
const SEATS_MIN: u64 = 20;
/// More than 8 of 10 places for requests on the connections to one API server (1,440) would make
/// the pool of connections the queue, which is not fair.
pub const SEATS_MAX: u64 = 1150;
/// The same for HTTP/1.1, whose connections have 256 places.
pub const HTTP1_SEATS_MAX: u64 = 204;
/// The most rules.
const RULES_MAX: usize = 1_000;
