//! TokenRequests: the POST of the subresource `token` of a service account.

use http::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::identity::API_AUDIENCE;
use super::json::texts;
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::tokens::{Token, account};
use super::writes::body;

/// The default lifetime of a token, in seconds.
const SECONDS: i64 = 3600;

/// Answers the POST of a TokenRequest.
pub(super) fn request(
    shared: &Shared,
    request: &Request,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let wanted = if request.body.is_empty() { Value::Null } else { body(request)? };
    let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
    let not_found = || ApiError::not_found("", "serviceaccounts", name);
    let uid = account(&shared.store, namespace, name).ok_or_else(not_found)?;
    let mut audiences = texts(&wanted, "/spec/audiences");
    if audiences.is_empty() {
        audiences.push(API_AUDIENCE.to_owned());
    }
    let seconds =
        wanted.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS);
    let now = Timestamp::now();
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let formatted = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let token = shared.tokens.issue(Token {
        namespace: namespace.to_owned(),
        account: name.to_owned(),
        uid,
        id: uuid::Uuid::new_v4().to_string(),
        audiences: audiences.clone(),
        expires,
    });
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": formatted(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": formatted(expires)},
    });
    Ok(answer::value(request, 201, &answer))
}
