//! A SelfSubjectAccessReview as JSON.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::upstream::error::UpstreamError;

/// The resource attributes of a review. Empty fields are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ResourceAttributes {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: &'static str,
    pub(super) verb: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) subresource: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'static str,
}

/// Returns the review of one permission.
pub(super) fn request(attributes: &ResourceAttributes) -> Bytes {
    let review = serde_json::json!({
        "kind": KIND,
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": { "resourceAttributes": attributes },
    });
    Bytes::from(review.to_string())
}

/// Returns whether a response allows what was reviewed. Fails if it is not a review.
pub(super) fn is_allowed(response: &[u8]) -> Result<bool, UpstreamError> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        allowed: bool,
    }
    match serde_json::from_slice::<Review>(response) {
        Ok(review) if review.kind == KIND => Ok(review.status.allowed),
        _ => Err(UpstreamError::Malformed(format!("not a {KIND}"))),
    }
}

/// The path to which reviews are posted.
pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const KIND: &str = "SelfSubjectAccessReview";
