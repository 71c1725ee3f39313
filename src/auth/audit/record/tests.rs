//! Compares lines with those of kube-apiserver 1.36.2 for the same requests.

use std::collections::BTreeMap;
use std::time::SystemTime;

use http::{Method, Request, StatusCode};

use super::*;
use crate::api::request_info::RequestInfo;
use crate::auth::audit::event::AuditSubject;
use crate::auth::forbidden::unauthorized;
use crate::auth::peer::Peer;

struct Case {
    method: Method,
    uri: &'static str,
    agent: Vec<u8>,
    user: Option<User>,
    impersonated: Option<User>,
    decision: Option<(bool, &'static str)>,
    stale: Staleness,
    code: StatusCode,
    status: Option<Status>,
    stage: Stage,
}

fn user(name: &str, uid: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    User::new(name.to_owned(), uid.to_owned(), groups, BTreeMap::new())
}

fn case(uri: &'static str) -> Case {
    Case {
        method: Method::GET,
        uri,
        agent: b"t/1 <&>".to_vec(),
        user: Some(user("admin", "admin-uid", &["system:masters", "system:authenticated"])),
        impersonated: None,
        decision: Some((true, "")),
        stale: Staleness::default(),
        code: StatusCode::OK,
        status: None,
        stage: Stage::ResponseComplete,
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

impl Case {
    fn line(&self) -> String {
        let mut request = Request::builder().method(self.method.clone()).uri(self.uri);
        if !self.agent.is_empty() {
            request = request.header(USER_AGENT, self.agent.as_slice());
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = parts.uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
        let peer = Peer::new(None, Some([127, 0, 0, 1].into()));
        let response = AuditResponse {
            subject: AuditSubject { parts: &parts, info: &info, user: self.user.as_ref() },
            peer: &peer,
            impersonated: self.impersonated.as_ref(),
            decision: self.decision,
            stale: self.stale,
            code: self.code,
            status: self.status.as_ref(),
            audit_id: b"mark",
            received: SystemTime::from(time("2026-11-21T15:14:21.948854999Z")),
        };
        let mut out = b"previous content".to_vec();
        let now = time("2026-11-21T15:14:21.953748Z");
        let at = push_line(&mut out, &response, self.stage, now);
        assert_eq!(&out[at..at + TIME_LENGTH], b"2026-11-21T15:14:21.953748Z");
        let line = String::from_utf8(out).unwrap().split_off("previous content".len());
        serde_json::from_str::<serde_json::Value>(&line).expect("valid JSON");
        line
    }
}

/// Returns a line of the upstream's log with the times and the id of these tests.
fn upstream(middle: &str, annotations: &str) -> String {
    format!(
        "{{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\"auditID\":\"mark\",{middle},\
         \"requestReceivedTimestamp\":\"2026-11-21T15:14:21.948854Z\",\"stageTimestamp\":\"2026-11-21T15:14:21.953748Z\"{annotations}}}\n"
    )
}

const ALLOWED: &str =
    r#","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}"#;

#[test]
fn a_get() {
    let expected = r#""stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default","verb":"get","user":{"username":"admin","uid":"admin-uid","groups":["system:masters","system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"t/1 \u003c\u0026\u003e","objectRef":{"resource":"namespaces","namespace":"default","name":"default","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200}"#;
    assert_eq!(case("/api/v1/namespaces/default").line(), upstream(expected, ALLOWED));
}

#[test]
fn a_list_with_an_unchanged_query() {
    let uri = "/api/v1/configmaps?limit=5&access_token=abc&x=%3Ca%20b%C3%A9";
    let expected = r#""stage":"ResponseComplete","requestURI":"/api/v1/configmaps?limit=5\u0026access_token=abc\u0026x=%3Ca%20b%C3%A9","verb":"list","user":{"username":"admin","uid":"admin-uid","groups":["system:masters","system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"t/1 \u003c\u0026\u003e","objectRef":{"resource":"configmaps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200}"#;
    assert_eq!(case(uri).line(), upstream(expected, ALLOWED));
    // An empty query keeps its question mark, and a name from the field selector is logged.
    assert!(case("/version?").line().contains(r#""requestURI":"/version?","#));
    let by_field = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dx";
    let expected = r#""verb":"list","#;
    assert!(case(by_field).line().contains(expected));
    let expected = r#""objectRef":{"resource":"configmaps","namespace":"default","name":"x","apiVersion":"v1"}"#;
    assert!(case(by_field).line().contains(expected));
}

#[test]
fn the_head_of_a_watch() {
    let case = Case {
        stage: Stage::ResponseStarted,
        ..case("/apis/apps/v1/deployments?watch=1&timeoutSeconds=1&resourceVersion=0")
    };
    let expected = r#""stage":"ResponseStarted","requestURI":"/apis/apps/v1/deployments?watch=1\u0026timeoutSeconds=1\u0026resourceVersion=0","verb":"watch","user":{"username":"admin","uid":"admin-uid","groups":["system:masters","system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"t/1 \u003c\u0026\u003e","objectRef":{"resource":"deployments","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200}"#;
    assert_eq!(case.line(), upstream(expected, ALLOWED));
}

#[test]
fn a_subresource_and_other_methods() {
    let line = case("/apis/apps/v1/namespaces/default/deployments/x/status").line();
    assert!(line.contains(r#""objectRef":{"resource":"deployments","namespace":"default","name":"x","apiGroup":"apps","apiVersion":"v1","subresource":"status"}"#));
    let options = |uri| Case { method: Method::OPTIONS, ..case(uri) }.line();
    assert!(options("/api/v1/secrets").contains(r#","verb":"","#));
    assert!(options("/version").contains(r#","verb":"options","#));
    let head = Case { method: Method::HEAD, ..case("/api/v1/namespaces/default") };
    assert!(head.line().contains(r#","verb":"get","#));
}

#[test]
fn a_forbidden_request() {
    let status = Status {
        code: StatusCode::FORBIDDEN,
        reason: "Forbidden",
        message: "forbidden: User \"alice\" cannot get path \"/metrics\"".to_owned(),
        details: None,
        retry_after_seconds: None,
    };
    let case = Case {
        user: Some(user("alice", "alice-uid", &["dev", "a<b", "system:authenticated"])),
        decision: Some((false, "no \"reason\"")),
        code: StatusCode::FORBIDDEN,
        status: Some(status),
        ..case("/metrics")
    };
    let expected = r#""stage":"ResponseComplete","requestURI":"/metrics","verb":"get","user":{"username":"alice","uid":"alice-uid","groups":["dev","a\u003cb","system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"t/1 \u003c\u0026\u003e","responseStatus":{"metadata":{},"status":"Failure","message":"forbidden: User \"alice\" cannot get path \"/metrics\"","reason":"Forbidden","code":403}"#;
    let annotations = r#","annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"no \"reason\""}"#;
    assert_eq!(case.line(), upstream(expected, annotations));
}

#[test]
fn a_request_without_authentication() {
    let case = Case {
        user: None,
        decision: None,
        code: StatusCode::UNAUTHORIZED,
        status: Some(unauthorized()),
        stage: Stage::ResponseStarted,
        ..case("/api/v1/secrets")
    };
    let expected = r#""stage":"ResponseStarted","requestURI":"/api/v1/secrets","verb":"list","user":{},"sourceIPs":["127.0.0.1"],"userAgent":"t/1 \u003c\u0026\u003e","objectRef":{"resource":"secrets","apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    assert_eq!(case.line(), upstream(expected, ""));
}

#[test]
fn an_impersonating_user_of_a_certificate() {
    let id = "X509SHA256=7a9097b3f284d7f08b3ae79cb120eb51c1e5b2f3cbc2fb16da6333f9953201b6";
    let key = "authentication.kubernetes.io/credential-id".to_owned();
    let extra = BTreeMap::from([(key, vec![id.to_owned()]), ("a<".to_owned(), vec![])]);
    let groups = vec!["system:masters".to_owned()];
    let case = Case {
        user: Some(User::new("kubernetes-admin".to_owned(), String::new(), groups, extra)),
        impersonated: Some(user("bob", "", &["g", "system:authenticated"])),
        agent: Vec::new(),
        ..case("/api/v1/secrets")
    };
    let expected = format!(
        r#""stage":"ResponseComplete","requestURI":"/api/v1/secrets","verb":"list","user":{{"username":"kubernetes-admin","groups":["system:masters"],"extra":{{"a\u003c":[],"authentication.kubernetes.io/credential-id":["{id}"]}}}},"impersonatedUser":{{"username":"bob","groups":["g","system:authenticated"]}},"sourceIPs":["127.0.0.1"],"objectRef":{{"resource":"secrets","apiVersion":"v1"}},"responseStatus":{{"metadata":{{}},"code":200}}"#
    );
    assert_eq!(case.line(), upstream(&expected, ALLOWED));
}

#[test]
fn a_long_user_agent_is_truncated_in_bytes() {
    let agent = |agent: Vec<u8>| {
        let line = Case { agent, ..case("/version") }.line();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        event["userAgent"].as_str().unwrap().to_owned()
    };
    assert_eq!(agent(vec![b'u'; 1024]), "u".repeat(1024));
    assert_eq!(agent(vec![b'u'; 1100]), "u".repeat(1024) + "...TRUNCATED");
    // The limit splits a character of two bytes.
    let text = "u".repeat(1023) + "éé";
    assert_eq!(agent(text.into_bytes()), "u".repeat(1023) + "\u{fffd}...TRUNCATED");
}

#[test]
fn expired_results_are_annotated() {
    let case = Case { stale: Staleness { identity: true, decision: true }, ..case("/version") };
    assert!(case.line().ends_with(
        "\"annotations\":{\"authorization.k8s.io/decision\":\"allow\",\"authorization.k8s.io/reason\":\"\",\
         \"weir.dev/stale-decision\":\"true\",\"weir.dev/stale-identity\":\"true\"}}\n"
    ));
}

#[test]
fn times_are_truncated_to_microseconds() {
    let text = |text: &str| {
        let mut out = Vec::new();
        push_time(&mut out, time(text));
        String::from_utf8(out).unwrap()
    };
    assert_eq!(text("2026-01-02T03:04:05.000000999Z"), "2026-01-02T03:04:05.000000Z");
    assert_eq!(text("1999-12-31T23:59:59.999999999Z"), "1999-12-31T23:59:59.999999Z");
    assert_eq!(text("2026-01-02T03:04:05+01:00"), "2026-01-02T02:04:05.000000Z");
}
