//! A SubjectAccessReview as JSON, with the fields in Go's order and without empty ones
//! (`docs/semantics.md` §12.3).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::auth::access_review::metrics::ReviewOutcome;
use crate::auth::access_review::review::{ReviewDecision, ReviewFailure};
use crate::auth::attributes::{Attributes, FieldRequirement, LabelRequirement, ResourceAttributes};
use crate::auth::user::User;

/// Returns the review of a request of `user` with these `attributes`.
pub(super) fn request(user: &User, attributes: &Attributes) -> Bytes {
    let (resource, path) = match attributes {
        Attributes::NonResource(attributes) => {
            let (path, verb) = (attributes.path.as_str(), attributes.verb.as_str());
            (None, Some(NonResource { path, verb }))
        }
        Attributes::Resource(attributes) => (Some(Resource::new(attributes)), None),
    };
    let review = Review {
        kind: "SubjectAccessReview",
        api_version: "authorization.k8s.io/v1",
        metadata: Empty {},
        spec: Spec {
            resource_attributes: resource,
            non_resource_attributes: path,
            user: &user.name,
            groups: &user.groups,
            extra: &user.extra,
            uid: &user.uid,
        },
        status: RequestStatus { allowed: false },
    };
    // Cannot fail: a review has only strings, and lists and maps of strings.
    serde_json::to_vec(&review).unwrap_or_default().into()
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    spec: Spec<'a>,
    status: RequestStatus,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct RequestStatus {
    allowed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<Resource<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResource<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
struct NonResource<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    verb: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    verb: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_selector: Option<Selector<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<Selector<'a>>,
}

#[derive(Serialize)]
struct Selector<'a> {
    requirements: Vec<Requirement<'a>>,
}

#[derive(Serialize)]
struct Requirement<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<&'a str>,
}

impl<'a> Resource<'a> {
    fn new(attributes: &'a ResourceAttributes) -> Self {
        Self {
            namespace: &attributes.namespace,
            verb: &attributes.verb,
            group: &attributes.gvr.group,
            version: &attributes.gvr.version,
            resource: &attributes.gvr.resource,
            subresource: &attributes.subresource,
            name: &attributes.name,
            field_selector: Selector::from_requirements(&attributes.fields),
            label_selector: Selector::from_requirements(&attributes.labels),
        }
    }
}

impl<'a> Selector<'a> {
    fn from_requirements<R>(requirements: &'a [R]) -> Option<Self>
    where
        Requirement<'a>: From<&'a R>,
    {
        let requirements: Vec<_> = requirements.iter().map(Requirement::from).collect();
        (!requirements.is_empty()).then_some(Self { requirements })
    }
}

impl<'a> From<&'a FieldRequirement> for Requirement<'a> {
    fn from(field: &'a FieldRequirement) -> Self {
        let operator = if field.equal { "In" } else { "NotIn" };
        Self { key: &field.key, operator, values: vec![&field.value] }
    }
}

impl<'a> From<&'a LabelRequirement> for Requirement<'a> {
    fn from(label: &'a LabelRequirement) -> Self {
        let values = label.values.iter().map(|value| &**value).collect();
        Self { key: &label.key, operator: label.operator.as_str(), values }
    }
}
