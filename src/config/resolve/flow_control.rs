//! Validates `flowControl`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use crate::config::defaults::{
    ADAPTIVE, FLOW_CONTROL, GATEWAY_FLOW_CONTROL, HTTP1_SEATS_MAX, SEATS_MAX, SEATS_MIN,
    SEATS_PER_SERVER,
};
use crate::config::file::{
    FlowControlSection, FlowLevelSection, FlowLimitsSection, FlowRuleSection,
};
use crate::config::resolve::problems::Collector;
use crate::config::units::parse_bytes;
use crate::config::{FlowControlConfig, FlowControlMode, FlowOverlay, Mode};
use crate::flow::level::PriorityLevel;
use crate::flow::policies::Policies;
use crate::flow::rate_limit::Rate;
use crate::flow::rules::{AgentPattern, FlowBy, Limits, RankedLevel, Rule, rank};

pub(super) fn flow_control(
    section: FlowControlSection,
    mode: Mode,
    http2: bool,
    problems: &mut Collector,
) -> FlowControlConfig {
    let seats_max = if http2 { SEATS_MAX } else { HTTP1_SEATS_MAX };
    let seats_per_server = section.seats_per_server.unwrap_or(SEATS_PER_SERVER.min(seats_max));
    let default = match mode {
        Mode::Sidecar => FLOW_CONTROL,
        Mode::Gateway => GATEWAY_FLOW_CONTROL,
    };
    let FlowControlSection { levels, rules, mode: given, adaptive, .. } = section;
    let overlay = FlowOverlay {
        levels: compile(&levels, "levels", problems, level),
        rules: compile(&rules, "rules", problems, |rule| compile_rule(rule, mode)),
        written_levels: levels,
        written_rules: rules,
    };
    let mut config =
        FlowControlConfig { mode: default, seats_per_server, adaptive: ADAPTIVE, overlay };
    problems.parsed("flowControl.mode", given, &mut config.mode);
    problems.parsed("flowControl.adaptive", adaptive, &mut config.adaptive);
    if !(SEATS_MIN..=seats_max).contains(&seats_per_server) {
        let why = if http2 { "" } else { ": HTTP/1.1 has no more places (upstream.http2)" };
        let text = format!("must be {SEATS_MIN} to {seats_max}{why}");
        problems.add("flowControl.seatsPerServer", text);
    }
    if config.mode == FlowControlMode::Off && !config.overlay.rules.is_empty() {
        problems.add("flowControl.rules", "need flowControl.mode observe or enforce");
    }
    config
}

/// Compiles the members of a list, which have distinct names.
fn compile<S: Named, T>(
    sections: &[S],
    list: &str,
    problems: &mut Collector,
    compile: impl Fn(&S) -> Result<T, Mistake>,
) -> Vec<T> {
    let mut compiled = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let path = format!("flowControl.{list}[{index}]");
        let before = sections.get(..index).unwrap_or_default();
        if section.name().is_empty() {
            problems.add(format!("{path}.name"), "is empty");
        } else if before.iter().any(|other| other.name() == section.name()) {
            problems.add(format!("{path}.name"), "is the name of another one");
        }
        match compile(section) {
            Ok(rule) => compiled.push(rule),
            Err(Mistake { field, problem }) => problems.add(format!("{path}.{field}"), problem),
        }
    }
    if sections.len() > LIST_MAX {
        problems.add(format!("flowControl.{list}"), format!("has more than {LIST_MAX} members"));
    }
    compiled
}

/// What is wrong with a field of a section.
struct Mistake {
    field: &'static str,
    problem: String,
}

fn mistake(field: &'static str, problem: impl Into<String>) -> Mistake {
    Mistake { field, problem: problem.into() }
}

trait Named {
    fn name(&self) -> &str;
}

impl Named for FlowLevelSection {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for FlowRuleSection {
    fn name(&self) -> &str {
        &self.name
    }
}

fn level(section: &FlowLevelSection) -> Result<RankedLevel, Mistake> {
    let object = json!({
        "metadata": { "name": section.name },
        "spec": { "type": "Limited", "limited": section.limited },
    });
    let level = PriorityLevel::parse(object.to_string().as_bytes())
        .map_err(|error| mistake("limited", error.to_string()))?;
    Ok(RankedLevel { level, rank: rank(section.rank.as_deref().unwrap_or("catch-all")) })
}

fn compile_rule(section: &FlowRuleSection, mode: Mode) -> Result<Rule, Mistake> {
    let policies = json_of(&section.r#match);
    let policies = (!section.r#match.is_empty())
        .then(|| Policies::parse(policies.as_bytes()))
        .transpose()
        .map_err(|error| mistake("match", error.to_string()))?;
    let agents = section.user_agents.iter().map(|text| AgentPattern::parse(text));
    let agents = agents.collect::<Result<_, _>>().map_err(|text| mistake("userAgents", text))?;
    let limits = section.limits.as_ref().map(limits).transpose()?.unwrap_or_default();
    let denies = one_of("action", section.action.as_deref(), &[("deny", true)], false)?;
    let level: Option<Arc<str>> = section.level.as_deref().map(Into::into);
    if level.is_some() && mode == Mode::Sidecar {
        return Err(mistake("level", "needs authentication.mode gateway"));
    }
    if !denies && limits == Limits::default() && level.is_none() {
        return Err(mistake("name", "is of a rule without action, limits and level"));
    }
    let modes = [("enforce", true), ("observe", false)];
    let scopes = [("all", false), ("upstream", true)];
    let by = [
        ("ByUser", FlowBy::User),
        ("ByNamespace", FlowBy::Namespace),
        ("ByUserAgent", FlowBy::UserAgent),
        ("ByUserAndAgent", FlowBy::UserAndAgent),
        ("None", FlowBy::Nothing),
    ];
    Ok(Rule {
        name: section.name.as_str().into(),
        policies,
        agents,
        enforces: one_of("mode", section.mode.as_deref(), &modes, true)?,
        is_upstream_only: one_of("scope", section.scope.as_deref(), &scopes, false)?,
        denies,
        limits,
        flow_by: one_of("distinguisher", section.distinguisher.as_deref(), &by, FlowBy::User)?,
        level,
    })
}

fn limits(section: &FlowLimitsSection) -> Result<Limits, Mistake> {
    let bytes = |field, text: &Option<String>| {
        let bytes = text.as_deref().map(parse_bytes).transpose();
        bytes
            .map_err(|problem| mistake(field, problem))
            .map(|bytes| bytes.map(|number| number as u64))
    };
    let rate = |per_second: u64, burst| Rate { per_second, burst };
    let forbids = section.unpaged_lists.as_deref() == Some("forbid");
    let unpaged = section.unpaged_lists.clone().filter(|_| !forbids);
    let unpaged = bytes("limits.unpagedLists", &unpaged)?;
    let limits = Limits {
        requests: section
            .requests_per_second
            .map(|per_second| rate(per_second, section.burst.unwrap_or(per_second))),
        bytes: bytes("limits.bytesPerSecond", &section.bytes_per_second)?
            .map(|per_second| rate(per_second, per_second)),
        watches: section.watches,
        unpaged_bytes: if forbids { Some(0) } else { unpaged },
    };
    if section.burst.is_some() && section.requests_per_second.is_none() {
        return Err(mistake("limits.burst", "needs requestsPerSecond"));
    }
    let is_none = |rate: Rate| rate.per_second == 0 || rate.burst == 0;
    if limits.requests.is_some_and(is_none) {
        return Err(mistake("limits.requestsPerSecond", "and burst must be at least 1"));
    }
    if limits.bytes.is_some_and(is_none) {
        return Err(mistake("limits.bytesPerSecond", "must be at least 1"));
    }
    Ok(limits)
}

fn one_of<T: Copy>(
    field: &'static str,
    given: Option<&str>,
    values: &[(&str, T)],
    default: T,
) -> Result<T, Mistake> {
    let Some(given) = given else { return Ok(default) };
    let value = values.iter().find(|(name, _)| *name == given).map(|(_, value)| *value);
    let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
    value.ok_or_else(|| mistake(field, format!("must be {}", names.join(" or "))))
}

/// Returns the JSON of a section. Sections are plain data, which JSON can always hold.
fn json_of(section: &impl Serialize) -> String {
    serde_json::to_string(section).unwrap_or_default()
}

/// The most levels, and the most rules.
const LIST_MAX: usize = 1_000;
