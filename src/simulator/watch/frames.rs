//! The frames of one watch, in its negotiated form (`docs/semantics.md` §5.2, §5.6, §9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::encode;
use crate::kinds::Kind;
use crate::negotiate::{Form, Media, View};
use crate::object::Object;
use crate::protobuf;
use crate::render;
use crate::request::Request;
use crate::status::ApiError;
use crate::table;

/// The framing of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// In the body of a response: JSON in lines, protobuf with a length prefix.
    Stream,
    /// Each frame in a WebSocket message.
    WebSocket,
}

/// Encodes frames.
pub(super) struct Frames {
    kind: Arc<Kind>,
    form: Form,
    include_object: String,
    transport: Transport,
    /// Whether zero metadata has `creationTimestamp`, as before 1.34.
    shows_zero_time: bool,
    sent_any: AtomicBool,
}

impl Frames {
    pub(super) fn new(
        request: &Request,
        kind: &Arc<Kind>,
        form: Form,
        transport: Transport,
        shows_zero_time: bool,
    ) -> Self {
        let include_object = request.param("includeObject").unwrap_or_default().to_owned();
        let (kind, sent_any) = (Arc::clone(kind), AtomicBool::new(false));
        Self { kind, form, include_object, transport, shows_zero_time, sent_any }
    }

    /// Returns the `Content-Type` of the stream.
    pub(super) fn content_type(&self) -> &'static str {
        match self.form.media {
            Media::Json => "application/json",
            Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    pub(super) fn is_text(&self) -> bool {
        self.form.media == Media::Json
    }

    /// Returns whether any frame was encoded before.
    pub(super) fn sent_any(&self) -> bool {
        self.sent_any.load(Ordering::Relaxed)
    }

    /// Encodes an ADDED, MODIFIED or DELETED event.
    pub(super) fn event(&self, event: &str, object: &Object) -> Result<Bytes, ApiError> {
        let body = match &self.form.view {
            View::Table(version) => {
                let first = !self.sent_any();
                let include = &self.include_object;
                let value = object.served(&self.kind);
                encode::encode(&table::event(&self.kind, version, include, &value, first))
            }
            View::Plain | View::Partial(_) => render::body(&self.kind, &self.form, object)?,
        };
        Ok(self.frame(event, &body))
    }

    /// Encodes a bookmark, which can be the one that ends the initial events.
    pub(super) fn bookmark(&self, revision: u64, end: bool) -> Result<Bytes, ApiError> {
        let template = template(&self.kind, revision, end, self.shows_zero_time);
        let value = || serde_json::from_str::<Value>(&template).unwrap_or_default();
        let body = match (&self.form.view, self.form.media) {
            (View::Plain, Media::Json) => Bytes::from(template),
            (View::Plain, Media::Protobuf) => {
                let message = protobuf::message(&self.kind.kind, &value())?;
                protobuf::envelope(&self.kind.api_version(), &self.kind.kind, &message).into()
            }
            (View::Partial(version), media) => render::partial(version, media, &value())?,
            (View::Table(version), _) => {
                let first = !self.sent_any();
                let include = if end { "" } else { self.include_object.as_str() };
                encode::encode(&table::event(&self.kind, version, include, &value(), first))
            }
        };
        Ok(self.frame("BOOKMARK", &body))
    }

    /// Encodes an ERROR event. Its object is a plain `Status` in every view.
    pub(super) fn error(&self, error: &ApiError) -> Bytes {
        let body = match self.form.media {
            Media::Json => encode::encode(&error.to_value()),
            Media::Protobuf => error.to_protobuf().into(),
        };
        self.frame("ERROR", &body)
    }

    fn frame(&self, event: &str, object: &[u8]) -> Bytes {
        self.sent_any.store(true, Ordering::Relaxed);
        match (self.form.media, self.transport) {
            (Media::Json, _) => {
                let parts: [&[u8]; 5] =
                    [b"{\"type\":\"", event.as_bytes(), b"\",\"object\":", object, b"}\n"];
                parts.concat().into()
            }
            (Media::Protobuf, Transport::WebSocket) => protobuf::watch_event(event, object).into(),
            (Media::Protobuf, Transport::Stream) => {
                let message = protobuf::watch_event(event, object);
                let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
                [&length.to_be_bytes()[..], &message].concat().into()
            }
        }
    }
}

/// Returns a zero object of the kind with only a resourceVersion (`docs/semantics.md` Appendix A).
fn template(kind: &Kind, revision: u64, end: bool, zero_time: bool) -> String {
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
    let mut tail = match kind.bookmark_tail.as_str() {
        "" => String::new(),
        tail => format!(",{tail}"),
    };
    let mut version = version;
    if zero_time {
        const TIME: &str = "\"creationTimestamp\":null";
        version = format!("{version},{TIME}");
        tail = tail.replace("\"metadata\":{}", &format!("\"metadata\":{{{TIME}}}"));
    }
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{version}{annotations}}}{tail}}}",
        kind.kind
    )
}
