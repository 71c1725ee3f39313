//! The JSON Schema of the configuration file, for editors and for the Helm chart.
//!
//! Its fields are those that the structs of [`file`](super::file) accept, found by deserializing
//! them (`trace`). Its descriptions are the comments of the example configurations (`comments`), so
//! that they are written once. [`FORMATS`] has the formats of texts that the type does not show.
//! `docs/decisions/configuration.md` has the reasons.

mod comments;
mod descriptions;
mod trace;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::file::{API_VERSION, ConfigFile, KIND};
pub(super) use crate::config::schema::comments::joined;
use crate::config::schema::descriptions::DESCRIPTIONS;
pub(super) use crate::config::schema::trace::Shape;

/// Returns the schema, in draft 7 of JSON Schema, which Helm reads too.
pub fn json_schema() -> Value {
    let shape = shape();
    let mut schema =
        Builder { descriptions: comments::descriptions(EXAMPLES, &shape) }.value("", &shape);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        fields.insert("title".to_owned(), json!(KIND));
        fields.insert("required".to_owned(), json!(["apiVersion", "kind"]));
    }
    schema
}

/// Returns the shape of the file.
pub(super) fn shape() -> Shape {
    trace::shape_of::<ConfigFile>()
}

/// Returns each setting with its path and its description, in the order of the structs.
pub fn settings() -> Vec<(String, String)> {
    let mut settings = Vec::new();
    collect(&json_schema(), "", &mut settings);
    settings
}

fn collect(schema: &Value, path: &str, settings: &mut Vec<(String, String)>) {
    let schema = schema.get("items").unwrap_or(schema);
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        let path = joined(path, name);
        let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = match field.get("enum").and_then(Value::as_array) {
            Some(values) => {
                let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
                format!("{description} One of: {}.", values.join(", "))
            }
            None => description.to_owned(),
        };
        settings.push((path.clone(), description));
        collect(field, &path, settings);
    }
}

struct Builder {
    /// The descriptions by the paths of their settings.
    descriptions: BTreeMap<String, String>,
}

impl Builder {
    fn value(&self, path: &str, shape: &Shape) -> Value {
        let mut schema = match shape {
            Shape::Text => text(path),
            Shape::Integer => json!({ "type": "integer" }),
            Shape::Boolean => json!({ "type": "boolean" }),
            Shape::List(items) => json!({ "type": "array", "items": self.value(path, items) }),
            Shape::Fields(fields) => self.object(path, fields),
        };
        if let Some(schema) = schema.as_object_mut()
            && !path.is_empty()
        {
            let described = self.description(path);
            schema.insert("description".to_owned(), Value::String(described));
        }
        schema
    }

    /// A setting without a description of its own is part of its parent.
    fn description(&self, path: &str) -> String {
        if let Some((_, described)) =
            DESCRIPTIONS.iter().find(|(documented_path, _)| *documented_path == path)
        {
            return (*described).to_owned();
        }
        let of_parent = || {
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            format!("See {parent}.")
        };
        self.descriptions.get(path).cloned().unwrap_or_else(of_parent)
    }

    fn object(&self, path: &str, fields: &[(&str, Shape)]) -> Value {
        let schema = |(name, shape): &(&str, Shape)| {
            ((*name).to_owned(), self.value(&joined(path, name), shape))
        };
        let properties: Map<String, Value> = fields.iter().map(schema).collect();
        json!({ "type": "object", "additionalProperties": false, "properties": properties })
    }
}

fn text(path: &str) -> Value {
    let format = FORMATS
        .iter()
        .find(|(documented_path, _)| *documented_path == path)
        .map(|(_, format)| format);
    match format {
        None => json!({ "type": "string" }),
        Some(Format::Duration) => duration(DURATION),
        Some(Format::DurationOrNever) => duration(&format!("^never$|{DURATION}")),
        Some(Format::Bytes) => {
            json!({ "type": ["string", "integer"], "pattern": BYTES, "minimum": 0 })
        }
        Some(Format::OneOf(values)) => json!({ "type": "string", "enum": values }),
    }
}

/// A duration has a unit, but for 0, which YAML reads as a number.
fn duration(pattern: &str) -> Value {
    json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": 0, "maximum": 0 })
}

/// The format of a text.
enum Format {
    /// A text that `units::parse_duration` reads.
    Duration,
    DurationOrNever,
    /// A text that `units::parse_bytes` reads, or an integer.
    Bytes,
    OneOf(&'static [&'static str]),
}

const FORMATS: &[(&str, Format)] = &[
    ("apiVersion", Format::OneOf(&[API_VERSION])),
    ("kind", Format::OneOf(&[KIND])),
    ("server.shutdownDelay", Format::Duration),
    ("server.shutdownTimeout", Format::Duration),
    ("admin.detail", Format::OneOf(&["local", "none"])),
    ("upstream.connectTimeout", Format::Duration),
    ("cache.idleTimeout", Format::Duration),
    ("cache.resourceBytesMax", Format::Bytes),
    ("cache.totalBytesMax", Format::Bytes),
    ("cache.historyBytesMax", Format::Bytes),
    ("cache.gzipBytesMax", Format::Bytes),
    ("cache.onRelist", Format::OneOf(&["keepStreams", "endStreams"])),
    ("cache.maxStaleness", Format::DurationOrNever),
    ("cache.consistentLists", Format::OneOf(&["forward", "auto"])),
    ("cache.verify", Format::OneOf(&["off", "observe", "enforce"])),
    ("authentication.mode", Format::OneOf(&["sidecar", "gateway"])),
    ("authentication.anonymous", Format::OneOf(&["forward", "authorize", "refuse"])),
    ("authentication.tokens.ttl", Format::Duration),
    ("authorization.allowTTL", Format::Duration),
    ("authorization.watchRecheck", Format::DurationOrNever),
    ("authorization.staleDecisionGrace", Format::Duration),
    ("audit.buffer", Format::OneOf(&["blocking", "dropping"])),
    ("audit.policy.rules.level", Format::OneOf(&["None", "Metadata"])),
    ("flowControl.mode", Format::OneOf(&["off", "observe", "enforce"])),
    ("shadow.mode", Format::OneOf(&["off", "compare"])),
    ("flowControl.adaptive", Format::OneOf(&["off", "observe", "enforce"])),
    ("flowControl.levels.limited.limitResponse.type", Format::OneOf(&["Queue", "Reject"])),
    ("flowControl.rules.mode", Format::OneOf(&["enforce", "observe"])),
    ("flowControl.rules.scope", Format::OneOf(&["all", "upstream"])),
    ("flowControl.rules.action", Format::OneOf(&["deny"])),
    ("flowControl.rules.limits.bytesPerSecond", Format::Bytes),
    ("logging.format", Format::OneOf(&["text", "json", "kubernetes"])),
    ("logging.slowRequest", Format::DurationOrNever),
];

const DURATION: &str = r"^(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(h|m|s|ms|us|ns))+)$";
const BYTES: &str = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([kMGT]|[KMGT]i)?$";

/// The example configurations: the first one that has a comment for a setting describes it.
const EXAMPLES: [&str; 2] =
    [include_str!("../../config/weir.yaml"), include_str!("../../config/gateway.yaml")];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{prop_assert, proptest};
    use regex::Regex;

    use super::*;
    use crate::config::Config;
    use crate::config::resolve::{Overrides, Problems};
    use crate::config::units::{format_duration, parse_bytes, parse_duration};

    #[test]
    fn the_tables_are_about_settings_that_exist() {
        let paths: Vec<_> = settings().into_iter().map(|(path, _)| path).collect();
        let of_tables = FORMATS.iter().map(|(path, _)| path);
        for path in of_tables.chain(DESCRIPTIONS.iter().map(|(path, _)| path)) {
            assert!(paths.iter().any(|known_path| known_path == path), "{path}");
        }
        let schema = json_schema();
        let detail = schema.pointer("/properties/admin/properties/detail/enum").unwrap();
        assert_eq!(detail, &json!(["local", "none"]));
    }

    /// Each value that the schema lists is one that the parser reads, and no other is.
    #[test]
    fn the_listed_values_are_those_that_the_parser_reads() {
        let is_read = |path: &str, value: &str| {
            let fields = path.rsplit('.');
            let file = fields.fold(json!(value), |inner, name| json!({ name: inner }));
            let Value::Object(mut file) = file else { unreachable!() };
            file.insert("apiVersion".to_owned(), json!(API_VERSION));
            file.insert("kind".to_owned(), json!(KIND));
            // Some settings are for gateways alone.
            let authentication = file.entry("authentication").or_insert_with(|| json!({}));
            authentication.as_object_mut().unwrap().entry("mode").or_insert(json!("gateway"));
            let file = ConfigFile::parse("test", &Value::Object(file).to_string()).unwrap();
            let resolved = Config::resolve(file, Overrides::default());
            resolved
                .map_or_else(|Problems(problems)| problems, |_| Vec::new())
                .iter()
                .all(|problem| problem.path != path || !problem.message.starts_with("expected"))
        };
        for (path, format) in FORMATS {
            // Members of lists have further fields that are required.
            let is_in_list = ["audit.policy.rules", "flowControl.levels", "flowControl.rules"];
            let Format::OneOf(values) = format else { continue };
            if *path == "apiVersion"
                || *path == "kind"
                || is_in_list.iter().any(|list| path.starts_with(list))
            {
                continue;
            }
            for value in *values {
                assert!(is_read(path, value), "{path}: {value}");
            }
            assert!(!is_read(path, "another"), "{path}");
        }
    }

    proptest! {
        /// What matches the schema's pattern of a duration is one for the parser, and the other way
        /// round; a pattern cannot say that a part is less than a nanosecond.
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
    fn the_fields_are_those_of_the_file() {
        let schema = json_schema();
        for (pointer, kind) in [
            (
                "/properties/server/properties/listeners/items/properties/listen/type",
                json!("string"),
            ),
            ("/properties/upstream/properties/endpoints/properties/static/type", json!("array")),
            ("/properties/cache/properties/forwardBudget/type", json!("integer")),
            ("/properties/authentication/properties/clientCAFile/type", json!("string")),
            (
                "/properties/flowControl/properties/rules/items/properties/match/items/properties/subjects/type",
                json!("array"),
            ),
            ("/properties/server/additionalProperties", json!(false)),
        ] {
            assert_eq!(schema.pointer(pointer), Some(&kind), "{pointer}");
        }
    }

    #[test]
    fn settings_are_described_by_the_examples() {
        let settings: BTreeMap<_, _> = settings().into_iter().collect();
        let begin = |path: &str| settings.get(path).unwrap().split('.').next().unwrap().to_owned();
        assert_eq!(
            begin("upstream.connectTimeout"),
            "Time-out for opening a connection, including its TLS handshake"
        );
        assert!(settings["upstream.kubeconfig"].starts_with("Defaults: $KUBECONFIG"));
        assert!(settings["authentication.requestHeader.allowedNames"].starts_with("Common names"));
        assert!(settings["admin"].starts_with("Health"));
        assert_eq!(settings["cache.totalBytesMax"], settings["cache.resourceBytesMax"]);
        assert!(settings["server.listeners.listen"].starts_with("The address"));
    }

    /// Each field that a file may have is found: a file with all of them is read again.
    #[test]
    fn the_effective_configuration_has_only_known_fields() {
        let file: Value = serde_saphyr::from_str(EXAMPLES[0]).unwrap();
        let schema = json_schema();
        assert!(unknown(&file, &schema).is_empty(), "{:?}", unknown(&file, &schema));
    }

    fn unknown(value: &Value, schema: &Value) -> Vec<String> {
        match value {
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(name, value)| match schema["properties"].get(name) {
                    Some(schema) => unknown(value, schema),
                    None => vec![name.clone()],
                })
                .collect(),
            Value::Array(items) => {
                items.iter().flat_map(|item| unknown(item, &schema["items"])).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_setting_has_a_description_of_its_own() {
        for (path, description) in settings() {
            assert!(!description.starts_with("See "), "{path} needs one in descriptions.rs");
        }
    }
}
