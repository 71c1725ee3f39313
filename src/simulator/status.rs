//! The errors that the simulator answers with, as `Status` objects in the upstream's words
//! (`docs/semantics.md` §15). They are separate from `api::status`, which holds only Weir's own
//! errors: the two sides of a test must not share their messages.

use serde_json::{Map, Value, json};

use super::protobuf;

/// An error response.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    /// The HTTP status.
    pub(super) code: u16,
    /// The reason; empty for none.
    pub(super) reason: &'static str,
    /// The human-readable message.
    pub(super) message: String,
    /// `details`, without `retryAfterSeconds`.
    pub(super) details: Option<Box<Map<String, Value>>>,
    /// The token with which an expired list can continue.
    pub(super) continue_token: Option<String>,
    /// The seconds for `details` and the `Retry-After` header.
    pub(super) retry_after: Option<u32>,
    /// Whether it is written as plain text instead of a `Status`.
    pub(super) plain: bool,
}

impl ApiError {
    /// Returns an error with only a code, a reason and a message.
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            retry_after: None,
            plain: false,
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns the 404 of an object (`docs/semantics.md` §4.2).
    pub(super) fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// Returns the 404 of a resource that a known group does not have (`docs/semantics.md` §4.4).
    pub(super) fn unknown_resource() -> Self {
        let mut error =
            Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::default());
        error
    }

    /// Returns the plain-text 404 of an unknown path.
    pub(super) fn unknown_path() -> Self {
        let mut error = Self::new(404, "", "404 page not found\n");
        error.plain = true;
        error
    }

    pub(super) fn method_not_allowed() -> Self {
        let mut error = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        error.details = Some(Box::default());
        error
    }

    /// Returns the 409 of a creation.
    pub(super) fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// Returns the 409 of a change.
    pub(super) fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(group, resource)
        );
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// Returns the 504 of a resourceVersion that was not reached in time (`docs/semantics.md`
    /// §2.2).
    pub(super) fn too_large(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(504, "Timeout", message);
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = Some(Box::new(Map::from_iter([("causes".to_owned(), json!([cause]))])));
        error.retry_after = Some(1);
        error
    }

    /// Returns the 410 of a watch (`docs/semantics.md` §5.8).
    pub(super) fn watch_expired(requested: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {requested} ({oldest})"))
    }

    /// Returns the 422 of list options. Each cause is field, type and text (`docs/semantics.md`
    /// §1.5).
    pub(super) fn invalid_options(causes: &[(&str, &str, String)]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|(field, _, text)| format!("{field}: {text}")) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let body = match texts.as_slice() {
            [text] => text.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {body}");
        let mut error = Self::new(422, "Invalid", message);
        let causes: Vec<Value> = causes
            .iter()
            .map(|(field, kind, text)| json!({"reason": kind, "message": text, "field": field}))
            .collect();
        error.details = Some(Box::new(Map::from_iter([
            ("group".to_owned(), json!("meta.k8s.io")),
            ("kind".to_owned(), json!("ListOptions")),
            ("causes".to_owned(), json!(causes)),
        ])));
        error
    }

    pub(super) fn invalid(group: &str, kind: &str, name: &str, field: &str, text: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {field}: {text}", qualified(group, kind));
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        if let Some(details) = &mut error.details {
            let cause = json!({"reason": "FieldValueInvalid", "message": text, "field": field});
            details.insert("causes".to_owned(), json!([cause]));
        }
        error
    }

    /// Adds the object to `details`: name, group and kind, in this order, without the empty ones.
    pub(super) fn about(mut self, group: &str, resource: &str, name: &str) -> Self {
        let pairs = [("name", name), ("group", group), ("kind", resource)];
        let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let pairs = pairs.map(|(key, value)| (key.to_owned(), json!(value)));
        self.details = Some(Box::new(pairs.collect()));
        self
    }

    /// Returns the 504 of a resourceVersion that etcd has not reached: sent at once, and without
    /// `Retry-After`.
    pub(super) fn too_large_now(requested: u64, current: u64) -> Self {
        let mut error = Self::too_large(requested, current);
        error.retry_after = None;
        error
    }

    /// Returns the `Status` object in protobuf's envelope.
    pub(super) fn to_protobuf(&self) -> Vec<u8> {
        // The table has all fields of the Status objects that this module builds.
        let message = protobuf::message("Status", &self.to_value()).unwrap_or_default();
        protobuf::envelope("v1", "Status", &message)
    }

    pub(super) fn to_value(&self) -> Value {
        let metadata = match &self.continue_token {
            Some(token) => json!({"continue": token}),
            None => json!({}),
        };
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message});
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        let mut details = self.details.clone();
        if let Some(seconds) = self.retry_after {
            details.get_or_insert_default().insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        if let Some(details) = details {
            status["details"] = Value::Object(*details);
        }
        status["code"] = json!(self.code);
        status
    }
}

/// Returns a 500 for an object with a field that the protobuf tables do not have, so that a test
/// does not mistake it for a response of the upstream.
impl From<protobuf::UnknownField> for ApiError {
    fn from(unknown: protobuf::UnknownField) -> Self {
        Self::new(500, "InternalError", unknown.to_string())
    }
}

/// Returns `resource` or `resource.group`.
pub(super) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
