//! The texts that are written from the settings: the JSON Schema of the file, for editors and for
//! the Helm chart; the rows of the reference; and config/weir.yaml
//! (`docs/decisions/configuration.md`).

use serde_json::{Map, Value, json};

use crate::config::file::{API_VERSION, KIND};
use crate::config::kinds::{Field, Section, Shape};
use crate::config::{Config, GATEWAY_ONLY};

/// A row of the reference.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The path in the file. One within a list has the list's path.
    pub path: String,
    /// The default, as in the file; empty for none.
    pub default: String,
    /// Whether a running Weir takes it over.
    pub is_live: bool,
    /// Whether it has settings of its own.
    pub is_section: bool,
    /// The description, with the values that it may have.
    pub about: String,
}

/// Returns all settings, in the order of the file.
pub fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    collect("", &Config::fields(), &mut settings);
    settings
}

fn collect(parent: &str, fields: &[Field], settings: &mut Vec<Setting>) {
    for field in fields {
        let path = joined(parent, &field.name);
        let inner = inner_fields(&field.shape);
        let default = match &field.default {
            Value::Object(_) | Value::Null => String::new(),
            _ if inner.is_some() => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        settings.push(Setting {
            path: path.clone(),
            default,
            is_live: field.is_live,
            is_section: inner.is_some(),
            about: described(field),
        });
        collect(&path, inner.unwrap_or_default(), settings);
    }
}

fn inner_fields(shape: &Shape) -> Option<&[Field]> {
    match shape {
        Shape::Fields(fields) => Some(fields),
        Shape::List(item) => inner_fields(item),
        _ => None,
    }
}

fn described(field: &Field) -> String {
    let about = one_line(&field.about);
    match &field.shape {
        Shape::Words(words) => format!("{about} One of: {}.", words.join(", ")),
        _ => about,
    }
}

fn one_line(about: &str) -> String {
    about.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn joined(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// Returns the schema, in draft 7 of JSON Schema, which Helm reads too. `x-live` marks what a
/// running Weir takes over.
pub fn json_schema() -> Value {
    let mut schema = object(&Config::fields());
    let word =
        |word: &str, about: &str| json!({ "type": "string", "enum": [word], "description": about });
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_insert(0, "kind".to_owned(), word(KIND, "The kind of the file."));
        let version = word(API_VERSION, "The version of the file's format.");
        properties.shift_insert(0, "apiVersion".to_owned(), version);
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        fields.insert("title".to_owned(), json!(KIND));
        fields.insert("required".to_owned(), json!(["apiVersion", "kind"]));
    }
    schema
}

fn object(fields: &[Field]) -> Value {
    let property = |field: &Field| {
        let mut schema = typed(&field.shape);
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), one_line(&field.about).into());
            if field.is_live {
                schema.insert("x-live".to_owned(), true.into());
            }
        }
        (field.name.clone(), schema)
    };
    let properties: Map<String, Value> = fields.iter().map(property).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn typed(shape: &Shape) -> Value {
    match shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Integer => json!({ "type": "integer" }),
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::Duration => duration(DURATION),
        Shape::DurationOrNever => duration(&format!("^never$|{DURATION}")),
        Shape::Bytes => json!({ "type": ["string", "integer"], "pattern": BYTES, "minimum": 0 }),
        Shape::Words(words) => json!({ "type": "string", "enum": words }),
        Shape::List(item) => json!({ "type": "array", "items": typed(item) }),
        Shape::Fields(fields) => object(fields),
    }
}

/// A duration has a unit, but for 0, which YAML reads as a number.
fn duration(pattern: &str) -> Value {
    json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": 0, "maximum": 0 })
}

const DURATION: &str = r"^(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(h|m|s|ms|us|ns))+)$";
const BYTES: &str = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([kMGT]|[KMGT]i)?$";

/// Returns config/weir.yaml: each setting of a sidecar with its default; those without a default,
/// and those of a gateway, in comments.
pub fn example() -> String {
    let mut text = EXAMPLE_HEAD.to_owned();
    write_fields("", &Config::fields(), "", &mut text);
    text
}

fn write_fields(parent: &str, fields: &[Field], outer: &str, text: &mut String) {
    let is_inside_comment = outer.contains('#');
    for field in fields {
        let path = joined(parent, &field.name);
        let is_comment = GATEWAY_ONLY.contains(&&*path) || field.default.is_null();
        let mark = if is_comment && !is_inside_comment { "# " } else { "" };
        let margin = format!("{outer}{mark}");
        text.push_str(if is_inside_comment { "" } else { "\n" });
        wrap(&described(field), &format!("{outer}# "), text);
        match &field.shape {
            Shape::Fields(inner) => {
                text.push_str(&format!("{margin}{}:\n", field.name));
                write_fields(&path, inner, &format!("{margin}  "), text);
            }
            _ if field.default.is_null() => text.push_str(&format!("{margin}{}:\n", field.name)),
            _ => {
                let line = json!({ &field.name: &field.default });
                let yaml = serde_saphyr::to_string(&line).unwrap_or_default();
                let lines = yaml.lines().map(|line| format!("{margin}{line}\n"));
                text.extend(lines);
            }
        }
    }
}

/// Writes a text in lines of at most 100 columns that begin with `margin`.
fn wrap(about: &str, margin: &str, text: &mut String) {
    let mut line = margin.trim_end().to_owned();
    for word in about.split(' ') {
        if line.len() + word.len() >= COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line = margin.trim_end().to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

const COLUMNS: usize = 100;

const EXAMPLE_HEAD: &str = "\
# Every setting of a sidecar with its default. Comments have the settings of a gateway, and those
# without a default. Written from the program (docs/reference/configuration.md has the same as a
# table); config/gateway.yaml, config/sidecar.yaml and config/shedding.yaml are examples.
# `weir check config/weir.yaml` validates a file and prints the effective configuration.
apiVersion: weir.dev/v1alpha1
kind: WeirConfiguration
";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{prop_assert, proptest};
    use regex::Regex;

    use super::*;
    use crate::config::units::{format_duration, parse_bytes, parse_duration};

    proptest! {
        /// The parsers accept a text if and only if it matches the schema's pattern; but a pattern
        /// cannot express that a part is less than a nanosecond.
        #[test]
        fn the_patterns_match_what_the_parsers_read(text in "[0-9.hmsunkKMGTi]{0,6}") {
            let matches = |pattern: &str| Regex::new(pattern).unwrap().is_match(&text);
            let has_fraction = text.contains('.');
            let (duration, bytes) = (parse_duration(&text).is_ok(), parse_bytes(&text).is_ok());
            prop_assert!(matches(DURATION) == duration || (!duration && has_fraction));
            prop_assert!(matches(BYTES) == bytes || (!bytes && has_fraction));
        }

        #[test]
        fn durations_match_the_schemas_pattern(nanos: u64) {
            let text = format_duration(Duration::from_nanos(nanos));
            prop_assert!(Regex::new(DURATION).unwrap().is_match(&text), "{text}");
        }
    }

    #[test]
    fn the_schema_has_each_kind_of_value() {
        let schema = json_schema();
        for (pointer, expected) in [
            ("server/properties/listeners/items/properties/listen/type", json!("string")),
            ("server/additionalProperties", json!(false)),
            ("server/properties/shutdownDelay/x-live", json!(true)),
            ("server/properties/shutdownDelay/pattern", json!(DURATION)),
            ("upstream/properties/endpoints/properties/static/type", json!("array")),
            ("cache/properties/forwardBudget/type", json!("integer")),
            ("cache/properties/totalBytesMax/pattern", json!(BYTES)),
            ("cache/properties/consistentLists/enum", json!(["forward", "auto"])),
            ("authentication/properties/clientCAFile/type", json!("string")),
            (
                "authentication/properties/requestHeader/properties/allowedNames/type",
                json!("array"),
            ),
            ("kind/enum", json!([KIND])),
        ] {
            let pointer = format!("/properties/{pointer}");
            assert_eq!(schema.pointer(&pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn no_setting_is_both_there_and_gone() {
        let settings = settings();
        assert!(settings.iter().all(|setting| !setting.about.is_empty()));
        for (path, _) in crate::config::reader::GONE {
            assert!(settings.iter().all(|setting| setting.path != *path), "{path}");
        }
    }
}
