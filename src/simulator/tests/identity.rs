//! Authentication and authorization: certificates, front proxies, service accounts, roles and
//! bindings, reviews.

use http::Method;
use serde_json::{Value, json};

use super::client::{Reply, request, start_with};
use super::credentials::{Authority, Client, request_over_tls};
use crate::{ClientCertificates, Rule, Simulator, SimulatorOptions, User};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const RBAC: &str = "rbac.authorization.k8s.io";

async fn as_token(
    simulator: &Simulator,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Reply {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    request(simulator, method, path, &headers, body).await.unwrap()
}

/// Creates a role with these rules and binds it to a subject.
fn grant(simulator: &Simulator, name: &str, namespace: &str, rules: Value, subject: Value) {
    let prefix = if namespace.is_empty() { "Cluster" } else { "" };
    let metadata = json!({"name": name, "namespace": namespace});
    let api_version = format!("{RBAC}/v1");
    let role = json!({"apiVersion": api_version, "kind": format!("{prefix}Role"), "metadata": metadata, "rules": rules});
    let reference = json!({"apiGroup": RBAC, "kind": format!("{prefix}Role"), "name": name});
    let binding = json!({"apiVersion": api_version, "kind": format!("{prefix}RoleBinding"), "metadata": metadata,
        "subjects": [subject], "roleRef": reference});
    simulator.store().create(role).unwrap();
    simulator.store().create(binding).unwrap();
}

async fn with_users() -> Simulator {
    let groups = vec!["devs".to_owned()];
    let dev = User {
        token: "dev".to_owned(),
        name: "dev".to_owned(),
        uid: "7".to_owned(),
        groups,
        ..User::default()
    };
    let users =
        vec![User::admin("root", "admin"), dev, User::with_rules("n", "nobody", Vec::new())];
    start_with(SimulatorOptions { users, ..SimulatorOptions::default() }).await
}

#[tokio::test]
async fn roles_grant_their_rules() {
    let simulator = with_users().await;
    let devs = json!({"kind": "Group", "apiGroup": RBAC, "name": "devs"});
    let rule = |verbs: &[&str], resources: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    let mut named = rule(&["get", "list", "watch"], &["configmaps"]);
    named["resourceNames"] = json!(["x"]);
    grant(
        &simulator,
        "named",
        "",
        json!([named, rule(&["get"], &["pods/log", "*/status"])]),
        devs.clone(),
    );
    grant(&simulator, "space", "default", json!([rule(&["*"], &["secrets"])]), devs.clone());
    let paths = json!([{"nonResourceURLs": ["/metrics", "/x/*"], "verbs": ["get"]}]);
    grant(&simulator, "paths", "", paths, json!({"kind": "User", "apiGroup": RBAC, "name": "dev"}));
    for (path, code) in [
        ("/api/v1/namespaces/default/configmaps/x", 404),
        ("/api/v1/namespaces/default/configmaps/y", 403),
        ("/api/v1/configmaps", 403),
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Dx", 200),
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Dx,metadata.namespace%3Dy", 200),
        ("/api/v1/configmaps?fieldSelector=metadata.name%3Dx&limit=y", 403),
        ("/api/v1/watch/configmaps?fieldSelector=metadata.name%3Dx", 403),
        ("/api/v1/watch/namespaces/default/configmaps/x?timeoutSeconds=1", 200),
        ("/api/v1/namespaces/default/pods/p", 403),
        ("/api/v1/namespaces/default/pods/p/log", 404),
        ("/api/v1/nodes/n/status", 404),
        ("/api/v1/nodes/n/proxy", 403),
        ("/api/v1/namespaces/default/secrets", 200),
        ("/api/v1/namespaces/kube-system/secrets", 403),
        ("/api/v1/secrets", 403),
        ("/metrics", 404),
        ("/x/y", 404),
        ("/x", 403),
        ("/apis", 200),
    ] {
        let answer = as_token(&simulator, "dev", Method::GET, path, Value::Null).await;
        assert_eq!(answer.code, code, "{path} {}", answer.text());
    }
    let answer = as_token(&simulator, "n", Method::GET, "/metrics/%3C&%3E", Value::Null).await;
    assert_eq!(
        answer.message(),
        r#"forbidden: User "nobody" cannot get path "/metrics/&lt;&amp;&gt;""#
    );
    assert_eq!(answer.json()["details"], json!({}));
}

#[tokio::test]
async fn a_denial_reports_a_binding_of_a_missing_role() {
    let simulator = with_users().await;
    let dev = json!({"kind": "User", "apiGroup": RBAC, "name": "dev"});
    grant(&simulator, "gone", "", json!([]), dev);
    simulator.store().delete(&format!("{RBAC}/v1"), "clusterroles", "", "gone").unwrap();
    let path = format!("{MAPS}?fieldSelector=metadata.name%3Dx");
    let answer = as_token(&simulator, "dev", Method::GET, &path, Value::Null).await;
    let text = r#"configmaps "x" is forbidden: User "dev" cannot list resource "configmaps" in API group "" in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(answer.message(), text);
    assert_eq!(answer.json()["details"], json!({"name": "x", "kind": "configmaps"}));
}

#[tokio::test]
async fn reviews_agree_with_requests() {
    let simulator = with_users().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    grant(
        &simulator,
        "maps",
        "default",
        rules,
        json!({"kind": "Group", "apiGroup": RBAC, "name": "devs"}),
    );
    let attributes = json!({"verb": "list", "resource": "configmaps", "namespace": "default"});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (groups, allowed) in
        [(json!(["devs"]), true), (json!([]), false), (json!(["system:masters"]), true)]
    {
        let review =
            json!({"spec": {"user": "dev", "groups": groups, "resourceAttributes": attributes}});
        let answer = as_token(&simulator, "root", Method::POST, path, review.clone()).await.json();
        assert_eq!(answer["status"]["allowed"], allowed, "{groups}");
        let answer = as_token(&simulator, "dev", Method::POST, path, review).await;
        assert_eq!(answer.code, 403, "one may not ask about others");
    }
    let self_review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"resourceAttributes": attributes}});
    let answer = as_token(&simulator, "dev", Method::POST, self_review, review).await.json();
    let reason = r#"RBAC: allowed by RoleBinding "maps/default" of Role "maps" to Group "devs""#;
    assert_eq!(answer["status"], json!({"allowed": true, "reason": reason}));
    let answer = as_token(&simulator, "dev", Method::POST, SELF, json!({})).await.json();
    let user = json!({"username": "dev", "uid": "7", "groups": ["devs", "system:authenticated"]});
    assert_eq!(answer["status"]["userInfo"], user);
}

#[tokio::test]
async fn a_service_account_token_is_invalid_without_its_account() {
    let simulator = with_users().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = as_token(&simulator, "root", Method::POST, path, json!({"spec": {}})).await;
    assert_eq!(answer.code, 201);
    let token = answer.json()["status"]["token"].as_str().unwrap().to_owned();
    let subject = json!({"kind": "ServiceAccount", "name": "default"});
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    grant(&simulator, "maps", "default", rules, subject);
    assert_eq!(as_token(&simulator, &token, Method::GET, MAPS, Value::Null).await.code, 200);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = json!({"spec": {"token": token}});
    let status = async || {
        as_token(&simulator, "root", Method::POST, reviews, review.clone()).await.json()["status"]
            .clone()
    };
    let groups =
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    let seen = status().await;
    assert_eq!(seen["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(seen["user"]["groups"], json!(groups));
    let other = json!({"spec": {"token": token, "audiences": ["other"]}});
    let other = as_token(&simulator, "root", Method::POST, reviews, other).await.json();
    assert_eq!(other["status"].get("authenticated"), None);

    simulator.store().delete("v1", "serviceaccounts", "default", "default").unwrap();
    assert_eq!(status().await.get("authenticated"), None);
    assert_eq!(as_token(&simulator, &token, Method::GET, MAPS, Value::Null).await.code, 401);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}});
    simulator.store().create(account).unwrap();
    assert_eq!(status().await.get("authenticated"), None, "it is another account");
}

#[tokio::test]
async fn impersonation_needs_permission_for_each_part() {
    let simulator = with_users().await;
    let rule = |resource: &str, name: &str| json!({"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": ["impersonate"]});
    let rules = json!([rule("users", "jane"), rule("groups", "devs")]);
    grant(&simulator, "as", "", rules, json!({"kind": "User", "apiGroup": RBAC, "name": "nobody"}));
    let send = async |headers: &[(&str, &str)]| {
        let mut headers_with_token = vec![("authorization", "Bearer n")];
        headers_with_token.extend(headers);
        request(&simulator, Method::POST, SELF, &headers_with_token, json!({})).await.unwrap()
    };
    let answer = send(&[("impersonate-user", "jane"), ("impersonate-group", "devs")]).await.json();
    let groups = json!(["devs", "system:authenticated"]);
    assert_eq!(answer["status"]["userInfo"], json!({"username": "jane", "groups": groups}));
    let refused = send(&[("impersonate-user", "jane"), ("impersonate-group", "ops")]).await;
    assert_eq!(refused.code, 403);
    let text = r#"groups "ops" is forbidden: User "nobody" cannot impersonate resource "groups" in API group "" at the cluster scope"#;
    assert_eq!(refused.message(), text);
    assert_eq!(send(&[("impersonate-group", "devs")]).await.code, 400);
    let any_verb = Rule::new(&["*"], &["*"], &["*", ""]);
    assert!(!any_verb.verbs.contains(&"impersonate".to_owned()), "which * does not stand for");
}

#[tokio::test]
async fn certificates_take_precedence_over_tokens() {
    let (users, proxies, others) =
        (Authority::new("users"), Authority::new("proxies"), Authority::new("others"));
    let client_certificates = Some(ClientCertificates {
        ca: users.pem(),
        request_header_ca: Some(proxies.pem()),
        request_header_allowed_names: vec!["front".to_owned()],
    });
    let options = SimulatorOptions {
        tls: true,
        client_certificates,
        users: vec![User::admin("root", "admin")],
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    let root = ("authorization", "Bearer root");
    let wrong = ("authorization", "Bearer wrong");
    let remote =
        [("x-remote-user", "jane"), ("x-remote-group", "a"), ("x-remote-extra-a%2fb", "c")];
    let jane = users.client("carl", &["ops"]);
    let who = async |certificate: Option<&Client>, headers: &[(&str, &str)]| {
        request_over_tls(&simulator, certificate, Method::POST, SELF, headers).await
    };
    let name = |(code, answer): (u16, Value)| {
        (code, answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
    };

    let (_, carl) = who(Some(&jane), &[]).await;
    let info = &carl["status"]["userInfo"];
    assert_eq!(
        (&info["username"], &info["groups"]),
        (&json!("carl"), &json!(["ops", "system:authenticated"]))
    );
    let credential = &info["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(credential.as_str().unwrap().starts_with("X509SHA256="));

    assert_eq!(name(who(Some(&jane), &[root]).await), (201, "carl".to_owned()));
    assert_eq!(name(who(Some(&jane), &[wrong]).await), (201, "carl".to_owned()));
    assert_eq!(name(who(Some(&jane), &remote).await), (201, "carl".to_owned()));
    let front = proxies.client("front", &[]);
    let (_, review) = who(Some(&front), &remote).await;
    let info = json!({"username": "jane", "groups": ["a", "system:authenticated"], "extra": {"a/b": ["c"]}});
    assert_eq!(review["status"]["userInfo"], info);
    assert_eq!(name(who(Some(&front), &[root]).await), (201, "admin".to_owned()));
    for bad in
        [others.client("carl", &[]), users.expired("carl"), front, proxies.client("other", &[])]
    {
        assert_eq!(who(Some(&bad), &[]).await.0, 401);
        assert_eq!(who(Some(&bad), &[wrong]).await.0, 401);
        assert_eq!(name(who(Some(&bad), &[root]).await), (201, "admin".to_owned()));
    }
    assert_eq!(who(Some(&proxies.client("other", &[])), &remote).await.0, 401);
    assert_eq!(who(None, &[]).await.0, 403, "anonymous");
    assert_eq!(who(None, &remote).await.0, 403);

    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (_, published) = request_over_tls(&simulator, None, Method::GET, path, &[root]).await;
    assert_eq!(published["data"]["client-ca-file"], users.pem());
    assert_eq!(published["data"]["requestheader-allowed-names"], r#"["front"]"#);
}

#[tokio::test]
async fn anonymous_requests_are_rejected_when_disabled() {
    let options = SimulatorOptions {
        anonymous: false,
        users: vec![User::admin("root", "admin")],
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    for headers in [&[][..], &[("authorization", "Basic eDp5")], &[("authorization", "Bearer ")]] {
        let answer =
            request(&simulator, Method::GET, "/version", headers, Value::Null).await.unwrap();
        assert_eq!(answer.code, 401);
    }
    let headers = [("authorization", "Bearer  root")];
    let answer = request(&simulator, Method::GET, "/version", &headers, Value::Null).await.unwrap();
    assert_eq!(answer.code, 401);
    assert!(answer.headers["warning"].to_str().unwrap().contains("extra space"));
}

/// kube-apiserver does so since v1.29 (UnauthenticatedHTTP2DOSMitigation).
#[tokio::test]
async fn an_http2_connection_ends_with_a_request_without_a_user() {
    let simulator = with_users().await;
    for (token, ends) in [("root", false), ("n", false), ("wrong", true), ("", true)] {
        let tcp = tokio::net::TcpStream::connect(simulator.address()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(tcp),
        )
        .await
        .unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..2 {
            let mut request = http::Request::get(format!("http://simulator{MAPS}"));
            if !token.is_empty() {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let body = http_body_util::Empty::<bytes::Bytes>::new();
            let sent = sender.send_request(request.body(body).unwrap()).await;
            drop(http_body_util::BodyExt::collect(sent.unwrap().into_body()).await.unwrap());
            if ends {
                break;
            }
        }
        if ends {
            let ended = tokio::time::timeout(std::time::Duration::from_secs(10), connection).await;
            ended.expect("it ends").unwrap().unwrap();
        } else {
            assert!(!sender.is_closed(), "{token}");
        }
    }
}
