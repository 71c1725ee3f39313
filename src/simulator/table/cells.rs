//! Cell texts that several kinds share.

use serde_json::Value;

use crate::json::{array, text, texts};

/// Returns the names of an array of containers, and their images.
pub(super) fn containers(object: &Value, pointer: &str) -> (String, String) {
    let containers = array(object, pointer).iter();
    let names: Vec<&str> = containers.clone().map(|container| text(container, "/name")).collect();
    let images: Vec<&str> = containers.map(|container| text(container, "/image")).collect();
    (names.join(","), images.join(","))
}

/// Returns a map as `a=b,c=d`; `<none>` if it is empty.
pub(super) fn pairs(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// Returns the strings of an array, joined; `<none>` if there are none.
pub(super) fn joined(object: &Value, pointer: &str) -> String {
    let values = texts(object, pointer);
    if values.is_empty() { "<none>".to_owned() } else { values.join(",") }
}
