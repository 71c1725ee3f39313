//! The last notable events.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, object, time};
use crate::telemetry::events::NotableEvent;

/// Returns the content of `/api/events`, the latest first.
pub(super) fn content(events: &[NotableEvent]) -> Map<String, Value> {
    items(events.iter().map(describe).collect())
}

fn subject(event: &NotableEvent) -> String {
    let others = if event.has_others { " and others" } else { "" };
    format!("{}{others}", event.subject)
}

fn describe(event: &NotableEvent) -> Value {
    object([
        ("number", event.number.into()),
        ("time", time(event.last)),
        ("firstTime", time(event.first)),
        ("count", event.count.into()),
        ("kind", event.kind.as_str().into()),
        ("subject", subject(event).into()),
        ("text", (&*event.text).into()),
    ])
}
