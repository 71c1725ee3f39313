//! The requests that rules match and refuse.

use http::Method;

use super::*;

fn rule() -> Rule {
    Rule {
        name: "rule".into(),
        policies: None,
        agents: Box::default(),
        enforces: true,
        is_upstream_only: false,
        denies: false,
        limits: Limits::default(),
        flow_by: FlowBy::User,
        level: None,
    }
}

fn get(path: &str, query: &str) -> RequestInfo {
    RequestInfo::parse(&Method::GET, path, query)
}

fn policies(json: &str) -> Option<Policies> {
    Some(Policies::parse(json.as_bytes()).unwrap())
}

#[test]
fn a_rule_matches_by_subject_and_request() {
    let of_pods = r#"[{"subjects":[{"kind":"Group","group":{"name":"tools"}}],
        "resourceRules":[{"verbs":["list"],"apiGroups":[""],"resources":["pods"],
        "namespaces":["*"],"clusterScope":true}]}]"#;
    let rule = Rule { policies: policies(of_pods), ..rule() };
    let (groups, others) = (["tools".to_owned()], ["others".to_owned()]);
    let matches = |groups: Option<&[String]>, path: &str, query: &str| {
        rule.matches(groups.map(|groups| ("jane", groups)), "", &get(path, query))
    };
    assert!(matches(Some(&groups), "/api/v1/pods", ""));
    assert!(matches(Some(&groups), "/api/v1/namespaces/a/pods", ""));
    assert!(!matches(Some(&others), "/api/v1/pods", ""));
    assert!(!matches(None, "/api/v1/pods", ""), "the user is unknown");
    assert!(!matches(Some(&groups), "/api/v1/nodes", ""));
    assert!(!matches(Some(&groups), "/api/v1/pods", "watch=1"));
    assert!(!matches(Some(&groups), "/healthz", ""));
}

#[test]
fn what_is_about_everybody_is_also_about_unknown_users() {
    let everybody = r#"[{"subjects":[{"kind":"Group","group":{"name":"*"}}],
        "nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/metrics"]}]}]"#;
    let rule = Rule { policies: policies(everybody), ..rule() };
    assert!(rule.matches(None, "", &get("/metrics", "")));
    assert!(!rule.matches(None, "", &get("/healthz", "")));
}

#[test]
fn user_agents_match_by_their_first_product() {
    let agents = ["headlamp/*", "kubectl/v1.36.0"].map(|text| AgentPattern::parse(text).unwrap());
    let rule = Rule { agents: agents.into(), ..rule() };
    for (agent, is_matched) in [
        ("headlamp/0.30 (linux)", true),
        ("kubectl/v1.36.0 (linux/amd64) kubernetes/abc", true),
        ("kubectl/v1.36.01", false),
        ("curl/8 headlamp/1", false),
        ("", false),
    ] {
        assert_eq!(rule.matches(None, agent, &get("/api/v1/pods", "")), is_matched, "{agent}");
    }
    for wrong in ["", "a b", "*a", "a*b"] {
        AgentPattern::parse(wrong).unwrap_err();
    }
    assert_eq!(AgentPattern::parse("*"), Ok(AgentPattern::Prefix("".into())));
}

#[test]
fn lists_without_pages_are_refused_by_their_size() {
    let up_to = |bytes| Rule {
        limits: Limits { unpaged_bytes: Some(bytes), ..Limits::default() },
        ..rule()
    };
    let pods = "/api/v1/pods";
    assert!(up_to(0).forbids_list(&get(pods, ""), None));
    assert!(up_to(0).forbids_list(&get(pods, "limit=0"), Some(1)));
    assert!(!up_to(0).forbids_list(&get(pods, "limit=500"), Some(1)));
    assert!(!up_to(0).forbids_list(&get(pods, "watch=1"), Some(1)));
    assert!(!up_to(0).forbids_list(&get(pods, "fieldSelector=metadata.name%3Da"), Some(1)));
    assert!(!up_to(0).forbids_list(&get("/api/v1/namespaces/a/pods/b", ""), Some(1)));
    assert!(up_to(100).forbids_list(&get(pods, ""), Some(101)));
    assert!(!up_to(100).forbids_list(&get(pods, ""), Some(100)));
    assert!(!up_to(100).forbids_list(&get(pods, ""), None));
}

#[test]
fn levels_are_ranked() {
    let ranked = ["exempt", "leader-election", "node-high", "system", "workload-high"];
    assert!(ranked.is_sorted_by_key(|level| rank(level)));
    assert_eq!(rank("workload-low"), rank("my-own"));
    assert!(rank("workload-high") < rank("my-own"));
    assert!(rank("my-own") < rank("global-default") && rank("global-default") < rank("catch-all"));
}
