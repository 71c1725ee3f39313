//! `Status` objects that Weir writes: its few own errors (`docs/decisions/own-errors.md`), the 404
//! of a GET from a cache, and the 410 in its watch streams (`docs/semantics.md` §4.2, §5.8). All
//! other errors come from the API server.

use bytes::Bytes;
use http::StatusCode;

use crate::json_string::push_string;
use crate::resource_version::ResourceVersion;

/// A failure in Kubernetes' form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status.
    pub code: StatusCode,
    /// The machine-readable reason, such as `Expired`; empty for none.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The object or resource of the failure; a default value gives empty `details`.
    pub details: Option<Box<StatusDetails>>,
    /// Seconds after which a retry may succeed. Written to `details` and to the `Retry-After`
    /// header.
    pub retry_after_seconds: Option<u32>,
}

/// The object or resource of a failure; absent parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The object's name.
    pub name: String,
    /// The resource's group.
    pub group: String,
    /// The resource; most errors have it in place of the kind.
    pub kind: String,
}

impl Status {
    /// Returns the 410 for a resourceVersion that is too old for a watch. `oldest` is the oldest
    /// one from which a watch could begin, which is the one before the oldest event of the history
    /// (`docs/semantics.md` §5.8).
    pub fn expired(requested: ResourceVersion, oldest: ResourceVersion) -> Self {
        Self {
            code: StatusCode::GONE,
            reason: "Expired",
            message: format!("too old resource version: {requested} ({oldest})"),
            details: None,
            retry_after_seconds: None,
        }
    }

    /// Returns the API server's 429 for a cache that is not ready; Weir uses it when the forward
    /// budget is exhausted, too (`docs/semantics.md` §2.5).
    pub fn initializing() -> Self {
        Self {
            code: StatusCode::TOO_MANY_REQUESTS,
            reason: "TooManyRequests",
            message: "storage is (re)initializing".to_owned(),
            details: None,
            retry_after_seconds: Some(RETRY_AFTER_SECONDS),
        }
    }

    /// Returns the API server's 404 for an object that does not exist (`docs/semantics.md` §4.2).
    /// Returns `None` for a name that is no single segment of a path, which the API server refuses
    /// (§4.3), and for one that Go would quote in its own way.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if matches!(name, "" | "." | "..") || !name.bytes().all(is_plain) {
            return None;
        }
        let separator = if group.is_empty() { "" } else { "." };
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: resource.to_owned(),
        };
        Some(Self {
            code: StatusCode::NOT_FOUND,
            reason: "NotFound",
            message: format!("{resource}{separator}{group} \"{name}\" not found"),
            details: Some(Box::new(details)),
            retry_after_seconds: None,
        })
    }

    /// Returns the 503 for an API server that could not be reached. No request was sent.
    pub fn upstream_unreachable(retry_after_seconds: u32) -> Self {
        Self {
            code: StatusCode::SERVICE_UNAVAILABLE,
            reason: "ServiceUnavailable",
            message: "weir: the upstream API server cannot be reached; nothing was sent to it"
                .to_owned(),
            details: None,
            retry_after_seconds: Some(retry_after_seconds),
        }
    }

    /// Returns the 502 for a response that was lost after the request had been sent. Kubernetes has
    /// no reason for it, and there is no time after which a retry is known to be safe.
    pub fn upstream_lost() -> Self {
        Self {
            code: StatusCode::BAD_GATEWAY,
            reason: "",
            message:
                "weir: the upstream API server's answer was lost; the request may have taken effect"
                    .to_owned(),
            details: None,
            retry_after_seconds: None,
        }
    }

    /// Returns the 504 for a request that was sent and got no answer in the time that the API
    /// server itself has for it.
    pub fn upstream_timeout() -> Self {
        Self {
            code: StatusCode::GATEWAY_TIMEOUT,
            reason: "Timeout",
            message:
                "weir: the upstream API server did not answer; the request may have taken effect"
                    .to_owned(),
            details: None,
            retry_after_seconds: None,
        }
    }

    /// Returns the compact JSON, byte for byte as Go writes it, without a trailing newline.
    pub fn to_json(&self) -> Bytes {
        let mut json =
            br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure""#.to_vec();
        for (key, text) in [("message", self.message.as_str()), ("reason", self.reason)] {
            if !text.is_empty() {
                json.extend_from_slice(format!(",\"{key}\":").as_bytes());
                push_string(&mut json, text.as_bytes());
            }
        }
        self.push_details(&mut json);
        json.extend_from_slice(format!(r#","code":{}}}"#, self.code.as_u16()).as_bytes());
        Bytes::from(json)
    }

    fn push_details(&self, json: &mut Vec<u8>) {
        let seconds = self.retry_after_seconds.filter(|seconds| *seconds > 0);
        if self.details.is_none() && seconds.is_none() {
            return;
        }
        json.extend_from_slice(b",\"details\":{");
        let mut separator = "";
        if let Some(details) = &self.details {
            let texts =
                [("name", &details.name), ("group", &details.group), ("kind", &details.kind)];
            for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                json.extend_from_slice(format!("{separator}\"{key}\":").as_bytes());
                push_string(json, text.as_bytes());
                separator = ",";
            }
        }
        if let Some(seconds) = seconds {
            let field = format!("{separator}\"retryAfterSeconds\":{seconds}");
            json.extend_from_slice(field.as_bytes());
        }
        json.push(b'}');
    }
}

/// The value that the API server sends while its own cache initializes.
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(status: &Status) -> String {
        String::from_utf8(status.to_json().to_vec()).unwrap()
    }

    #[test]
    fn expired_is_the_upstreams_byte_for_byte() {
        assert_eq!(
            text(&Status::expired(ResourceVersion(30), ResourceVersion(450))),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 30 (450)","reason":"Expired","code":410}"#
        );
    }

    #[test]
    fn initializing_is_the_upstreams_byte_for_byte() {
        assert_eq!(
            text(&Status::initializing()),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#
        );
    }

    #[test]
    fn not_found_is_the_upstreams_byte_for_byte() {
        let not_found =
            |group, name| Status::not_found(group, "widgets", name).map(|status| text(&status));
        assert_eq!(
            not_found("example.com", "nope").unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets.example.com \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"example.com","kind":"widgets"},"code":404}"#
        );
        assert_eq!(
            not_found("", "system:x.y").unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets \"system:x.y\" not found","reason":"NotFound","details":{"name":"system:x.y","kind":"widgets"},"code":404}"#
        );
        for name in ["", ".", "..", "a%b", "a/b", "a\"b", "a b", "é"] {
            assert_eq!(not_found("", name), None, "{name}");
        }
    }

    #[test]
    fn weirs_own_errors_name_weir() {
        let unreachable = text(&Status::upstream_unreachable(3));
        assert!(unreachable.contains(r#""message":"weir: "#));
        assert!(unreachable.ends_with(
            r#","reason":"ServiceUnavailable","details":{"retryAfterSeconds":3},"code":503}"#
        ));
        let lost = text(&Status::upstream_lost());
        assert!(lost.contains(r#""message":"weir: "#) && lost.ends_with(r#"effect","code":502}"#));
        let late = text(&Status::upstream_timeout());
        assert!(late.contains(r#""message":"weir: "#));
        assert!(late.ends_with(r#"effect","reason":"Timeout","code":504}"#));
    }

    #[test]
    fn details_have_the_order_of_the_upstream() {
        let text_with = |details, retry_after_seconds| {
            text(&Status {
                details: Some(Box::new(details)),
                retry_after_seconds,
                ..Status::upstream_lost()
            })
        };
        let details = StatusDetails {
            name: "<a>".to_owned(),
            group: "apps".to_owned(),
            kind: "deployments".to_owned(),
        };
        let named = r#""details":{"name":"\u003ca\u003e","group":"apps","kind":"deployments"}"#;
        assert!(text_with(details.clone(), None).contains(named));
        let core = StatusDetails { group: String::new(), ..details };
        assert!(
            text_with(core, Some(2)).contains(r#"","kind":"deployments","retryAfterSeconds":2}"#)
        );
        assert!(text_with(StatusDetails::default(), Some(0)).contains(r#","details":{},"code":"#));
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        let status = Status {
            code: StatusCode::BAD_REQUEST,
            reason: "",
            message: "<a href=\"x\">&\\\n\r\t\u{8}\u{c}\u{1}\u{7f}é\u{2028}\u{2029}😀".to_owned(),
            details: None,
            retry_after_seconds: None,
        };
        let expected = r#""message":"\u003ca href=\"x\"\u003e\u0026\\\n\r\t\b\f\u0001"#.to_owned()
            + "\u{7f}é\\u2028\\u2029😀\"";
        assert!(text(&status).contains(&expected), "{}", text(&status));
    }

    proptest! {
        #[test]
        fn any_message_is_valid_json(message in any::<String>()) {
            let status = Status { message: message.clone(), ..Status::initializing() };
            let value: serde_json::Value = serde_json::from_slice(&status.to_json()).unwrap();
            prop_assert_eq!(value.get("message").and_then(|m| m.as_str()).unwrap_or(""), message);
        }
    }
}
