//! The defaults of a custom resource's structural schema, which the upstream applies to every
//! object that it reads.

use serde_json::Value;

/// Adds the defaults of absent fields.
pub(super) fn apply(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, property_schema) in properties.into_iter().flatten() {
                let absent = match map.get(name) {
                    None => true,
                    Some(Value::Null) => {
                        property_schema.get("nullable") != Some(&Value::Bool(true))
                    }
                    Some(_) => false,
                };
                if let (true, Some(default)) = (absent, property_schema.get("default")) {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(inner) = map.get_mut(name) {
                    apply(property_schema, inner);
                }
            }
            if let Some(property_schema) = schema
                .get("additionalProperties")
                .filter(|property_schema| property_schema.is_object())
            {
                let is_declared =
                    |name: &String| properties.is_some_and(|map| map.contains_key(name));
                map.iter_mut()
                    .filter(|(name, _)| !is_declared(name))
                    .for_each(|(_, v)| apply(property_schema, v));
            }
        }
        Value::Array(elements) => {
            if let Some(property_schema) = schema.get("items") {
                elements.iter_mut().for_each(|element| apply(property_schema, element));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(super) fn any(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("default") || map.values().any(any),
        Value::Array(elements) => elements.iter().any(any),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
