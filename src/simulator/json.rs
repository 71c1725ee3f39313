//! Reads of JSON values by JSON pointer.

use serde_json::Value;

/// Returns the string at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the elements of the array at a JSON pointer.
pub(super) fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the strings of the array at a JSON pointer.
pub(super) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    array(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the integer at a JSON pointer; 0 if there is none.
pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}
