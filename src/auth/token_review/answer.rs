//! A TokenReview as it is sent, and what its answer says.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::auth::user::User;
use crate::upstream::error::UpstreamError;

/// What an answer says.
#[derive(Debug)]
pub(super) enum Judgement {
    /// It is this user's token.
    Authenticated(User),
    /// It is nobody's, or not for any of the audiences.
    Refused,
}

/// The question. Without audiences it is for the API server's own.
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

/// What the answer to a review for these audiences says. What is not a TokenReview in its every word says nothing.
pub(super) fn judge(answer: &[u8], audiences: &[String]) -> Result<Judgement, UpstreamError> {
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
    // serde's own words would quote what stands there.
    let unreadable = || UpstreamError::Malformed("not a TokenReview".to_owned());
    let review: Review = serde_json::from_slice(answer).map_err(|_| unreadable())?;
    if review.kind != KIND {
        return Err(unreadable());
    }
    let Status { authenticated, user, audiences: given } = review.status;
    if !authenticated {
        return Ok(Judgement::Refused);
    }
    // A server that knows nothing of audiences names none, and says of a token for itself that it is good.
    let given = given.unwrap_or_default();
    if !audiences.is_empty() && !audiences.iter().any(|audience| given.contains(audience)) {
        return Ok(Judgement::Refused);
    }
    if user.username.is_empty() {
        return Err(unreadable());
    }
    let extra = user.extra.unwrap_or_default().into_iter();
    let extra = extra.map(|(key, values)| (key, values.unwrap_or_default())).collect();
    let user = User::new(user.username, user.uid, user.groups.unwrap_or_default(), extra);
    Ok(Judgement::Authenticated(user))
}

/// When a JWT expires (`exp`, RFC 7519 §4.1.4); `None` for other tokens. Nothing of it is verified: it may only shorten what the upstream said.
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
    // What is before 1970 is over; what no clock will show is never.
    let since = Duration::try_from_secs_f64(exp.max(0.0)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

const KIND: &str = "TokenReview";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As kube-apiserver v1.36 answers.
    fn answer(status: &str) -> String {
        format!(
            r#"{{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{{"managedFields":[{{"manager":"weir"}}]}},"spec":{{"token":"secret"}},"status":{status}}}"#
        )
    }

    fn judge_status(status: &str, audiences: &[&str]) -> Result<Judgement, UpstreamError> {
        let audiences: Vec<String> = audiences.iter().map(|&name| name.to_owned()).collect();
        judge(answer(status).as_bytes(), &audiences)
    }

    const GOOD: &str = r#"{"authenticated":true,"user":{"username":"system:serviceaccount:default:s1","uid":"664d","groups":["system:serviceaccounts","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1"]}},"audiences":["foo"]}"#;

    #[test]
    fn an_answer_is_read() {
        let Ok(Judgement::Authenticated(user)) = judge_status(GOOD, &[]) else { panic!() };
        assert_eq!(user.name, "system:serviceaccount:default:s1");
        assert_eq!((user.uid.as_str(), user.groups.len(), user.extra.len()), ("664d", 2, 1));
        let bad = r#"{"user":{},"error":"invalid bearer token"}"#;
        assert!(matches!(judge_status(bad, &[]), Ok(Judgement::Refused)));
    }

    #[test]
    fn a_token_must_be_for_one_of_the_audiences() {
        assert!(matches!(judge_status(GOOD, &["bar", "foo"]), Ok(Judgement::Authenticated(_))));
        assert!(matches!(judge_status(GOOD, &["bar"]), Ok(Judgement::Refused)));
        let unaware = r#"{"authenticated":true,"user":{"username":"a"}}"#;
        assert!(matches!(judge_status(unaware, &["bar"]), Ok(Judgement::Refused)));
        assert!(matches!(judge_status(unaware, &[]), Ok(Judgement::Authenticated(_))));
    }

    #[test]
    fn what_is_no_review_says_nothing() {
        for answer in [
            "",
            "{}",
            r#"{"kind":"Status","status":"Failure"}"#,
            r#"{"kind":"Status","status":{}}"#,
            r#"{"kind":"TokenReview"}"#,
            r#"{"kind":"TokenReview","status":null}"#,
            r#"{"kind":"TokenReview","status":{"authenticated":true,"user":{}}}"#,
        ] {
            let error = judge(answer.as_bytes(), &[]).unwrap_err();
            assert!(matches!(error, UpstreamError::Malformed(_)), "{answer}");
        }
    }

    #[test]
    fn a_review_is_written() {
        let written = request("a\"b", &["x".to_owned()]);
        let read: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(read["spec"], serde_json::json!({"token": "a\"b", "audiences": ["x"]}));
        assert!(!String::from_utf8_lossy(&request("a", &[])).contains("audiences"));
    }

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_jwt_says_when_it_expires() {
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
        fn any_token_is_looked_at(token in ".{0,60}", claims in ".{0,40}") {
            let _end = expiry(&token);
            let _end = expiry(&jwt(&claims));
        }
    }
}
