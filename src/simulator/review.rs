//! Reviews: objects that can only be created and are answered at once (`docs/semantics.md` §12.2,
//! §12.3).

use std::collections::BTreeMap;

use http::Response;
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::authorizer::{self, Attributes};
use super::identity::{self, API_AUDIENCE, Identity};
use super::json::{text, texts};
use super::kinds::Kind;
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::write::now;
use super::writes::body;

/// Answers the POST of a review.
pub(super) fn create(
    shared: &Shared,
    request: &Request,
    identity: &Identity,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let review = body(request)?;
    if !review.is_object() {
        return Err(ApiError::bad_request("the review is not an object"));
    }
    let status = match kind.resource.as_str() {
        "tokenreviews" => token(shared, &review),
        "selfsubjectreviews" => json!({"userInfo": identity.info()}),
        "selfsubjectrulesreviews" => rules(shared, identity, text(&review, "/spec/namespace")),
        "selfsubjectaccessreviews" => access(shared, identity, &review, &target.namespace),
        _ => access(shared, &named(shared, &review), &review, &target.namespace),
    };
    let mut metadata = Map::new();
    if !target.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), (*target.namespace).into());
    }
    let spec = match kind.resource.as_str() {
        "selfsubjectreviews" => {
            metadata.insert("creationTimestamp".to_owned(), now().into());
            None
        }
        "selfsubjectrulesreviews" => Some(json!({})),
        _ => {
            let spec = ordered(review.get("spec").unwrap_or(&Value::Null));
            let agent = request.header("user-agent").split('/').next().unwrap_or_default();
            let manager = if agent.is_empty() { "unknown" } else { agent };
            let managed = json!([{"manager": manager, "operation": "Update",
                "apiVersion": kind.api_version(), "time": now(), "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": fields(&spec, false)}}]);
            metadata.insert("managedFields".to_owned(), managed);
            Some(spec)
        }
    };
    let answer = [
        ("kind", Some(kind.kind.clone().into())),
        ("apiVersion", Some(kind.api_version().into())),
        ("metadata", Some(metadata.into())),
        ("spec", spec),
        ("status", Some(status)),
    ];
    let answer = answer.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let answer: Value = answer.collect::<Map<_, _>>().into();
    Ok(answer::value(request, 201, &answer))
}

/// Returns a spec with its fields in the order of their declaration, without empty ones.
fn ordered(spec: &Value) -> Value {
    let Value::Object(map) = spec else { return spec.clone() };
    let place = |name: &str| FIELDS.iter().position(|field| *field == name);
    let mut fields: Vec<_> = map.iter().filter(|(_, value)| !is_empty(value)).collect();
    fields.sort_by_key(|(name, _)| (place(name), (*name).clone()));
    fields.into_iter().map(|(name, value)| (name.clone(), ordered(value))).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

/// Returns the managed fields of a value; those of one that may be absent have a dot for itself.
fn fields(value: &Value, may_be_absent: bool) -> Value {
    let present = value.as_object().into_iter().flatten();
    let fields: BTreeMap<_, _> =
        present.map(|(name, value)| (format!("f:{name}"), fields(value, true))).collect();
    let own = (may_be_absent && !fields.is_empty()).then(|| (".".to_owned(), json!({})));
    own.into_iter().chain(fields).collect()
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
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
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

/// The fields of specs, each after those that its type declares before it.
const FIELDS: [&str; 16] = [
    "resourceAttributes",
    "nonResourceAttributes",
    "user",
    "groups",
    "extra",
    "uid",
    "path",
    "namespace",
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "name",
    "fieldSelector",
    "labelSelector",
];
