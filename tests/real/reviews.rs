//! Access reviews of clients, directly and through a Weir that knows the roles: the same status and
//! the same bytes, but for the time of the managed fields.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::matrix::{BY_ROLES, with};
use crate::matrix_suite::users::{ADMIN, WEIR};
use crate::matrix_suite::world::World;
use crate::suite::run::HIT;
use crate::suite::wire::{Answer, Call};

const AUTHORIZATION: &str = "authorization.k8s.io/v1";
const AUTHENTICATION: &str = "authentication.k8s.io/v1";
/// Of the reviews that their sender may not create, which all get the same error.
const FORBIDDEN_ONE_IN: usize = 20;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub(crate) fn both_ways() {
    with(BY_ROLES, async |world| {
        let tokens = &world.tokens;
        let mut callers: Vec<_> =
            ["tom", "dora", "nina", "sue", "nora", "mia", "<&>\"", ADMIN, WEIR]
                .map(|name| (name, tokens.token_of(name)))
                .into();
        callers.push(("robot", tokens.robot.clone()));
        let mut counts = BTreeMap::<(String, u16), usize>::new();
        confirm(&world).await;
        for (name, token) in &callers {
            let sides = [&world.direct, &world.through].map(|side| side.as_token(token));
            let [mut direct, mut through] = sides.map(|side| side.connection());
            let may_ask = [ADMIN, WEIR].contains(name);
            let is_asked = |(number, review): &(usize, Review)| {
                may_ask || review.kind.starts_with("Self") || number % FORBIDDEN_ONE_IN == 0
            };
            for (_, review) in reviews().into_iter().enumerate().filter(is_asked) {
                for call in forms(&review) {
                    let (expected, actual) = (direct.send(&call).await, through.send(&call).await);
                    let [expected, seen] = [&expected, &actual].map(comparable);
                    assert_eq!(seen, expected, "{name}: {call} {:?}", review.spec);
                    *counts.entry((actual.cache().to_owned(), actual.status)).or_default() += 1;
                }
            }
        }
        eprintln!("{counts:?}");
        let hits = counts.get(&(HIT.to_owned(), 201)).copied().unwrap_or_default();
        let others: usize = counts.values().sum::<usize>() - hits;
        assert!(hits > 500 && others > 500, "{hits} answered, {others} not");
    });
}

/// Waits until Weir has confirmed a reason of roles.
pub(crate) async fn confirm(world: &World) {
    let mut through = world.through.as_token(&world.tokens.token_of("tom")).connection();
    let spec = json!({"resourceAttributes": {"verb": "list", "resource": "pods"}});
    let call = Review::own(spec).in_json();
    for _ in 0..100 {
        if through.send(&call).await.cache() == HIT {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("Weir answers no review");
}

struct Review {
    kind: &'static str,
    api_version: &'static str,
    path: String,
    spec: Value,
}

impl Review {
    fn own(spec: Value) -> Self {
        let path = format!("/apis/{AUTHORIZATION}/selfsubjectaccessreviews");
        Self { kind: "SelfSubjectAccessReview", api_version: AUTHORIZATION, path, spec }
    }

    fn in_json(&self) -> Call {
        let mut body = json!({"kind": self.kind, "apiVersion": self.api_version});
        if !self.spec.is_null() {
            body["spec"] = self.spec.clone();
        }
        Call::json(Method::POST, &self.path, &body)
    }
}

/// Returns every question about what several users may do, and who the sender is.
fn reviews() -> Vec<Review> {
    let mut asked = Vec::new();
    for verb in ["get", "list", "create", "*"] {
        for resource in ["pods", "configmaps", "secrets", "namespaces", "*"] {
            for (namespace, name) in [("a", ""), ("a", "x"), ("b", ""), ("", "a")] {
                let attributes = json!({"verb": verb, "resource": resource, "namespace": namespace, "name": name});
                asked.push(json!({ "resourceAttributes": attributes }));
            }
        }
    }
    let log = json!({"namespace": "a", "verb": "get", "version": "v1", "resource": "pods", "subresource": "log"});
    let scale =
        json!({"verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale"});
    asked.extend([log, scale].map(|attributes| json!({ "resourceAttributes": attributes })));
    asked.extend(
        ["/nope", "/logs/<a>", "/metrics"]
            .map(|path| json!({"nonResourceAttributes": {"path": path, "verb": "get"}})),
    );
    let mut reviews: Vec<_> = asked.iter().cloned().map(Review::own).collect();
    let users = [
        json!({"user": "tom", "groups": ["readers"], "uid": "7"}),
        json!({"groups": ["x", "devs"], "extra": {"k.io/b": ["1", "<2>"], "a": ["3"]}}),
        json!({"user": "system:serviceaccount:a:robot"}),
        json!({"user": "system:node:x", "groups": ["system:nodes", "readers"]}),
    ];
    for (spec, user) in
        asked.iter().step_by(3).flat_map(|spec| users.iter().map(move |user| (spec, user)))
    {
        let mut spec = spec.clone();
        let fields = spec.as_object_mut().unwrap();
        fields.extend(user.as_object().unwrap().clone());
        let (plural, namespace) = ("subjectaccessreviews", "/namespaces/a");
        let path = format!("/apis/{AUTHORIZATION}/{plural}");
        let local = format!("/apis/{AUTHORIZATION}{namespace}/local{plural}");
        let other =
            |kind, path| Review { kind, api_version: AUTHORIZATION, path, spec: spec.clone() };
        reviews
            .extend([other("SubjectAccessReview", path), other("LocalSubjectAccessReview", local)]);
    }
    let path = format!("/apis/{AUTHENTICATION}/selfsubjectreviews");
    let (kind, api_version) = ("SelfSubjectReview", AUTHENTICATION);
    reviews.push(Review { kind, api_version, path, spec: Value::Null });
    reviews
}

/// Returns a review in the encodings of requests and answers.
fn forms(review: &Review) -> Vec<Call> {
    let json = review.in_json();
    let agent = |call: &Call, agent: &str| call.clone().header("user-agent", agent);
    let mut protobuf = Call::new(Method::POST, &*review.path).header("content-type", PROTOBUF);
    protobuf.body = encoded(review).into();
    vec![
        agent(&json, "kubectl/v1.36.2 (linux/amd64) kubernetes/x"),
        agent(&json, "curl/8.5.0"),
        json.header("accept", PROTOBUF),
        agent(&protobuf, "go").header("accept", &format!("{PROTOBUF},application/json")),
        protobuf.header("accept", "application/json"),
    ]
}

/// Returns a review in protobuf as a Go client sends it.
fn encoded(review: &Review) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let texts = |numbers: &[(u8, &str)], of: &Value| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|(number, name)| field(*number, text(&of[*name]).as_bytes()))
            .collect()
    };
    let empty = json!({});
    let metadata =
        [&texts(&[1, 2, 3, 4, 5, 6].map(|number| (number, "")), &empty)[..], &[0x38, 0, 0x42, 0]]
            .concat();
    let spec = &review.spec;
    let mut raw = field(1, &metadata);
    if spec.is_null() {
        raw.extend(field(2, &field(1, &texts(&[(1, ""), (2, "")], &empty))));
    } else {
        let mut fields = Vec::new();
        let names = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        let numbered: Vec<_> = (1..).zip(names).collect();
        if let Some(attributes) = spec.get("resourceAttributes") {
            fields.extend(field(1, &texts(&numbered, attributes)));
        }
        if let Some(attributes) = spec.get("nonResourceAttributes") {
            fields.extend(field(2, &texts(&[(1, "path"), (2, "verb")], attributes)));
        }
        if review.kind != "SelfSubjectAccessReview" {
            fields.extend(texts(&[(3, "user")], spec));
            for group in spec["groups"].as_array().into_iter().flatten() {
                fields.extend(field(4, text(group).as_bytes()));
            }
            let extra: BTreeMap<_, _> = spec["extra"].as_object().into_iter().flatten().collect();
            for (key, values) in extra {
                let values = values.as_array().unwrap().iter();
                let values: Vec<u8> =
                    values.flat_map(|value| field(1, text(value).as_bytes())).collect();
                fields.extend(field(5, &[field(1, key.as_bytes()), field(2, &values)].concat()));
            }
            fields.extend(texts(&[(6, "uid")], spec));
        }
        raw.extend(field(2, &fields));
        raw.extend(field(3, &[8, 0, 0x12, 0, 0x1a, 0, 0x20, 0]));
    }
    let kind = [field(1, review.api_version.as_bytes()), field(2, review.kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, &raw), field(3, b""), field(4, b"")].concat()
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

/// Returns status, type and body of an answer, without the times that are those of the answer.
fn comparable(answer: &Answer) -> (u16, String, String, String) {
    let mut body = answer.body.to_vec();
    for at in 0..body.len() {
        let rest = &mut body[at..];
        // In protobuf, the seconds and nanoseconds of a `metav1.Time`.
        let is_seconds = rest.len() > 8 && rest[..2] == [8, 8] && rest[7..9] == [0x10, 0];
        if is_seconds {
            rest[2..7].fill(0);
        } else if rest.starts_with(b"20")
            && rest.get(10) == Some(&b'T')
            && rest.get(19) == Some(&b'Z')
        {
            rest[..19].fill(b'0');
        }
    }
    let header = |name: &str| answer.header(name).to_owned();
    let body = String::from_utf8(body.escape_ascii().collect()).unwrap();
    (answer.status, header("content-type"), header("warning"), body)
}
