//! Writes a TokenReview, parses its response, and says what its failure means.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::auth::reviewer::backoff::{BACKOFF, Failure, Outage, is_outage, throttle_pause};
use crate::auth::user::User;
use crate::upstream::error::UpstreamError;

/// The status of a TokenReview.
#[derive(Debug)]
pub(super) enum ReviewStatus {
    /// The token belongs to this user.
    Authenticated(User),
    /// The token is invalid, or not for any of the audiences.
    Refused,
}

/// Returns the body of a TokenReview. Without audiences, the API server reviews the token for its
/// own audiences.
pub(super) fn request(token: &str, audiences: &[String]) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Review<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: Empty,
        spec: Spec<'a>,
    }
    #[derive(Serialize)]
    struct Empty {}
    #[derive(Serialize)]
    struct Spec<'a> {
        token: &'a str,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        audiences: &'a [String],
    }
    let review = Review {
        kind: KIND,
        api_version: "authentication.k8s.io/v1",
        metadata: Empty {},
        spec: Spec { token, audiences },
    };
    // Strings and structs always serialize; the upstream would refuse an empty body.
    Bytes::from(serde_json::to_vec(&review).unwrap_or_default())
}

/// Parses the response to a review for these audiences. Anything but a complete TokenReview is an
/// error.
pub(super) fn parse(response: &[u8], audiences: &[String]) -> Result<ReviewStatus, UpstreamError> {
    #[derive(Deserialize)]
    struct Review {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Status {
        authenticated: bool,
        user: UserInfo,
        audiences: Option<Vec<String>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct UserInfo {
        username: String,
        uid: String,
        groups: Option<Vec<String>>,
        extra: Option<BTreeMap<String, Option<Vec<String>>>>,
    }
    // serde's own message would quote the response, which contains the token.
    let unreadable = || UpstreamError::Malformed("not a TokenReview".to_owned());
    let review: Review = serde_json::from_slice(response).map_err(|_| unreadable())?;
    if review.kind != KIND {
        return Err(unreadable());
    }
    let Status { authenticated, user, audiences: given } = review.status;
    if !authenticated {
        return Ok(ReviewStatus::Refused);
    }
    // A server without support for audiences lists none. Its status applies to its own audiences
    // only.
    let given = given.unwrap_or_default();
    if !audiences.is_empty() && !audiences.iter().any(|audience| given.contains(audience)) {
        return Ok(ReviewStatus::Refused);
    }
    if user.username.is_empty() {
        return Err(unreadable());
    }
    let extra = user.extra.unwrap_or_default().into_iter();
    let extra = extra.map(|(key, values)| (key, values.unwrap_or_default())).collect();
    let user = User::new(user.username, user.uid, user.groups.unwrap_or_default(), extra);
    Ok(ReviewStatus::Authenticated(user))
}

/// Returns when a JWT expires (`exp`, RFC 7519 §4.1.4); `None` for other tokens. The signature is
/// not verified: the time can only shorten how long the upstream's answer is used.
pub(super) fn expiry(token: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let Claims { exp } = serde_json::from_slice(&claims).ok()?;
    // A time before 1970 counts as expired; a time beyond the range of the clock as no expiry.
    let since = Duration::try_from_secs_f64(exp.max(0.0)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// Returns how to back off after a failed review. All reviews pause only if the failure cannot be
/// caused by one token.
pub(super) fn backoff(error: &UpstreamError) -> Failure {
    let pause = match error {
        UpstreamError::Credentials(_)
        | UpstreamError::Connect { .. }
        | UpstreamError::Exhausted { .. } => Some(BACKOFF),
        UpstreamError::Status { code, retry_after, .. } => match *code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(BACKOFF),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some(throttle_pause(*retry_after))
            }
            _ => None,
        },
        _ => None,
    };
    let outage = is_outage(error)
        .then(|| Outage { is_certain: pause.is_some(), remember_for: pause.unwrap_or(BACKOFF) });
    Failure { outage, pause }
}

/// Logs the first failure. The upstream's message is not logged, because it could quote the token.
pub(super) fn log_failure(error: &UpstreamError) {
    let code = match error {
        UpstreamError::Status { code, .. } => Some(code.as_u16()),
        _ => None,
    };
    tracing::warn!(
        cause = error.cause(),
        code,
        "a token review failed; requests with unknown tokens are forwarded"
    );
}

const KIND: &str = "TokenReview";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a response as kube-apiserver v1.36 writes it.
    fn response(status: &str) -> String {
        format!(
            r#"{{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{{"managedFields":[{{"manager":"weir"}}]}},"spec":{{"token":"secret"}},"status":{status}}}"#
        )
    }

    fn parse_status(status: &str, audiences: &[&str]) -> Result<ReviewStatus, UpstreamError> {
        let audiences: Vec<String> = audiences.iter().map(|&name| name.to_owned()).collect();
        parse(response(status).as_bytes(), &audiences)
    }

    const GOOD: &str = r#"{"authenticated":true,"user":{"username":"system:serviceaccount:default:s1","uid":"664d","groups":["system:serviceaccounts","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1"]}},"audiences":["foo"]}"#;

    #[test]
    fn a_response_is_parsed() {
        let Ok(ReviewStatus::Authenticated(user)) = parse_status(GOOD, &[]) else { panic!() };
        assert_eq!(user.name, "system:serviceaccount:default:s1");
        assert_eq!((user.uid.as_str(), user.groups.len(), user.extra.len()), ("664d", 2, 1));
        let bad = r#"{"user":{},"error":"invalid bearer token"}"#;
        assert!(matches!(parse_status(bad, &[]), Ok(ReviewStatus::Refused)));
    }

    #[test]
    fn a_token_must_be_for_one_of_the_audiences() {
        assert!(matches!(parse_status(GOOD, &["bar", "foo"]), Ok(ReviewStatus::Authenticated(_))));
        assert!(matches!(parse_status(GOOD, &["bar"]), Ok(ReviewStatus::Refused)));
        let unaware = r#"{"authenticated":true,"user":{"username":"a"}}"#;
        assert!(matches!(parse_status(unaware, &["bar"]), Ok(ReviewStatus::Refused)));
        assert!(matches!(parse_status(unaware, &[]), Ok(ReviewStatus::Authenticated(_))));
    }

    #[test]
    fn anything_else_is_an_error() {
        for response in [
            "",
            "{}",
            r#"{"kind":"Status","status":"Failure"}"#,
            r#"{"kind":"Status","status":{}}"#,
            r#"{"kind":"TokenReview"}"#,
            r#"{"kind":"TokenReview","status":null}"#,
            r#"{"kind":"TokenReview","status":{"authenticated":true,"user":{}}}"#,
        ] {
            let error = parse(response.as_bytes(), &[]).unwrap_err();
            assert!(matches!(error, UpstreamError::Malformed(_)), "{response}");
        }
    }

    #[test]
    fn a_request_is_written() {
        let written = request("a\"b", &["x".to_owned()]);
        let read: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(read["spec"], serde_json::json!({"token": "a\"b", "audiences": ["x"]}));
        assert!(!String::from_utf8_lossy(&request("a", &[])).contains("audiences"));
    }

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn the_expiry_of_a_jwt_is_read() {
        let at = |claims: &str| {
            expiry(&jwt(claims)).map(|end| end.duration_since(SystemTime::UNIX_EPOCH).unwrap())
        };
        assert_eq!(
            at(r#"{"aud":["a"],"exp":1795278691}"#),
            Some(Duration::from_secs(1_795_278_691))
        );
        assert_eq!(at(r#"{"exp":1.5}"#), Some(Duration::from_millis(1500)));
        assert_eq!(at(r#"{"exp":-1}"#), Some(Duration::ZERO));
        for claims in ["{}", r#"{"exp":"soon"}"#, r#"{"exp":1e300}"#, "no"] {
            assert_eq!(at(claims), None, "{claims}");
        }
        assert_eq!(expiry("opaque"), None);
        assert_eq!(expiry("a.b.c.d"), None);
    }

    proptest! {
        #[test]
        fn any_token_is_accepted_without_a_panic(token in ".{0,60}", claims in ".{0,40}") {
            let _end = expiry(&token);
            let _end = expiry(&jwt(&claims));
        }
    }
}
