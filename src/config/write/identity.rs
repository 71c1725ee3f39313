//! Writes `authentication`, `authorization` and `audit`. In sidecar mode only the mode is written:
//! the other settings have no effect there, and [`resolve`](crate::config::resolve) would reject
//! them.

use crate::config::file::{
    AuditSection, AuthenticationSection, AuthorizationSection, FrontProxySection,
    GroupResourcesSection, PolicySection, RbacSection, RequestHeaderSection, RuleSection,
    TokensSection,
};
use crate::config::units::format_duration;
use crate::config::{
    AuditConfig, AuditOutput, AuditRule, AuthenticationConfig, AuthorizationConfig, Config, Mode,
    RequestHeaderConfig,
};

pub(super) fn authentication(config: &AuthenticationConfig) -> AuthenticationSection {
    let mode = Some(config.mode.to_string());
    if config.mode == Mode::Sidecar {
        return AuthenticationSection { mode, ..AuthenticationSection::default() };
    }
    AuthenticationSection {
        mode,
        client_ca_file: config.client_ca.clone(),
        request_header: config.request_header.as_ref().map(request_header),
        anonymous: Some(config.anonymous.to_string()),
        tokens: Some(TokensSection {
            audiences: Some(config.token_audiences.clone()),
            ttl: Some(format_duration(config.token_ttl)),
        }),
        front_proxy: config.front_proxy.as_ref().map(|front_proxy| FrontProxySection {
            certificate_file: Some(front_proxy.certificate.clone()),
            private_key_file: Some(front_proxy.key.clone()),
        }),
        impersonate: Some(config.impersonate),
    }
}

fn request_header(config: &RequestHeaderConfig) -> RequestHeaderSection {
    RequestHeaderSection {
        client_ca_file: Some(config.ca.clone()),
        allowed_names: Some(config.allowed_names.clone()),
        username_headers: Some(config.username_headers.clone()),
        uid_headers: Some(config.uid_headers.clone()),
        group_headers: Some(config.group_headers.clone()),
        extra_header_prefixes: Some(config.extra_header_prefixes.clone()),
    }
}

/// `None` in sidecar mode.
pub(super) fn authorization(config: &Config) -> Option<AuthorizationSection> {
    (config.authentication.mode == Mode::Gateway).then(|| {
        let AuthorizationConfig {
            allow_ttl,
            deny_ttl: _,
            watch_recheck,
            watch_reviews_per_second,
            stale_decision_grace,
            rbac,
        } = &config.authorization;
        AuthorizationSection {
            allow_ttl: Some(format_duration(*allow_ttl)),
            watch_recheck: Some(watch_recheck.map_or_else(|| "never".to_owned(), format_duration)),
            watch_reviews_per_second: Some(*watch_reviews_per_second),
            stale_decision_grace: Some(format_duration(*stale_decision_grace)),
            rbac: Some(RbacSection {
                enabled: Some(rbac.is_some()),
                check_one_in: rbac.as_ref().map(|rbac| rbac.check_one_in),
            }),
        }
    })
}

/// `None` in sidecar mode.
pub(super) fn audit(config: &Config) -> Option<AuditSection> {
    (config.authentication.mode == Mode::Gateway).then(|| {
        let AuditConfig { output, buffer, rules } = &config.audit;
        let output = output.as_ref().map_or_else(|| "none".to_owned(), AuditOutput::to_string);
        AuditSection {
            output: Some(output),
            buffer: Some(buffer.to_string()),
            policy: Some(PolicySection { rules: Some(rules.iter().map(rule).collect()) }),
        }
    })
}

fn rule(rule: &AuditRule) -> RuleSection {
    let resources = rule.resources.iter().map(|resources| GroupResourcesSection {
        group: resources.group.clone(),
        resources: resources.resources.clone(),
        resource_names: resources.resource_names.clone(),
    });
    RuleSection {
        level: Some(rule.level.to_string()),
        users: rule.users.clone(),
        user_groups: rule.user_groups.clone(),
        verbs: rule.verbs.clone(),
        namespaces: rule.namespaces.clone(),
        resources: resources.collect(),
        non_resource_urls: rule.non_resource_urls.clone(),
    }
}
