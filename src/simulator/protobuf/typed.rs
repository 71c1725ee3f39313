//! The shape that Go gives the JSON of its types: fields in the order of their declaration, empty
//! ones omitted unless their tags require them, and maps sorted (`docs/semantics.md` §3.6).

use serde_json::{Map, Value};

use super::schema::{Field, Message, Type, message};
use crate::encode::sort_keys;

/// Shapes an object. Fields that are not in the table remain, at the end. Returns `None` if there
/// is no message of this name.
pub(crate) fn shape(name: &str, value: Value) -> Option<Value> {
    let message_type = message(name)?;
    let mut map = match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => return Some(other),
    };
    let mut shaped = Map::new();
    if message_type.is_object() {
        for field in ["kind", "apiVersion"] {
            if let Some(value) = map.shift_remove(field) {
                shaped.insert(field.to_owned(), value);
            }
        }
    }
    fill(message_type, &mut map, &mut shaped);
    shaped.append(&mut map);
    Some(Value::Object(shaped))
}

/// Moves the fields of a message from one map to the other.
fn fill(message_type: &Message, from: &mut Map<String, Value>, to: &mut Map<String, Value>) {
    for field in &message_type.fields {
        if let (Type::Message(inner), true) = (field.kind, field.inline) {
            if let Some(inner) = message(inner) {
                fill(inner, from, to);
            }
            continue;
        }
        let given = from.shift_remove(field.name).filter(|value| !value.is_null());
        let empty = given.as_ref().is_none_or(|value| !field.pointer && is_empty(field, value));
        let value = match given {
            _ if empty && !field.always => continue,
            Some(value) => shape_field(field, value),
            None => zero(field),
        };
        to.insert(field.name.to_owned(), value);
    }
}

fn shape_field(field: &Field, value: Value) -> Value {
    match (field.kind, value) {
        (Type::Message(inner), Value::Array(elements)) if field.repeated => {
            let shaped = elements.into_iter().filter_map(|element| shape(inner, element));
            Value::Array(shaped.collect())
        }
        (Type::Message(inner), value) => shape(inner, value).unwrap_or_default(),
        (Type::Raw, value) => sort_keys(value),
        // A quantity can be given as a number, but is stored as a string.
        (Type::Quantity, Value::Number(number)) => number.to_string().into(),
        (Type::QuantityMap, Value::Object(map)) => {
            let text = |value: Value| match value {
                Value::Number(number) => number.to_string().into(),
                other => other,
            };
            let map = map.into_iter().map(|(key, value)| (key, text(value)));
            sort_keys(Value::Object(map.collect()))
        }
        (kind, value) if kind.is_map() => sort_keys(value),
        (_, value) => value,
    }
}

/// Returns whether Go omits the value for `omitempty`. A struct is never empty.
fn is_empty(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && field.kind == Type::Text,
        Value::Number(number) => field.kind == Type::Integer && number.as_i64() == Some(0),
        Value::Bool(flag) => !flag,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(map) => map.is_empty() && field.kind.is_map(),
    }
}

fn zero(field: &Field) -> Value {
    match field.kind {
        _ if field.repeated || field.pointer => Value::Null,
        Type::Text => "".into(),
        Type::Integer | Type::IntOrString => 0.into(),
        Type::Boolean => false.into(),
        Type::Quantity => "0".into(),
        Type::Message(inner) => shape(inner, Value::Null).unwrap_or_default(),
        _ => Value::Null,
    }
}
