//! Reviews: objects that are only ever created, and answered at once (semantics.md §12.2, §12.3).

use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::identity::{Attributes, Identity};
use super::kinds::{Kind, text, texts};
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::writes::body;

/// Answers the POST of a review.
pub(super) fn create(
    shared: &Shared,
    request: &Request,
    identity: &Identity,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let mut review = body(request)?;
    let status = match kind.resource.as_str() {
        "tokenreviews" => token(shared, text(&review, "/spec/token")),
        "selfsubjectreviews" => json!({"userInfo": user_info(identity)}),
        "selfsubjectrulesreviews" => rules(identity),
        "selfsubjectaccessreviews" => access(identity, &review, &target.namespace),
        _ => access(&named(shared, &review), &review, &target.namespace),
    };
    let Some(map) = review.as_object_mut() else {
        return Err(ApiError::bad_request("the review is not an object"));
    };
    map.insert("kind".to_owned(), kind.kind.clone().into());
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.entry("metadata").or_insert_with(|| json!({}));
    map.insert("status".to_owned(), status);
    Ok(answer::value(request, 201, &review))
}

fn token(shared: &Shared, token: &str) -> Value {
    let users = &shared.options.users;
    let found = if users.is_empty() {
        Identity::of(&http::HeaderMap::new(), users).ok()
    } else {
        Identity::by_value(token, users)
    };
    match found {
        Some(identity) => json!({"authenticated": true, "user": user_info(&identity),
            "audiences": ["https://kubernetes.default.svc.cluster.local"]}),
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
    }
}

fn user_info(identity: &Identity) -> Value {
    json!({"username": identity.name, "groups": identity.groups})
}

/// The user whom a SubjectAccessReview names.
fn named(shared: &Shared, review: &Value) -> Identity {
    let name = text(review, "/spec/user");
    let known = shared.options.users.iter().find(|user| user.name == name);
    let mut groups = texts(review, "/spec/groups");
    groups.extend(known.into_iter().flat_map(|user| user.groups.clone()));
    // Without configured users everybody is an administrator, whoever they are called.
    if shared.options.users.is_empty() {
        groups.push("system:masters".to_owned());
    }
    let rules = known.map(|user| user.rules.clone()).unwrap_or_default();
    Identity { name: name.to_owned(), groups, rules }
}

fn access(identity: &Identity, review: &Value, namespace: &str) -> Value {
    let resource =
        |name: &str| text(review, &format!("/spec/resourceAttributes/{name}")).to_owned();
    let path = |name: &str| text(review, &format!("/spec/nonResourceAttributes/{name}")).to_owned();
    let attributes = match review.pointer("/spec/nonResourceAttributes") {
        Some(Value::Object(_)) => {
            Attributes { verb: path("verb"), path: path("path"), ..Attributes::default() }
        }
        _ => Attributes {
            verb: resource("verb"),
            group: resource("group"),
            resource: resource("resource"),
            subresource: resource("subresource"),
            namespace: match resource("namespace") {
                none if none.is_empty() => namespace.to_owned(),
                given => given,
            },
            name: resource("name"),
            path: String::new(),
        },
    };
    if identity.may(&attributes) {
        json!({"allowed": true, "reason": "allowed by the simulator's rules"})
    } else {
        json!({"allowed": false})
    }
}

fn rules(identity: &Identity) -> Value {
    let admin = identity.groups.iter().any(|group| group == "system:masters");
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let own = identity.rules.iter().map(
        |rule| json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}),
    );
    let resource_rules: Vec<Value> = if admin { vec![all] } else { own.collect() };
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/api", "/apis", "/version"]}]);
    json!({"resourceRules": resource_rules, "nonResourceRules": paths, "incomplete": false})
}
