//! The filter of the log at run time: shown, and replaced for a while by a POST.

use std::time::Duration;

use http::Uri;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::query::Query;
use crate::telemetry::log_filter::{FilterState, LogFilter, Replaced};

/// Returns the present filter, and until when it holds if it was replaced.
pub(super) fn filter_json(filter: &LogFilter) -> Value {
    let FilterState { configured, replaced } = filter.state();
    match replaced {
        Some(Replaced { filter, until }) => {
            let left = until.saturating_duration_since(Instant::now());
            json!({ "filter": filter, "secondsLeft": left.as_secs(), "configured": configured })
        }
        None => json!({ "filter": configured, "secondsLeft": null }),
    }
}

/// Returns the sentence of a change.
pub(super) fn describe(filter: &LogFilter) -> String {
    let FilterState { configured, replaced } = filter.state();
    let present = replaced.map_or(configured, |replaced| replaced.filter);
    format!("An operator set the filter of the log: {present}")
}

/// Replaces the filter as the query says. Returns what is wrong with it.
pub(super) fn replace(filter: &LogFilter, uri: &Uri) -> Result<(), String> {
    let query = Query::parse(uri.query().unwrap_or_default());
    let seconds = query.first("seconds").map(|seconds| seconds.parse().map(Duration::from_secs));
    let Ok(duration) = seconds.transpose() else {
        return Err("seconds must be a number\n".to_owned());
    };
    match query.first("filter") {
        None => filter.reset(),
        Some(directives) => filter
            .replace(directives, duration)
            .map_err(|error| format!("the filter cannot be parsed: {error}\n"))?,
    }
    Ok(())
}
