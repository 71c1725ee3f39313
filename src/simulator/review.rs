//! Reviews: objects that can only be created and are answered at once (`docs/semantics.md` §12.2,
//! §12.3).

use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::authorizer::{self, Attributes};
use super::identity::{self, API_AUDIENCE, Identity};
use super::json::{text, texts};
use super::kinds::Kind;
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
        "tokenreviews" => token(shared, &review),
        "selfsubjectreviews" => json!({"userInfo": identity.info()}),
        "selfsubjectrulesreviews" => rules(shared, identity, text(&review, "/spec/namespace")),
        "selfsubjectaccessreviews" => access(shared, identity, &review, &target.namespace),
        _ => access(shared, &named(shared, &review), &review, &target.namespace),
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

fn token(shared: &Shared, review: &Value) -> Value {
    let audiences = texts(review, "/spec/audiences");
    let authenticated = if shared.options.open() {
        Some((Identity::administrator(), vec![API_AUDIENCE.to_owned()]))
    } else {
        identity::by_token(text(review, "/spec/token"), shared, &audiences)
    };
    match authenticated {
        Some((identity, audiences)) => {
            json!({"authenticated": true, "user": identity.info(), "audiences": audiences})
        }
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
    }
}

/// Returns the user and the groups that a SubjectAccessReview names.
fn named(shared: &Shared, review: &Value) -> Identity {
    let mut groups = texts(review, "/spec/groups");
    // In an open simulator every user is an administrator, whatever the name.
    if shared.options.open() {
        groups.push("system:masters".to_owned());
    }
    let name = text(review, "/spec/user").to_owned();
    let uid = text(review, "/spec/uid").to_owned();
    Identity { name, uid, groups, ..Identity::default() }.with_rules_of(&shared.options.users)
}

fn access(shared: &Shared, identity: &Identity, review: &Value, namespace: &str) -> Value {
    let resource =
        |name: &str| text(review, &format!("/spec/resourceAttributes/{name}")).to_owned();
    let path = |name: &str| text(review, &format!("/spec/nonResourceAttributes/{name}")).to_owned();
    let attributes = match review.pointer("/spec/nonResourceAttributes") {
        Some(Value::Object(_)) => {
            Attributes { verb: path("verb"), path: Some(path("path")), ..Attributes::default() }
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
            path: None,
        },
    };
    let decision = authorizer::authorize(&shared.store, identity, &attributes);
    let mut status = json!({"allowed": decision.allowed});
    if let (false, Some(map)) = (decision.reason.is_empty(), status.as_object_mut()) {
        map.insert("reason".to_owned(), decision.reason.into());
    }
    status
}

fn rules(shared: &Shared, identity: &Identity, namespace: &str) -> Value {
    let configured = identity.rules.iter().map(
        |rule| json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}),
    );
    let (mut resources, paths) = authorizer::rules(&shared.store, identity, namespace);
    resources.extend(configured);
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
