//! Operators' rules: bans, rates, limits on watches and on lists without pages, and levels
//! (`docs/decisions/flow-rules.md`).

use weir::config::file::ConfigFile;
use weir::config::resolve::Overrides;
use weir::config::{Config, FlowControlConfig, FlowControlMode};

use crate::client::{Answer, Call, Watch};
use crate::costs::gateway_of_readers;
use crate::harness::Proxy;
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps";
const CACHED: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0";

/// Returns the section `flowControl` of a gateway's file.
pub(crate) fn section(yaml: &str) -> FlowControlConfig {
    let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
    let gateway = "authentication: {mode: gateway}\nserver: {listeners: [{listen: 'https://127.0.0.1:0', certificate: {certificateFile: a, privateKeyFile: b}}]}\n";
    let file = ConfigFile::parse("test.yaml", &format!("{head}{gateway}{yaml}")).unwrap();
    Config::resolve(file, Overrides::default()).unwrap().flow_control
}

/// Starts a gateway with rules.
async fn gateway(rules: &str) -> Proxy {
    let section = section(&format!("flowControl:\n  mode: enforce\n{rules}"));
    gateway_of_readers(move |config| config.flow_control = section).await
}

fn call_as(token: &str, path: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {token}"))
}

async fn effects(proxy: &Proxy, effect: &str, enforced: &str) -> f64 {
    let labels = [format!("effect=\"{effect}\""), format!("enforced=\"{enforced}\"")];
    let labels = labels.each_ref().map(String::as_str);
    proxy.metric("weir_flowcontrol_rule_effects_total", &labels).await
}

fn assert_shed(answer: &Answer, code: u16, reason: &str) {
    assert_eq!(answer.status, code, "{}", answer.text());
    assert_eq!(answer.headers["x-weir-shed"], reason);
    assert_eq!(answer.headers.contains_key("retry-after"), code == 429);
    assert!(!answer.text().contains("my-rule"), "{}", answer.text());
    let word = if code == 429 { "TooManyRequests" } else { "Forbidden" };
    assert_eq!(answer.json()["reason"], word);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_holds_for_all_that_its_user_sends_and_for_nobody_else() {
    let proxy = gateway(
        "  rules:
  - name: my-rule
    match: [{subjects: [{kind: User, user: {name: alice}}],
      resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], clusterScope: true}],
      nonResourceRules: [{verbs: ['*'], nonResourceURLs: ['*']}]}]
    action: deny
",
    )
    .await;
    for path in [LIST, CACHED, "/api", "/version"] {
        assert_shed(&proxy.call(&call_as("alices", path)).await, 403, "denied");
        assert_eq!(proxy.call(&call_as("bobs", path)).await.status, 200, "{path}");
    }
    assert!(effects(&proxy, "denied", "true").await >= 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_each_users_own_and_counts_cached_answers() {
    let proxy = gateway(
        "  rules:
  - name: my-rule
    limits: {requestsPerSecond: 1, burst: 3}
",
    )
    .await;
    let answers = async |token: &str| {
        let mut answers = Vec::new();
        for path in [LIST, CACHED, CACHED, CACHED, LIST, LIST] {
            answers.push(proxy.call(&call_as(token, path)).await);
        }
        answers
    };
    let alices = answers("alices").await;
    let refused: Vec<_> = alices.iter().filter(|answer| answer.status != 200).collect();
    assert!((1..=3).contains(&refused.len()), "{} were refused", refused.len());
    refused.iter().for_each(|answer| assert_shed(answer, 429, "rate"));
    assert_eq!(refused[0].headers["retry-after"], "1");
    assert!(alices[..3].iter().all(|answer| answer.status == 200), "the burst passes");
    assert_eq!(proxy.call(&call_as("bobs", CACHED)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_observes_refuses_nothing_and_counts() {
    let proxy = gateway(
        "  rules:
  - {name: my-rule, action: deny, mode: observe}
  - {name: other-rule, mode: observe, limits: {unpagedLists: forbid}}
",
    )
    .await;
    for path in [LIST, CACHED] {
        assert_eq!(proxy.call(&call_as("alices", path)).await.status, 200);
    }
    assert_eq!(effects(&proxy, "denied", "false").await, 2.0);
    assert_eq!(effects(&proxy, "unpaged", "false").await, 2.0);
    assert_eq!(effects(&proxy, "denied", "true").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_a_rule_refuses_is_charged_no_seats() {
    let proxy =
        gateway("  rules: [{name: my-rule, scope: upstream, limits: {unpagedLists: forbid}}]\n")
            .await;
    for _ in 0..10 {
        assert_shed(&proxy.call(&call_as("alices", LIST)).await, 403, "unpaged");
    }
    let schema = ["flow_schema=\"global-default\""];
    assert!(proxy.metric("weir_flowcontrol_requests_total", &schema).await >= 10.0);
    assert_eq!(proxy.metric("weir_flowcontrol_seat_seconds_total", &schema).await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_without_pages_are_refused_where_they_would_be_forwarded() {
    let proxy = gateway(
        "  rules:
  - name: my-rule
    scope: upstream
    limits: {unpagedLists: forbid}
",
    )
    .await;
    assert_shed(&proxy.call(&call_as("alices", LIST)).await, 403, "unpaged");
    assert_eq!(proxy.call(&call_as("alices", &format!("{LIST}?limit=500"))).await.status, 200);
    eventually("the cache answers", async || {
        proxy.call(&call_as("alices", CACHED)).await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_watches_are_limited_until_they_end() {
    let proxy = gateway(
        "  rules:
  - name: my-rule
    limits: {watches: 2}
",
    )
    .await;
    let path = format!("{LIST}?watch=1&timeoutSeconds=600");
    let open = async || Watch::open(proxy.plain(), &call_as("alices", &path)).await;
    let (first, second) = (open().await, open().await);
    assert_shed(&proxy.call(&call_as("alices", &path)).await, 429, "watches");
    assert_eq!(proxy.call(&call_as("alices", LIST)).await.status, 200, "no watch");
    let others = Watch::open(proxy.plain(), &call_as("bobs", &path)).await;
    drop(first);
    eventually("there is room for a watch again", async || {
        let brief = format!("{LIST}?watch=1&timeoutSeconds=1");
        proxy.call(&call_as("alices", &brief)).await.status == 200
    })
    .await;
    drop((second, others));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_charged_to_the_next_request() {
    let proxy = gateway(
        "  rules:
  - name: my-rule
    limits: {bytesPerSecond: '100'}
",
    )
    .await;
    let first = proxy.call(&call_as("alices", LIST)).await;
    assert!(first.status == 200 && first.text().len() > 300, "{}", first.text().len());
    let second = proxy.call(&call_as("alices", LIST)).await;
    assert_shed(&second, 429, "bytes");
    let after: usize = second.headers["retry-after"].to_str().unwrap().parse().unwrap();
    let most = first.text().len().div_ceil(100).min(30);
    assert!(after >= 2 && after <= most, "{after} s for {} bytes", first.text().len());
    assert_eq!(proxy.call(&call_as("bobs", LIST)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_by_user_agent_is_never_a_better_one() {
    let proxy = gateway(
        "  rules:
  - {name: my-rule, userAgents: ['headlamp/*'], level: catch-all, distinguisher: ByUserAndAgent}
  - {name: wrong-rule, userAgents: ['liar/*'], level: system}
",
    )
    .await;
    let of_agent = |agent: &str| call_as("alices", LIST).header("user-agent", agent);
    let waits = async |level: &str| {
        let label = format!("priority_level=\"{level}\"");
        proxy.metric("weir_flowcontrol_wait_seconds_count", &[&label]).await
    };
    for agent in ["headlamp/1 (linux)", "liar/1", "kubectl/1"] {
        assert_eq!(proxy.call(&of_agent(agent)).await.status, 200);
    }
    assert_eq!((waits("catch-all").await, waits("system").await), (1.0, 0.0));
    assert_eq!(waits("global-default").await, 2.0);
    assert_eq!(effects(&proxy, "level", "true").await, 1.0);
    assert_eq!(effects(&proxy, "better-level", "false").await, 1.0);
}

#[test]
fn mistakes_are_named_by_their_field() {
    for (rule, problem) in [
        ("{name: ''}", "flowControl.rules[0].name: is empty"),
        ("{name: a}", "flowControl.rules[0].name: is of a rule without action, limits and level"),
        ("{name: a, action: allow}", "flowControl.rules[0].action: expected deny, not \"allow\""),
        (
            "{name: a, action: deny, mode: off}",
            "flowControl.rules[0].mode: expected enforce or observe, not \"off\"",
        ),
        (
            "{name: a, action: deny, userAgents: ['*x']}",
            "flowControl.rules[0].userAgents[0]: \"*x\" has a * that is not at its end",
        ),
        (
            "{name: a, limits: {burst: 3}}",
            "flowControl.rules[0].limits.burst: needs requestsPerSecond",
        ),
        (
            "{name: a, limits: {requestsPerSecond: 0}}",
            "flowControl.rules[0].limits.requestsPerSecond: must be more than zero",
        ),
        ("{name: a, limits: {unpagedLists: big}}", "flowControl.rules[0].limits.unpagedLists: "),
        ("{name: a, action: deny, match: [{subjects: []}]}", "flowControl.rules[0].match: "),
    ] {
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        let text = format!("{head}flowControl: {{mode: observe, rules: [{rule}]}}\n");
        let file = ConfigFile::parse("test.yaml", &text).unwrap();
        let problems = Config::resolve(file, Overrides::default()).unwrap_err().to_string();
        assert!(problems.contains(&format!(": {problem}")), "{problems}");
    }
    assert_eq!(section("").mode, FlowControlMode::Enforce);
}
