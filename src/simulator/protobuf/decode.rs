//! Protobuf to JSON, for the bodies of requests. Fields that are not in the table are skipped, as
//! Go's decoder skips unknown fields.

use base64::Engine;
use serde_json::{Map, Value, json};

use super::schema::{Field, Type, message};
use super::wire::{WireField, fields};
use crate::raw_bytes::from_protobuf;

/// Decodes a message.
pub(super) fn decode_message(name: &str, bytes: &[u8]) -> Option<Map<String, Value>> {
    let message_type = message(name)?;
    let mut object = Map::new();
    for wire in fields(bytes)? {
        let Some(field) = message_type.fields.iter().find(|field| field.number == wire.number)
        else {
            continue;
        };
        match field.kind {
            Type::Message(inner) if field.inline => {
                object.append(&mut decode_message(inner, wire.bytes)?);
            }
            kind if kind.is_map() => {
                let (key, value) = pair(kind, wire.bytes)?;
                let map = object.entry(field.name.to_owned()).or_insert_with(|| json!({}));
                map.as_object_mut()?.insert(key, value);
            }
            _ if field.repeated => {
                let value = value(field, &wire)?;
                let list = object.entry(field.name.to_owned()).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(value);
            }
            _ => {
                let value = value(field, &wire)?;
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    // Go writes every field that is not a pointer, even if it is empty. JSON omits the empty ones.
    let empty = |field: &&Field| {
        let zero = match object.get(field.name) {
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Number(number)) => number.as_i64() == Some(0),
            Some(Value::Bool(flag)) => !flag,
            Some(Value::Null) => true,
            Some(Value::Array(_) | Value::Object(_)) | None => false,
        };
        zero && !field.pointer && !field.always
    };
    let empty: Vec<&str> =
        message_type.fields.iter().filter(empty).map(|field| field.name).collect();
    for name in empty {
        object.shift_remove(name);
    }
    Some(object)
}

fn value(field: &Field, wire: &WireField<'_>) -> Option<Value> {
    let text = |bytes: &[u8]| Some(Value::from(from_protobuf(bytes)));
    Some(match field.kind {
        Type::Text => text(wire.bytes)?,
        Type::Integer => wire.value.cast_signed().into(),
        Type::Boolean => (wire.value != 0).into(),
        Type::Bytes => base64(wire.bytes).into(),
        Type::Time | Type::MicroTime => time(field.kind, wire.bytes)?,
        Type::Quantity => text(fields(wire.bytes)?.first()?.bytes)?,
        Type::IntOrString => {
            let parts = fields(wire.bytes)?;
            let part = |number| parts.iter().find(|field| field.number == number);
            match part(1).map(|field| field.value) {
                Some(1) => text(part(3)?.bytes)?,
                _ => part(2).map_or(0, |field| field.value.cast_signed()).into(),
            }
        }
        Type::Raw => match fields(wire.bytes)?.first() {
            Some(raw) => serde_json::from_slice(raw.bytes).ok()?,
            None => Value::Null,
        },
        Type::Message(inner) => decode_message(inner, wire.bytes)?.into(),
        Type::TextMap | Type::BytesMap | Type::QuantityMap | Type::ExtraMap => return None,
    })
}

/// Decodes one key and value of a map.
fn pair(kind: Type, bytes: &[u8]) -> Option<(String, Value)> {
    let parts = fields(bytes)?;
    let part = |number| {
        let field = parts.iter().find(|field| field.number == number);
        field.map_or(&[][..], |field| field.bytes)
    };
    let text = |bytes: &[u8]| Some(from_protobuf(bytes));
    let value = match kind {
        Type::BytesMap => base64(part(2)).into(),
        Type::QuantityMap => text(fields(part(2))?.first()?.bytes)?.into(),
        Type::ExtraMap => {
            let fields_found = fields(part(2))?;
            fields_found.iter().filter_map(|field| text(field.bytes)).collect::<Vec<_>>().into()
        }
        _ => text(part(2))?.into(),
    };
    Some((text(part(1))?, value))
}

fn time(kind: Type, bytes: &[u8]) -> Option<Value> {
    let fields_found = fields(bytes)?;
    let part =
        |number| fields_found.iter().find(|field| field.number == number).map(|field| field.value);
    let Some(seconds) = part(1) else { return Some(Value::Null) };
    let nanos = i32::try_from(part(2).unwrap_or(0)).ok()?;
    let time = jiff::Timestamp::new(seconds.cast_signed(), nanos).ok()?;
    let format = if kind == Type::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Some(time.strftime(format).to_string().into())
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
