//! Validates `cache`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::file::{CacheSection, DropRuleSection};
use crate::config::memory::fit_cache;
use crate::config::parse::warm_resource;
use crate::config::resolve::problems::{Collector, between};
use crate::config::{CacheConfig, DropRule, ResourcePattern};
use crate::flow::rules::AgentPattern;

/// Validates `cache`.
pub(super) fn cache(
    section: CacheSection,
    memory_limit: Option<u64>,
    problems: &mut Collector,
) -> CacheConfig {
    let mut config = CacheConfig::default();
    if let Some(limit) = memory_limit {
        fit_cache(&mut config, limit);
    }
    let pattern = |text: String| text.parse::<ResourcePattern>();
    if let Some(include) = section.include {
        config.include = problems.list("cache.include", include, pattern);
    }
    if let Some(exclude) = section.exclude {
        config.exclude = problems.list("cache.exclude", exclude, pattern);
    }
    if let Some(warm) = section.warm {
        config.warm = problems.list("cache.warm", warm, |text| warm_resource(&text));
    }
    for (index, gvr) in config.warm.iter().enumerate() {
        let path = || format!("cache.warm[{index}]");
        if config.exclude.iter().any(|pattern| pattern.matches(gvr)) {
            problems.add(path(), format!("{gvr} is excluded by cache.exclude"));
        } else if !config.include.is_empty() && !config.include.iter().any(|rule| rule.matches(gvr))
        {
            problems.add(path(), format!("{gvr} is not among cache.include"));
        }
    }
    problems.duration("cache.idleTimeout", section.idle_timeout, &mut config.idle_timeout);
    budgets(
        problems.bytes("cache.totalBytesMax", section.total_bytes_max),
        problems.bytes("cache.resourceBytesMax", section.resource_bytes_max),
        problems.bytes("cache.historyBytesMax", section.history_bytes_max),
        &mut config,
        problems,
    );
    let gzip_bytes_max = problems.bytes("cache.gzipBytesMax", section.gzip_bytes_max);
    config.gzip_bytes_max = gzip_bytes_max.unwrap_or(config.gzip_bytes_max);
    problems.take(
        "cache.onRelist",
        section.on_relist,
        |text| text.parse(),
        |on_relist| config.on_relist = on_relist,
    );
    config.forward_budget = section.forward_budget.unwrap_or(config.forward_budget);
    let consistent_lists = &mut config.consistent_lists;
    problems.parsed("cache.consistentLists", section.consistent_lists, consistent_lists);
    problems.parsed("cache.verify", section.verify, &mut config.verify);
    problems.take("cache.maxStaleness", section.max_staleness, staleness, |max| {
        config.max_staleness = max;
    });
    if let Some(rules) = section.drop_managed_fields {
        config.drop_managed_fields = problems.list("cache.dropManagedFields", rules, drop_rule);
    }
    if config.forward_budget == 0 {
        problems.add("cache.forwardBudget", "must be more than zero");
    }
    config
}

/// Compiles a rule of `cache.dropManagedFields`. It names its clients: the operator knows what they
/// do with objects.
fn drop_rule(section: DropRuleSection) -> Result<DropRule, String> {
    let agent = |text: &String| match AgentPattern::parse(text) {
        Ok(pattern) if pattern.matches_any() => Err("userAgents may not name all clients".into()),
        Ok(pattern) => Ok(pattern),
        Err(message) => Err(format!("userAgents: {text:?} {message}")),
    };
    let agents: Vec<_> = section.user_agents.iter().map(agent).collect::<Result<_, String>>()?;
    if agents.is_empty() {
        return Err("userAgents names no client".to_owned());
    }
    let resources = section.resources.iter().map(|text| text.parse());
    Ok(DropRule { agents, resources: resources.collect::<Result<_, String>>()? })
}

/// Parses the largest age of an answer; `None` for `never`.
fn staleness(text: String) -> Result<Option<Duration>, String> {
    match text.as_str() {
        "never" => Ok(None),
        text => between(text, &MAX_STALENESS).map(Some),
    }
}

/// The upstream counts as away only after a second. A limit of more than a week is a typing error.
const MAX_STALENESS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

/// Checks that each limit lies within the next larger one. A default shrinks to fit the limits that
/// are set; two limits that are set must agree.
fn budgets(
    total: Option<usize>,
    resource: Option<usize>,
    history: Option<usize>,
    config: &mut CacheConfig,
    problems: &mut Collector,
) {
    let defaults = config.clone();
    let least = resource.max(history).unwrap_or(0);
    let total_bytes = total.unwrap_or_else(|| defaults.total_bytes_max.max(least));
    let resource_bytes = resource
        .unwrap_or_else(|| defaults.resource_bytes_max.max(history.unwrap_or(0)).min(total_bytes));
    let history_bytes = history.unwrap_or_else(|| defaults.history_bytes_max.min(resource_bytes));
    if resource_bytes > total_bytes {
        problems.add("cache.resourceBytesMax", "must not be more than cache.totalBytesMax");
    }
    if history_bytes > resource_bytes {
        problems.add("cache.historyBytesMax", "must not be more than cache.resourceBytesMax");
    }
    config.total_bytes_max = total_bytes;
    config.resource_bytes_max = resource_bytes;
    config.history_bytes_max = history_bytes;
}
