//! Parts of the JSON of `/api/…`.

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Returns a list as the field `items`.
pub(super) fn items(items: Vec<Value>) -> Map<String, Value> {
    fields([("items", items.into())])
}

/// Returns these fields by their names.
pub(super) fn fields<const N: usize>(named: [(&str, Value); N]) -> Map<String, Value> {
    named.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns an object of these fields.
pub(in crate::admin) fn object<const N: usize>(named: [(&str, Value); N]) -> Value {
    fields(named).into()
}

/// Returns a whole number as it is, so that it equals the metric, and another one with four
/// significant digits. An infinite or undefined number is null.
pub(super) fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < EXACT_MAX {
        return Value::from(number as i64);
    }
    format!("{number:.3e}").parse::<f64>().map_or(Value::Null, Value::from)
}

pub(super) fn optional(value: Option<f64>) -> Value {
    value.map_or(Value::Null, number)
}

/// Returns a time in the format of RFC 3339, in milliseconds.
pub(in crate::admin) fn time(time: SystemTime) -> Value {
    let time = Timestamp::try_from(time).ok();
    time.map_or(Value::Null, |time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into())
}

/// A float is exact below.
const EXACT_MAX: f64 = 9e15;

/// Returns the address of a page of the documentation, or its path in the repository while that has
/// no address; empty for none.
pub(super) fn link(page: &str) -> Value {
    // The repository has no address yet.
    let has_address = !DOCUMENTATION.starts_with("https://example.com/");
    match page {
        "" => "".into(),
        page if has_address => format!("{DOCUMENTATION}{page}").into(),
        page => format!("docs/{page}").into(),
    }
}

/// The same as in the runbook links of `deploy/prometheus/rules.yaml`.
pub(super) const DOCUMENTATION: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");
