//! JSON to protobuf as Go's generated code writes it (`docs/semantics.md` §5.3): fields by number,
//! fields that are not pointers even if they are empty, and maps sorted by key.
//!
//! A field that is missing from the table is an error and is never left out: a test must not
//! mistake a part of an object for the whole.

use base64::Engine;
use serde_json::{Map, Value};
use thiserror::Error;

use super::schema::{Field, Message, Type, message};
use super::wire::{put_bytes, put_number};
use crate::encode;
use crate::raw_bytes::in_protobuf;

/// The error for a field that the table does not have.
#[derive(Debug, Error)]
#[error("the simulator's protobuf tables have no field {path}")]
pub(crate) struct UnknownField {
    path: String,
}

impl UnknownField {
    fn at(path: &str, name: &str) -> Self {
        Self { path: format!("{path}.{name}") }
    }
}

/// Appends a message.
pub(super) fn encode_message(
    out: &mut Vec<u8>,
    name: &str,
    value: &Value,
) -> Result<(), UnknownField> {
    let message_type = message(name).ok_or_else(|| UnknownField { path: name.to_owned() })?;
    let empty = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Null => &empty,
        _ => return Err(UnknownField::at(name, "a value that is no object")),
    };
    let typed = message_type.is_object();
    let unknown = map.keys().find(|key| {
        !(message_type.has(key) || typed && matches!(key.as_str(), "kind" | "apiVersion"))
    });
    match unknown {
        Some(key) => Err(UnknownField::at(name, key)),
        None => encode_fields(out, name, message_type, map),
    }
}

fn encode_fields(
    out: &mut Vec<u8>,
    name: &str,
    message_of: &Message,
    map: &Map<String, Value>,
) -> Result<(), UnknownField> {
    for field in message_of.wire.iter().filter_map(|&index| message_of.fields.get(index)) {
        if let (Type::Message(inner), true) = (field.kind, field.inline) {
            let mut nested = Vec::new();
            if let Some(message_type) = message(inner) {
                encode_fields(&mut nested, inner, message_type, map)?;
            }
            put_bytes(out, field.number, &nested);
            continue;
        }
        let value = map.get(field.name).filter(|value| !value.is_null());
        let wrong =
            || UnknownField::at(name, &format!("{} with a value of another type", field.name));
        if field.repeated {
            for element in value.into_iter().flat_map(|v| v.as_array().into_iter().flatten()) {
                put(out, field, Some(element), &wrong)?;
            }
        } else if field.kind.is_map() {
            let entries = value.and_then(Value::as_object);
            let mut entries: Vec<(&String, &Value)> = entries.into_iter().flatten().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_text(&mut entry, 1, key.as_bytes());
                put_map_value(&mut entry, field.kind, value).ok_or_else(wrong)?;
                put_bytes(out, field.number, &entry);
            }
        } else if value.is_some() || !field.pointer {
            put(out, field, value, &wrong)?;
        }
    }
    Ok(())
}

/// Appends a field, or an element of one. An absent value is written as Go's zero value.
fn put(
    out: &mut Vec<u8>,
    field: &Field,
    value: Option<&Value>,
    wrong: &dyn Fn() -> UnknownField,
) -> Result<(), UnknownField> {
    let mut nested = Vec::new();
    let text = value.map_or(Some(""), Value::as_str);
    match field.kind {
        Type::Text => put_text(out, field.number, text.ok_or_else(wrong)?.as_bytes()),
        Type::Integer => {
            let value = value.map_or(Some(0), Value::as_i64).ok_or_else(wrong)?;
            put_number(out, field.number, value.cast_unsigned());
        }
        Type::Boolean => {
            let value = value.map_or(Some(false), Value::as_bool).ok_or_else(wrong)?;
            put_number(out, field.number, u64::from(value));
        }
        Type::Bytes => {
            if value.is_some() {
                put_bytes(out, field.number, &base64(text.ok_or_else(wrong)?).ok_or_else(wrong)?);
            }
        }
        Type::Time | Type::MicroTime => {
            let text = text.ok_or_else(wrong)?;
            if !text.is_empty() {
                let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
                let micros = time.subsec_microsecond();
                let nanos = if field.kind == Type::Time { 0 } else { i64::from(micros) * 1000 };
                put_number(&mut nested, 1, time.as_second().cast_unsigned());
                put_number(&mut nested, 2, nanos.cast_unsigned());
            }
            put_bytes(out, field.number, &nested);
        }
        Type::Quantity => {
            let text = if value.is_none() { "0" } else { text.ok_or_else(wrong)? };
            put_bytes(&mut nested, 1, text.as_bytes());
            put_bytes(out, field.number, &nested);
        }
        Type::IntOrString => {
            let number = value.and_then(Value::as_i64);
            let text = value.and_then(Value::as_str);
            put_number(&mut nested, 1, u64::from(text.is_some()));
            put_number(&mut nested, 2, number.unwrap_or(0).cast_unsigned());
            put_bytes(&mut nested, 3, text.unwrap_or_default().as_bytes());
            put_bytes(out, field.number, &nested);
        }
        Type::Raw => {
            if let Some(value) = value {
                put_text(&mut nested, 1, &encode::encode(value));
            }
            put_bytes(out, field.number, &nested);
        }
        Type::Message(inner) => {
            encode_message(&mut nested, inner, value.unwrap_or(&Value::Null))?;
            put_bytes(out, field.number, &nested);
        }
        Type::TextMap | Type::BytesMap | Type::QuantityMap | Type::ExtraMap => {
            return Err(wrong());
        }
    }
    Ok(())
}

fn put_map_value(out: &mut Vec<u8>, kind: Type, value: &Value) -> Option<()> {
    match kind {
        Type::ExtraMap => {
            let mut nested = Vec::new();
            for element in value.as_array()? {
                put_bytes(&mut nested, 1, element.as_str()?.as_bytes());
            }
            put_bytes(out, 2, &nested);
        }
        Type::QuantityMap => {
            let mut nested = Vec::new();
            put_bytes(&mut nested, 1, value.as_str()?.as_bytes());
            put_bytes(out, 2, &nested);
        }
        Type::BytesMap => put_bytes(out, 2, &base64(value.as_str()?)?),
        _ => put_text(out, 2, value.as_str()?.as_bytes()),
    }
    Some(())
}

fn put_text(out: &mut Vec<u8>, number: u64, text: &[u8]) {
    put_bytes(out, number, &in_protobuf(text));
}

fn base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
