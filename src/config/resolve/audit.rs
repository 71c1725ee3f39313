//! Validates `audit`. The policy is that of audit.k8s.io/v1 (apiserver
//! `pkg/apis/audit/validation`), without the levels that Weir never logs.

use crate::config::file::{AuditSection, GroupResourcesSection, RuleSection};
use crate::config::parse::identity::audit_output;
use crate::config::resolve::identity::gateway_only;
use crate::config::resolve::problems::Collector;
use crate::config::{AuditConfig, AuditLevel, AuditResources, AuditRule, Mode};

/// Validates `audit`; `section` is `None` if the file does not have it.
pub(super) fn audit(
    section: Option<AuditSection>,
    mode: Mode,
    problems: &mut Collector,
) -> AuditConfig {
    let mut config = AuditConfig::default();
    let Some(section) = section else { return config };
    if mode == Mode::Sidecar {
        gateway_only("audit", problems);
        return config;
    }
    problems.take(
        "audit.output",
        section.output,
        |text| audit_output(&text),
        |output| config.output = output,
    );
    problems.parsed("audit.buffer", section.buffer, &mut config.buffer);
    let rules = section.policy.unwrap_or_default().rules.unwrap_or_default();
    for (index, section) in rules.into_iter().enumerate() {
        let path = format!("audit.policy.rules[{index}]");
        config.rules.push(rule(&path, section, problems));
    }
    // An output without rules logs everything: an empty log would surprise the operator.
    if config.output.is_some() && config.rules.is_empty() {
        config.rules.push(AuditRule::default());
    }
    config
}

fn rule(path: &str, section: RuleSection, problems: &mut Collector) -> AuditRule {
    let mut level = AuditLevel::default();
    match section.level {
        None => problems.add(format!("{path}.level"), "is missing: None or Metadata"),
        written => problems.parsed(&format!("{path}.level"), written, &mut level),
    }
    let of_resources = !section.resources.is_empty() || !section.namespaces.is_empty();
    if of_resources && !section.non_resource_urls.is_empty() {
        problems.add(
            format!("{path}.nonResourceURLs"),
            "a rule matches either resources and namespaces, or other paths",
        );
    }
    let mut resources = Vec::with_capacity(section.resources.len());
    for (index, section) in section.resources.into_iter().enumerate() {
        resources.push(group_resources(&format!("{path}.resources[{index}]"), section, problems));
    }
    AuditRule {
        level,
        users: section.users,
        user_groups: section.user_groups,
        verbs: section.verbs,
        namespaces: section.namespaces,
        resources,
        non_resource_urls: problems.list(
            &format!("{path}.nonResourceURLs"),
            section.non_resource_urls,
            non_resource_url,
        ),
    }
}

fn group_resources(
    path: &str,
    section: GroupResourcesSection,
    problems: &mut Collector,
) -> AuditResources {
    let GroupResourcesSection { group, resources, resource_names } = section;
    if group.contains('/') {
        problems.add(format!("{path}.group"), "must be the name of a group, without a version");
    }
    if !resource_names.is_empty() && resources.is_empty() {
        problems.add(format!("{path}.resourceNames"), "needs resources beside it");
    }
    AuditResources { group, resources, resource_names }
}

fn non_resource_url(text: String) -> Result<String, String> {
    let stem = text.strip_suffix('*').unwrap_or(&text);
    if text == "*" || (stem.starts_with('/') && !stem.contains('*')) {
        Ok(text)
    } else {
        Err(format!("expected a path such as /version or /openapi/*, not {text:?}"))
    }
}
