//! The frames of one watch in the form that it asked for (semantics.md §5.2, §5.6, §9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::simulator::answer::Form;
use crate::simulator::encode;
use crate::simulator::kinds::Kind;
use crate::simulator::object::Object;
use crate::simulator::request::Request;
use crate::simulator::status::ApiError;
use crate::simulator::table;

/// Encodes frames.
pub(super) struct Frames {
    kind: Arc<Kind>,
    form: Form,
    include_object: String,
    sent_any: AtomicBool,
}

impl Frames {
    pub(super) fn new(request: &Request, kind: &Arc<Kind>, form: Form) -> Result<Self, ApiError> {
        let include_object = request.param("includeObject").unwrap_or_default().to_owned();
        Ok(Self { kind: Arc::clone(kind), form, include_object, sent_any: AtomicBool::new(false) })
    }

    /// Whether a frame was made already.
    pub(super) fn sent_any(&self) -> bool {
        self.sent_any.load(Ordering::Relaxed)
    }

    /// ADDED, MODIFIED or DELETED.
    pub(super) fn event(&self, event: &str, object: &Object) -> Bytes {
        match &self.form {
            Form::Plain => self.frame(event, &object.render(&self.kind)),
            Form::Partial(version) => {
                let group_version = format!("meta.k8s.io/{version}");
                let view = encode::partial_metadata(&object.value(), &group_version);
                self.frame(event, &encode::encode(&view))
            }
            Form::Table(version) => {
                let first = !self.sent_any();
                let include = &self.include_object;
                let value = table::event(&self.kind, version, include, &object.value(), first);
                self.frame(event, &encode::encode(&value))
            }
        }
    }

    /// A bookmark, which may be the one that ends the initial events.
    pub(super) fn bookmark(&self, revision: u64, end: bool) -> Bytes {
        let template = template(&self.kind, revision, end);
        match &self.form {
            Form::Plain => self.frame("BOOKMARK", template.as_bytes()),
            Form::Partial(version) => {
                let value: Value = serde_json::from_str(&template).unwrap_or_default();
                let view = encode::partial_metadata(&value, &format!("meta.k8s.io/{version}"));
                self.frame("BOOKMARK", &encode::encode(&view))
            }
            Form::Table(version) => {
                let value: Value = serde_json::from_str(&template).unwrap_or_default();
                let first = !self.sent_any();
                let include = if end { "" } else { self.include_object.as_str() };
                let value = table::event(&self.kind, version, include, &value, first);
                self.frame("BOOKMARK", &encode::encode(&value))
            }
        }
    }

    fn frame(&self, event: &str, object: &[u8]) -> Bytes {
        self.sent_any.store(true, Ordering::Relaxed);
        frame(event, object)
    }
}

/// An ERROR event, in any form a plain `Status`.
pub(super) fn error(error: &ApiError) -> Bytes {
    frame("ERROR", &encode::encode(&error.to_value()))
}

fn frame(event: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", event.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}

/// A zero object of the kind with nothing but a resourceVersion (semantics.md Appendix A).
fn template(kind: &Kind, revision: u64, end: bool) -> String {
    const END: &str = "k8s.io/initial-events-end";
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    let api_version = kind.api_version();
    let mut annotations = serde_json::Map::new();
    if kind.kind == "DaemonSet" && !kind.custom {
        annotations.insert(GENERATION.to_owned(), "0".into());
    }
    if end {
        annotations.insert(END.to_owned(), "true".into());
    }
    let annotations = if annotations.is_empty() {
        None
    } else {
        Some(format!("\"annotations\":{}", json!(annotations)))
    };
    let version = format!("\"resourceVersion\":\"{revision}\"");
    if kind.custom {
        let annotations = annotations.map(|text| format!("{text},")).unwrap_or_default();
        return format!(
            "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{}\",\"metadata\":{{{annotations}{version}}}}}",
            kind.kind
        );
    }
    let annotations = annotations.map(|text| format!(",{text}")).unwrap_or_default();
    let tail = match kind.bookmark_tail.as_str() {
        "" => String::new(),
        tail => format!(",{tail}"),
    };
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{version}{annotations}}}{tail}}}",
        kind.kind
    )
}
