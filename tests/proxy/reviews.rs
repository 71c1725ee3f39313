//! Access reviews of clients: what roles allow is answered by Weir, everything else by the API
//! server.

use http::Method;
use serde_json::{Value, json};
use weir::config::{AuditOutput, AuditRule};
use weir::simulator::{Rule, User};

use crate::client::{Answer, Call, send_h2};
use crate::harness::{Proxy, as_gateway, upstream_of};
use crate::wait::eventually;

const RBAC: &str = "rbac.authorization.k8s.io";
const OWN: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const OTHERS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const LOCAL: &str = "/apis/authorization.k8s.io/v1/namespaces/ns1/localsubjectaccessreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const FORWARDED: &str = "forward; reason=write";

/// Alice may list pods in ns1 by a role; the reviewer may review others, by a role as well.
async fn gateway(check_one_in: u32, audit: Option<AuditOutput>) -> Proxy {
    let users = vec![
        User::admin("weirs-own", "weir"),
        User::with_rules("alices", "alice", Vec::new()),
        User::with_rules("bobs", "bob", Vec::new()),
        User::with_rules("reviewers", "reviewer", Vec::new()),
        // Another authorizer than RBAC allows this.
        User::with_rules("others", "other", vec![Rule::new(&["*"], &["*"], &["ns1"])]),
    ];
    let upstream = upstream_of(users).await;
    let api = upstream.store();
    let rules =
        json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "configmaps"]}]);
    api.create(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": {"namespace": "ns1", "name": "pods"}, "rules": rules}))
        .unwrap();
    api.create(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
        "metadata": {"namespace": "ns1", "name": "alice"}, "subjects": [subject("alice")],
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "pods"}}))
        .unwrap();
    let reviews = ["subjectaccessreviews", "localsubjectaccessreviews"];
    api.create(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "reviews"},
        "rules": [{"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews}]}))
        .unwrap();
    api.create(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "reviewer"}, "subjects": [subject("reviewer")],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reviews"}}))
        .unwrap();
    Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.authorization.rbac.enabled = true;
        config.authorization.rbac.check_one_in = check_one_in;
        config.audit.output = audit;
        config.audit.policy.rules = vec![AuditRule::default()];
    })
    .await
}

fn subject(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": RBAC, "name": name})
}

fn post(path: &str, token: &str, body: &Value) -> Call {
    let call = Call::new(Method::POST, path).json(body);
    call.header("authorization", &format!("Bearer {token}")).header("user-agent", "test/1.0")
}

/// Returns a review of a permission in ns1.
fn may(verb: &str, resource: &str) -> Value {
    let attributes = json!({"namespace": "ns1", "verb": verb, "resource": resource});
    json!({"spec": {"resourceAttributes": attributes}})
}

fn may_user(user: &str, verb: &str, resource: &str) -> Value {
    let mut review = may(verb, resource);
    review["spec"]["user"] = user.into();
    review
}

/// Waits until Weir answers reviews: the first reason is compared with the API server's before.
async fn confirmed(proxy: &Proxy) {
    let call = post(OWN, "alices", &may("list", "pods"));
    eventually("reviews are answered", async || proxy.call(&call).await.cache() == "hit").await;
}

/// Returns the answer through Weir, which is equal to the direct one but for its times.
async fn same(proxy: &Proxy, call: &Call) -> Answer {
    let (through, direct) = (proxy.call(call).await, proxy.direct(call).await);
    let comparable = |answer: &Answer| {
        let text = answer.text();
        let times: Vec<_> = text.match_indices("20").map(|(at, _)| at).collect();
        let is_time = |at: &usize| text.get(at + 19..at + 20) == Some("Z");
        let mut masked = text.clone();
        for at in times.into_iter().filter(is_time) {
            masked.replace_range(at..at + 19, "2000-01-01T00:00:00");
        }
        (answer.status, answer.headers["content-type"].clone(), masked)
    };
    assert_eq!(comparable(&through), comparable(&direct), "{call:?}");
    through
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_roles_allow_is_answered_without_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let proxy = gateway(1_000_000, Some(AuditOutput::File(log.clone()))).await;
    confirmed(&proxy).await;
    let mut full = may("list", "pods");
    full["kind"] = "SelfSubjectAccessReview".into();
    full["apiVersion"] = "authorization.k8s.io/v1".into();
    full["metadata"] = json!({"creationTimestamp": null});
    full["status"] = json!({"allowed": false});
    let groups = json!({"user": "alice", "groups": ["g<", "system:authenticated"], "uid": "1",
        "extra": {"b": ["1"], "a": ["2", "3"]},
        "resourceAttributes": {"namespace": "ns1", "verb": "list", "resource": "pods", "name": "&"}});
    let version = json!({"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}});
    let reviews = [
        (OWN, "alices", may("list", "pods")),
        (OWN, "alices", full),
        (OWN, "alices", version),
        (OTHERS, "reviewers", may_user("alice", "list", "pods")),
        (OTHERS, "reviewers", json!({"spec": groups})),
        (LOCAL, "reviewers", may_user("alice", "list", "configmaps")),
        (WHO, "alices", json!({})),
        (OWN, "weirs-own", may("delete", "pods")),
    ];
    // Tokens are reviewed before anything is counted.
    for token in ["reviewers", "weirs-own"] {
        let call = post(OWN, token, &may("list", "nodes"));
        proxy.call(&call).await;
    }
    // Weir's own checks that a cache is current are watches, and may fall in between.
    let created = || {
        let counts = proxy.upstream.requests().counts().into_iter();
        counts.filter(|((verb, _), _)| verb == "create").map(|(_, count)| count).sum::<u64>()
    };
    for (path, token, review) in &reviews {
        let call = post(path, token, review);
        let before = created();
        let answer = proxy.call(&call).await;
        assert_eq!((answer.status.as_u16(), answer.cache()), (201, "hit"), "{path} {review}");
        assert_eq!(created(), before, "{path} {review}");
        let answer = same(&proxy, &call).await;
        assert!(answer.text().ends_with("}\n"), "{}", answer.text());
    }
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["verb"] == "create"
            && event["objectRef"]["resource"] == "localsubjectaccessreviews"
            && event["user"]["username"] == "reviewer"
            && event["responseStatus"]["code"] == 201
            && event["annotations"]["authorization.k8s.io/decision"] == "allow"
    };
    eventually("the answers are in the audit log", async || read().lines().any(event)).await;
    let labels = [r#"verb="create""#, r#"cache_status="hit""#];
    assert!(proxy.metric("weir_requests_total", &labels).await > 16.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_roles_do_not_decide_is_forwarded_unchanged() {
    let proxy = gateway(1_000_000, None).await;
    confirmed(&proxy).await;
    let local = |namespace: &str| {
        let mut review = may_user("alice", "list", "pods");
        review["metadata"] = json!({"namespace": namespace});
        review
    };
    let mut selecting = may("list", "pods");
    selecting["spec"]["resourceAttributes"]["fieldSelector"] = json!({"rawSelector": "a=b"});
    for (path, token, review, code) in [
        // Roles allow nothing here, but another authorizer may.
        (OWN, "bobs", may("list", "pods"), 201),
        (OWN, "alices", may("delete", "pods"), 201),
        (OWN, "others", may("list", "pods"), 201),
        (OTHERS, "reviewers", may_user("bob", "list", "pods"), 201),
        // Without the permission for the review itself.
        (OTHERS, "alices", may_user("alice", "list", "pods"), 403),
        (LOCAL, "alices", local("ns1"), 403),
        (OWN, "nobodys", may("list", "pods"), 401),
        // The union of all authorizers.
        (RULES, "alices", json!({"spec": {"namespace": "ns1"}}), 201),
        (OWN, "alices", selecting, 201),
    ] {
        let answer = same(&proxy, &post(path, token, &review)).await;
        assert_eq!(answer.status, code, "{path} {review}");
        assert_ne!(answer.cache(), "hit", "{path} {review}");
    }
    let review = may("list", "pods");
    let plain = post(OWN, "alices", &review);
    let query = |query: &str| Call { path: format!("{OWN}?{query}"), ..plain.clone() };
    let body = |body: &str| Call { body: body.to_owned().into(), ..plain.clone() };
    let long = json!({"spec": {"resourceAttributes": {"name": "x".repeat(17_000)}}});
    for call in [
        query("fieldValidation=Strict"),
        query("dryRun=All"),
        query("pretty=1"),
        plain.clone().header("x-weir-cache", "bypass"),
        plain.clone().header("accept", "application/yaml"),
        body(r#"{"spec":{"resourceAttributes":{"verb":"list"},"other":1}}"#),
        body("{"),
        post(OWN, "alices", &long),
    ] {
        let before = proxy.upstream.requests().recent().len();
        let answer = proxy.call(&call).await;
        assert!(!answer.cache().starts_with("hit"), "{call:?} {answer:?}");
        let recent = proxy.upstream.requests().recent();
        let seen = recent.iter().rev().find(|seen| seen.path == OWN).unwrap();
        assert!(before > 0 && seen.user == "alice", "{seen:?}");
    }
    // A body that was read arrives whole, also over HTTP/2.
    let denied = post(OWN, "alices", &may("delete", "pods"));
    let stream = tokio::net::TcpStream::connect(proxy.plain()).await.unwrap();
    let length = denied.body.len().to_string();
    let response = send_h2(stream, &denied.header("content-length", &length)).await.unwrap();
    assert_eq!(response.headers()["x-weir-cache"], FORWARDED);
    let answer = Answer::collect(response).await.unwrap();
    assert_eq!(answer.json()["spec"]["resourceAttributes"]["verb"], "delete");
    assert_eq!(answer.json()["status"]["allowed"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_takes_effect() {
    let proxy = gateway(1_000_000, None).await;
    confirmed(&proxy).await;
    let call = post(OWN, "alices", &may("list", "pods"));
    proxy.upstream.store().delete(&format!("{RBAC}/v1"), "rolebindings", "ns1", "alice").unwrap();
    eventually("the review is denied", async || {
        let answer = proxy.call(&call).await;
        let allowed = answer.json()["status"]["allowed"] == true;
        assert!(allowed == (answer.cache() == "hit"), "{answer:?}");
        !allowed
    })
    .await;
    // So does that of the permission for reviews.
    let version = json!({"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}});
    let version = post(OWN, "alices", &version);
    assert_eq!(proxy.call(&version).await.cache(), "hit");
    let bindings = ("clusterrolebindings", "system:basic-user");
    proxy.upstream.store().delete(&format!("{RBAC}/v1"), bindings.0, "", bindings.1).unwrap();
    eventually("the review is refused", async || proxy.call(&version).await.status == 403).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_checked_by_access_reviews() {
    let proxy = gateway(1, None).await;
    confirmed(&proxy).await;
    let checks = async || proxy.metric("weir_rbac_checks_total", &[]).await;
    let before = checks().await;
    let call = post(OWN, "alices", &may("list", "configmaps"));
    assert_eq!(proxy.call(&call).await.cache(), "hit");
    // One check is of the permission for the review, the other of the action that it asks about.
    eventually("both were checked", async || checks().await >= before + 2.0).await;
    assert!(proxy.metric("weir_rbac_differences_total", &[]).await < 1.0);
}
