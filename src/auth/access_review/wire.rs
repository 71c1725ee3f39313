//! A SubjectAccessReview as JSON, with the fields in Go's order and without empty ones
//! (`docs/semantics.md` §12.3).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::auth::access_review::metrics::ReviewOutcome;
use crate::auth::access_review::review::{ReviewDecision, ReviewFailure};
use crate::auth::attributes::{Attributes, FieldRequirement, LabelRequirement, ResourceAttributes};
use crate::auth::user::User;

/// Returns the review of a request of `user` with these `attributes`.
pub(super) fn request(user: &User, attributes: &Attributes) -> Bytes {
    let (field, asked) = match attributes {
        Attributes::NonResource(attributes) => {
            let asked = non_empty([("path", &attributes.path), ("verb", &attributes.verb)]);
            ("nonResourceAttributes", asked)
        }
        Attributes::Resource(attributes) => ("resourceAttributes", resource(attributes)),
    };
    let mut spec = Map::from_iter([(field.to_owned(), asked.into())]);
    spec.extend(non_empty([("user", &user.name)]));
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    spec.extend(non_empty([("uid", &user.uid)]));
    let review = json!({
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": { "allowed": false },
    });
    review.to_string().into()
}

fn resource(attributes: &ResourceAttributes) -> Map<String, Value> {
    let mut asked = non_empty([
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.gvr.group),
        ("version", &attributes.gvr.version),
        ("resource", &attributes.gvr.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]);
    let field = |field: &FieldRequirement| {
        let operator = if field.equal { "In" } else { "NotIn" };
        json!({ "key": field.key, "operator": operator, "values": [field.value] })
    };
    let label = |label: &LabelRequirement| {
        let (key, operator) = (&label.key, label.operator.as_str());
        match label.values.as_slice() {
            [] => json!({ "key": key, "operator": operator }),
            values => json!({ "key": key, "operator": operator, "values": values }),
        }
    };
    let fields: Vec<_> = attributes.fields.iter().map(field).collect();
    let labels: Vec<_> = attributes.labels.iter().map(label).collect();
    for (selector, requirements) in [("fieldSelector", fields), ("labelSelector", labels)] {
        if !requirements.is_empty() {
            asked.insert(selector.to_owned(), json!({ "requirements": requirements }));
        }
    }
    asked
}

/// Returns the texts that are not empty, by their names.
fn non_empty<const N: usize>(texts: [(&str, &str); N]) -> Map<String, Value> {
    let given = texts.into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(name, text)| (name.to_owned(), text.into())).collect()
}

/// Returns the status of a response; `None` if it has none.
fn status(body: &[u8]) -> Option<Status> {
    #[derive(Deserialize)]
    struct Response {
        status: Status,
    }
    serde_json::from_slice(body).ok().map(|response: Response| response.status)
}

/// Reads the decision in a response. A denial with an evaluation error counts as no decision: the
/// API server answers such a request with 500 and a message that Weir does not have. So does a
/// response with a field that Weir does not know: the decision may have a condition.
pub(super) fn evaluate(body: &Bytes) -> (ReviewOutcome, Result<ReviewDecision, ReviewFailure>) {
    let Some(status) = status(body) else {
        return (ReviewOutcome::Failed, Err(ReviewFailure::Refused));
    };
    if !status.others.is_empty() {
        return (ReviewOutcome::Undecided, Err(ReviewFailure::Refused));
    }
    let allowed = status.allowed && !status.denied;
    if !allowed && (status.allowed || !status.evaluation_error.is_empty()) {
        return (ReviewOutcome::Undecided, Err(ReviewFailure::Refused));
    }
    let outcome = if allowed { ReviewOutcome::Allowed } else { ReviewOutcome::Denied };
    (outcome, Ok(ReviewDecision { allowed, reason: status.reason.into() }))
}

/// `SubjectAccessReviewStatus`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Whether an authorizer allows it.
    allowed: bool,
    /// Whether an authorizer forbids it.
    #[serde(default)]
    denied: bool,
    /// The reason.
    #[serde(default)]
    reason: String,
    /// An error of an authorizer. The review may be allowed nevertheless.
    #[serde(default)]
    evaluation_error: String,
    /// All other fields. Those of conditional authorization (KEP-5681: `conditions`,
    /// `conditionalDecisionChain`) say that the decision depends on the request's content.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}
