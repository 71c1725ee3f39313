//! Helpers of unit tests in all modules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};

use crate::api::resource::{ApiResource, GroupVersionResource, Shape, built_in};
use crate::api::selectable::SelectableFields;

/// Waits until `condition` holds, and fails the test with `what` if it does not within a minute.
///
/// The condition is checked every [`STEP`] of tokio's clock, so that paused time advances. The
/// minute is real time: under paused time any number of steps may pass.
pub(crate) async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_every(STEP, what, condition).await;
}

/// The same, checked every `step` of tokio's clock: for hours of paused time.
#[expect(clippy::disallowed_methods, reason = "the bound is real time, also where time is paused")]
pub(crate) async fn eventually_every(
    step: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(step).await;
    }
}

/// Returns headers of these names and values. A name may occur more than once.
pub(crate) fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

/// A resource with no selectable fields but those that every resource has.
pub(crate) fn config_maps() -> ApiResource {
    built_in(GroupVersionResource::new("", "v1", "configmaps"), "ConfigMap")
}

/// A custom resource with two selectable fields.
pub(crate) fn widgets() -> ApiResource {
    let gvr = GroupVersionResource::new("example.com", "v1", "widgets");
    let fields = SelectableFields::custom(true, &[".spec.color".to_owned(), ".spec.n".to_owned()]);
    ApiResource {
        shape: Shape::Custom,
        selectable: Arc::new(fields),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        ..built_in(gvr, "Widget")
    }
}

const STEP: Duration = Duration::from_millis(2);
