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

/// New connections reach a gateway until the endpoints no longer name it.
#[test]
fn a_gateway_waits_before_it_drains_and_a_sidecar_does_not() {
    let server = gateway("").unwrap().server;
    assert!(server.shutdown_delay >= Duration::from_secs(5));
    assert_eq!(ServerConfig::default().shutdown_delay, Duration::ZERO);
    for server in [server, ServerConfig::default()] {
        let total = server.shutdown_delay + server.shutdown_timeout;
        assert!(total < Duration::from_secs(30), "the kubelet kills a pod after 30 s by default");
    }
    let set = "server: { shutdownDelay: 0s, shutdownTimeout: 120s }\n";
    let server = gateway(set).unwrap().server;
    assert_eq!(server.shutdown_delay, Duration::ZERO);
    assert_eq!(server.shutdown_timeout, Duration::from_secs(120));
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
    allowedNames: ['']
    groupHeaders: ['X Group']
  anonymous: never
  tokens: {ttl: 61m, audiences: ['']}
  frontProxy: {certificateFile: /a}
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
        nonResourceURLs: [/a, a, '/*/b', '*']
        resources: [{group: apps/v1}]
";
    let mut actual = paths(gateway(body));
    let mut expected = [
        "authentication.requestHeader.allowedNames[0]",
        "authentication.requestHeader.groupHeaders",
        "authentication.requestHeader.clientCAFile",
        "authentication.anonymous",
        "authentication.tokens.audiences[0]",
        "authentication.tokens.ttl",
        "authentication.frontProxy.privateKeyFile",
        "authorization.allowTTL",
        "authorization.staleDecisionGrace",
        "authorization.watchRecheck",
        "authorization.watchReviewsPerSecond",
        "authorization.rbac.checkOneIn",
        "audit.output",
        "audit.buffer",
        "audit.policy.rules[0].level",
        "audit.policy.rules[1].level",
        "audit.policy.rules[2].resources[0].group",
        "audit.policy.rules[2].nonResourceURLs[1]",
        "audit.policy.rules[2].nonResourceURLs[2]",
    ];
    actual.sort_unstable();
    expected.sort_unstable();
    assert_eq!(actual, expected);
    let both = "  frontProxy: {certificateFile: /a, privateKeyFile: /b}\n  impersonate: true\n";
    assert_eq!(paths(gateway(both)), ["authentication.impersonate"]);
    let rule = "audit:\n  policy:\n    rules:\n      - level: None\n        namespaces: [a]\n        nonResourceURLs: [/a]\n        resources: [{resourceNames: [a]}]\n";
    assert_eq!(
        paths(gateway(rule)),
        [
            "audit.policy.rules[0].nonResourceURLs",
            "audit.policy.rules[0].resources[0].resourceNames"
        ]
    );
}

/// An output without rules would be an empty log, which looks as if nothing had happened.
#[test]
fn an_audit_output_without_rules_gets_everything() {
    let audit = gateway("audit: {output: stdout}\n").unwrap().audit;
    assert_eq!(audit.policy.rules, [AuditRule::default()]);
    assert_eq!(AuditRule::default().level, AuditLevel::Metadata);
    assert!(gateway("audit: {buffer: dropping}\n").unwrap().audit.policy.rules.is_empty());
}

/// A sidecar's clients are seen by `weir doctor` without a file, and a gateway's wait.
#[test]
fn flow_control_is_on_by_default() {
    assert_eq!(resolve("").unwrap().flow_control.mode, FlowControlMode::Observe);
    let gateway = resolve("authentication: { mode: gateway }\n").unwrap();
    assert_eq!(gateway.flow_control.mode, FlowControlMode::Enforce);
}
