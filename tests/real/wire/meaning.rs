//! The meaning of a response and of an object: without what differs from one server's namespace to
//! another's, and from one moment to the next.

use serde_json::Value;

use super::peer::{PLACEHOLDER, replaced};
use crate::suite::allowed::compared;
use crate::suite::wire::Answer;

/// The namespaces of the servers.
pub(crate) const NAMESPACES: [&str; 3] = ["wire-d", "wire-g", "wire-s"];

/// A body as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// One or more JSON values, such as the events of a watch.
    Json(Vec<Value>),
    Bytes(Vec<u8>),
    /// Protobuf of objects, which the differential suite compares.
    Protobuf,
}

impl Meaning {
    /// The events of a WebSocket.
    pub(crate) fn events(&self) -> Option<&Value> {
        match self {
            Self::Json(values) => values.first()?.get("events"),
            Self::Bytes(_) | Self::Protobuf => None,
        }
    }
}

/// Returns a response as it is compared: its headers, and the meaning of its body.
pub(crate) fn meaning(answer: &Answer) -> (Answer, Meaning) {
    let mut answer = compared(answer);
    answer.headers.retain(|(name, _)| !name.starts_with("x-weir-"));
    for (_, value) in &mut answer.headers {
        *value = String::from_utf8_lossy(&in_one_namespace(value.as_bytes())).into_owned();
    }
    let body = std::mem::take(&mut answer.body);
    let form = answer.header("content-type");
    if form.contains("protobuf") && answer.status < 300 {
        return (answer, Meaning::Protobuf);
    }
    let body = in_one_namespace(&body);
    let values = serde_json::Deserializer::from_slice(&body).into_iter().collect();
    let values: Result<Vec<Value>, _> = values;
    let meaning = match values {
        Ok(mut values) if !values.is_empty() => {
            values.iter_mut().for_each(normalize);
            Meaning::Json(values)
        }
        _ if form.contains("yaml") => Meaning::Bytes(without_digits(&body)),
        _ => Meaning::Bytes(body),
    };
    (answer, meaning)
}

/// Writes the placeholder in place of each server's namespace.
pub(crate) fn in_one_namespace(bytes: &[u8]) -> Vec<u8> {
    NAMESPACES.iter().fold(bytes.to_vec(), |bytes, namespace| {
        replaced(&bytes, namespace.as_bytes(), PLACEHOLDER.as_bytes())
    })
}

/// Replaces what differs between equal objects of two namespaces.
pub(crate) fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if VARIES.contains(&name.as_str()) && !text.is_empty() => {
                        "…".clone_into(text);
                    }
                    _ => normalize(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(normalize),
        // An age in a Table.
        Value::String(text) if is_age(text) => "…".clone_into(text),
        _ => {}
    }
}

fn is_age(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'd'])
        && text.len() <= 8
        && text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Removes what numbers, times and uids are made of.
fn without_digits(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| !byte.is_ascii_hexdigit() && *byte != b'-').collect()
}

const VARIES: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "continue",
    "hash",
];
