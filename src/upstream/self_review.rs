//! SelfSubjectAccessReviews: whether Weir's own identity has a permission.
//!
//! Every authenticated user may create them, unless the cluster's roles were changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// The resource attributes of a review. Empty fields are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ResourceAttributes<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) namespace: &'a str,
    pub(crate) verb: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
}

/// Returns whether Weir's own identity may list and watch a resource; an empty `namespace` means
/// all. An upstream that forbids even the review denies it.
pub(crate) async fn may_list_and_watch(
    upstream: &Upstream,
    group: &str,
    resource: &str,
    namespace: &str,
) -> Result<bool, UpstreamError> {
    for verb in ["list", "watch"] {
        let attributes =
            ResourceAttributes { namespace, verb, group, resource, ..Default::default() };
        match post(upstream, request(&attributes)).await.and_then(|body| is_allowed(&body)) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(UpstreamError::Status { code: StatusCode::FORBIDDEN, .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Posts a review and returns the response.
pub(crate) async fn post(upstream: &Upstream, review: Bytes) -> Result<Bytes, UpstreamError> {
    post_review(upstream, PATH, review, RESPONSE_MAX_BYTES).await
}

/// Returns the review of one permission.
pub(crate) fn request(attributes: &ResourceAttributes<'_>) -> Bytes {
    let review = serde_json::json!({
        "kind": KIND,
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": { "resourceAttributes": attributes },
    });
    Bytes::from(review.to_string())
}

/// Returns whether a response allows what was reviewed, without a condition: a field that is not
/// known may be one (KEP-5681). Fails if it is not a review.
pub(crate) fn is_allowed(response: &[u8]) -> Result<bool, UpstreamError> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        allowed: bool,
        #[serde(default, rename = "reason")]
        _reason: IgnoredAny,
        #[serde(default, rename = "evaluationError")]
        _evaluation_error: IgnoredAny,
        #[serde(flatten)]
        others: BTreeMap<String, IgnoredAny>,
    }
    match serde_json::from_slice::<Review>(response) {
        Ok(Review { kind, status }) if kind == KIND => {
            Ok(status.allowed && status.others.is_empty())
        }
        _ => Err(UpstreamError::Malformed(format!("not a {KIND}"))),
    }
}

/// The path to which reviews are posted.
pub(crate) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const KIND: &str = "SelfSubjectAccessReview";
/// A response repeats the request; with managed fields it has less than a kilobyte.
const RESPONSE_MAX_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::upstream::testing::{ServerOptions, TestServer, answer};

    #[tokio::test]
    async fn a_permission_to_list_and_watch_is_denied_by_either_review() {
        for (code, denied, expected) in [
            (201, "none", Some(true)),
            (201, "list", Some(false)),
            (201, "watch", Some(false)),
            (403, "none", Some(false)),
            (503, "none", None),
        ] {
            let asked = std::sync::Arc::new(Mutex::new(Vec::new()));
            let seen = asked.clone();
            let server = TestServer::start(ServerOptions::http1(), move |request| {
                let seen = seen.clone();
                async move {
                    use http_body_util::BodyExt as _;
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    let attributes = review["spec"]["resourceAttributes"].clone();
                    let allowed = attributes["verb"] != denied;
                    seen.lock().push(attributes);
                    let reply = serde_json::json!({"kind": KIND, "status": {"allowed": allowed}});
                    answer(code, reply.to_string())
                }
            })
            .await;
            let upstream = server.upstream(false).await;
            let allowed = may_list_and_watch(&upstream, "apps", "deployments", "team").await;
            assert_eq!(allowed.ok(), expected, "{code} {denied}");
            let first = asked.lock().first().cloned().unwrap();
            let list = serde_json::json!({"namespace": "team", "verb": "list", "group": "apps", "resource": "deployments"});
            assert_eq!(first, list);
        }
    }
}
