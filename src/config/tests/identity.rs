//! The settings of a gateway: accepted and rejected values, by mode.

use std::time::Duration;

use super::{parse, resolve};
use crate::config::resolve::{Overrides, Problems};
use crate::config::*;

fn gateway(rest: &str) -> Result<Config, Problems> {
    resolve(&format!("authentication:\n  mode: gateway\n{rest}"))
}

fn paths(result: Result<Config, Problems>) -> Vec<String> {
    let Problems(problems) = result.unwrap_err();
    problems.into_iter().map(|problem| problem.path).collect()
}

/// No setting in it has its default.
pub(super) fn full_config() -> Config {
    let full = super::full_config();
    let strings = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Config {
        server: ServerConfig {
            listeners: vec![ListenerConfig::Tls {
                address: "0.0.0.0:6443".parse().unwrap(),
                certificate: CertificateConfig::Generated { names: strings(&["weir"]) },
                proxies: ProxyNetworks::default(),
            }],
            allowed_hosts: Vec::new(),
            ..full.server
        },
        authentication: AuthenticationConfig {
            mode: Mode::Gateway,
            client_ca: Some("/ca".into()),
            request_header: Some(RequestHeaderConfig {
                ca: "/front-proxy-ca".into(),
                allowed_names: strings(&["aggregator"]),
                username_headers: strings(&["X-User", "x-other-user"]),
                uid_headers: Vec::new(),
                group_headers: strings(&["X-Group"]),
                extra_header_prefixes: strings(&["X-Extra-"]),
            }),
            anonymous: Anonymous::Authorize,
            token_audiences: strings(&["https://kubernetes.default.svc"]),
            token_ttl: Duration::ZERO,
            token_failure_ttl: defaults::TOKEN_FAILURE_TTL,
            front_proxy: Some(FrontProxyConfig { certificate: "/c".into(), key: "/k".into() }),
            impersonate: false,
        },
        authorization: AuthorizationConfig {
            allow_ttl: Duration::from_secs(1),
            deny_ttl: Duration::from_secs(1),
            watch_recheck: None,
            watch_reviews_per_second: 7,
            stale_decision_grace: Duration::from_secs(24 * 3600),
            rbac: Some(RbacConfig { check_one_in: 7 }),
        },
        audit: AuditConfig {
            output: Some(AuditOutput::File("/var/log/weir/audit.log".into())),
            buffer: AuditBuffer::Dropping,
            rules: vec![
                AuditRule {
                    level: AuditLevel::None,
                    users: strings(&["system:kube-proxy"]),
                    user_groups: strings(&["system:nodes"]),
                    verbs: strings(&["watch"]),
                    namespaces: strings(&["", "kube-system"]),
                    resources: vec![AuditResources {
                        group: String::new(),
                        resources: strings(&["pods", "*/status"]),
                        resource_names: strings(&["a"]),
                    }],
                    non_resource_urls: Vec::new(),
                },
                AuditRule {
                    level: AuditLevel::Metadata,
                    non_resource_urls: strings(&["/version", "/openapi/*"]),
                    ..AuditRule::default()
                },
            ],
        },
        flow_control: FlowControlConfig {
            mode: FlowControlMode::Off,
            seats_per_server: 100,
            ..Config::default().flow_control
        },
        ..full
    }
}

#[test]
fn the_gateway_example_has_every_default() {
    let text = include_str!("../../../config/gateway.yaml");
    let file = file::ConfigFile::parse("config/gateway.yaml", text).unwrap();
    let config = Config::resolve(file, Overrides::default()).unwrap();
    let authentication =
        AuthenticationConfig { mode: Mode::Gateway, ..AuthenticationConfig::default() };
    assert_eq!(config.authentication, authentication, "every default is written out");
    assert_eq!(config.authorization, AuthorizationConfig::default());
    let ServerConfig { shutdown_delay, shutdown_timeout, .. } = config.server;
    let defaults = gateway("").unwrap().server;
    assert_eq!(shutdown_delay, defaults.shutdown_delay);
    assert_eq!(shutdown_timeout, defaults.shutdown_timeout);
    assert_eq!(config.flow_control, gateway("").unwrap().flow_control);
    assert_eq!(config.audit.output, Some(AuditOutput::Stdout));
    assert_eq!(config.audit.rules.last(), Some(&AuditRule::default()));

    // The commented-out settings are valid too.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("  # ") {
            Some(rest) if is_setting(rest) => format!("  {rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let file = file::ConfigFile::parse("uncommented", &uncommented).unwrap();
    let config = Config::resolve(file, Overrides::default()).unwrap().authentication;
    assert!(config.client_ca.is_some() && config.front_proxy.is_some());
    assert_eq!(config.request_header.unwrap().username_headers, [defaults::USERNAME_HEADER]);
}

/// New connections reach a gateway until the endpoints no longer name it.
#[test]
fn a_gateway_waits_before_it_drains_and_a_sidecar_does_not() {
    let server = gateway("").unwrap().server;
    assert!(server.shutdown_delay >= Duration::from_secs(5));
    assert_eq!(ServerConfig::default().shutdown_delay, Duration::ZERO);
    for server in [server, ServerConfig::default()] {
        let all = server.shutdown_delay + server.shutdown_timeout;
        assert!(all < Duration::from_secs(30), "the kubelet kills a pod after 30 s by default");
    }
    let set = "server: { shutdownDelay: 0s, shutdownTimeout: 120s }\n";
    let server = gateway(set).unwrap().server;
    assert_eq!(server.shutdown_delay, Duration::ZERO);
    assert_eq!(server.shutdown_timeout, Duration::from_secs(120));
}

fn is_setting(line: &str) -> bool {
    line.split_once(':').is_some_and(|(key, rest)| {
        let key = key.trim_start();
        let more = rest.is_empty() || rest.starts_with([' ', '\t']);
        more && !key.is_empty()
            && key.chars().all(char::is_alphanumeric)
            && !rest.contains(". ")
            && (rest.is_empty() || rest.starts_with(" /") || rest.starts_with(" ["))
    })
}

#[test]
fn a_sidecar_has_no_settings_of_a_gateway() {
    let result = resolve(
        "authentication:\n  mode: sidecar\n  clientCAFile: /a\n  anonymous: refuse\n  tokens: {ttl: 1s}\n  impersonate: true\n\
         authorization: {allowTTL: 1s}\naudit: {output: stdout}\n",
    );
    assert_eq!(
        paths(result),
        [
            "authentication.clientCAFile",
            "authentication.anonymous",
            "authentication.tokens",
            "authentication.impersonate",
            "authorization",
            "audit",
        ]
    );
    assert_eq!(resolve("authentication:\nauthorization:\naudit:\n").unwrap(), Config::default());
}

#[test]
fn only_a_gateway_with_tls_listens_on_the_network() {
    let listen = |mode: &str, url: &str| {
        resolve(&format!(
            "authentication: {{mode: {mode}}}\nserver: {{listeners: [{{listen: '{url}'}}]}}\n"
        ))
    };
    assert!(listen("gateway", "https://0.0.0.0:6443").is_ok());
    assert!(listen("gateway", "http://127.0.0.1:8001").is_ok());
    for (mode, url) in [("gateway", "http://0.0.0.0:8001"), ("sidecar", "https://0.0.0.0:6443")] {
        assert_eq!(paths(listen(mode, url)), ["server.listeners[0].listen"]);
    }
    let flags =
        || Overrides { listen: vec!["https://0.0.0.0:1".parse().unwrap()], ..Overrides::default() };
    let with_flags = |body: &str| Config::resolve(parse(body).unwrap(), flags());
    assert_eq!(paths(with_flags("")), ["--listen[0]"]);
    assert!(with_flags("authentication: {mode: gateway}\n").is_ok());
    assert_eq!(paths(gateway("server: {allowedHosts: [a]}\n")), ["server.allowedHosts"]);
}

#[test]
fn contradictory_settings_are_refused() {
    let body = r"
  requestHeader:
    usernameHeaders: []
    uidHeaders: [Host]
    groupHeaders: ['X Group']
    extraHeaderPrefixes: [C, X-Remote-Extra-]
    allowedNames: ['']
  anonymous: never
  tokens: {ttl: 61m, audiences: ['']}
  frontProxy: {certificateFile: /a, privateKeyFile: /b}
  impersonate: true
authorization:
  allowTTL: 2h
  watchRecheck: 0s
  watchReviewsPerSecond: 0
  staleDecisionGrace: 25h
  rbac: {enabled: true, checkOneIn: 0}
audit:
  output: audit.log
  buffer: fast
  policy:
    rules:
      - users: [a]
      - level: RequestResponse
      - level: None
        namespaces: [a]
        nonResourceURLs: [/a, a, '/*/b', '*']
        resources: [{group: apps/v1}, {resourceNames: [a]}]
";
    assert_eq!(
        paths(gateway(body)),
        [
            "authentication.requestHeader.uidHeaders[0]",
            "authentication.requestHeader.groupHeaders[0]",
            "authentication.requestHeader.extraHeaderPrefixes[0]",
            "authentication.requestHeader.usernameHeaders",
            "authentication.requestHeader.allowedNames[0]",
            "authentication.requestHeader.clientCAFile",
            "authentication.anonymous",
            "authentication.tokens.audiences[0]",
            "authentication.tokens.ttl",
            "authentication.impersonate",
            "authorization.allowTTL",
            "authorization.staleDecisionGrace",
            "authorization.watchRecheck",
            "authorization.watchReviewsPerSecond",
            "authorization.rbac.checkOneIn",
            "audit.output",
            "audit.buffer",
            "audit.policy.rules[0].level",
            "audit.policy.rules[1].level",
            "audit.policy.rules[2].nonResourceURLs",
            "audit.policy.rules[2].resources[0].group",
            "audit.policy.rules[2].resources[1].resourceNames",
            "audit.policy.rules[2].nonResourceURLs[1]",
            "audit.policy.rules[2].nonResourceURLs[2]",
        ]
    );
    assert_eq!(
        paths(gateway("  frontProxy: {certificateFile: /a}\n")),
        ["authentication.frontProxy.privateKeyFile"]
    );
    assert_eq!(paths(resolve("authentication: {mode: open}\n")), ["authentication.mode"]);
}

/// An output without rules would be an empty log, which looks as if nothing had happened.
#[test]
fn an_audit_output_without_rules_gets_everything() {
    let audit = gateway("audit: {output: stdout}\n").unwrap().audit;
    assert_eq!(audit.rules, [AuditRule::default()]);
    assert_eq!(AuditRule::default().level, AuditLevel::Metadata);
    assert!(gateway("audit: {buffer: dropping}\n").unwrap().audit.rules.is_empty());
}

#[test]
fn rbac_is_off_unless_enabled() {
    assert_eq!(
        gateway("authorization: {rbac: {checkOneIn: 5}}\n").unwrap().authorization.rbac,
        None
    );
    let on = gateway("authorization: {rbac: {enabled: true}}\n").unwrap().authorization.rbac;
    assert_eq!(on, Some(RbacConfig { check_one_in: defaults::RBAC_CHECK_ONE_IN }));
}
