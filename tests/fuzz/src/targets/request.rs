//! Parsers of clients' input: queries, paths, selectors, `Accept`, continue tokens; and the fields
//! that selectors name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::continue_token::ContinueToken;
use crate::api::list_options::ListOptions;
use crate::api::media_type::{self, Encoding};
use crate::api::query::Query;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::{GroupVersionResource, Representation, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::api::selectable::{Field, Rule, Scalar, SelectableFields};
use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::api::trace_context::TraceContext;

/// A value that was parsed and written again parses to the same; so do the options of a list.
pub fn query(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let query = Query::parse(raw);
    let mut again = String::new();
    for name in PARAMETERS {
        if let Some(value) = query.first(name) {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            again.push_str(&format!("&{name}={escaped}"));
        }
    }
    let second = Query::parse(&again);
    for name in PARAMETERS {
        assert_eq!(query.first(name), second.first(name), "{name}");
    }
    assert!(!second.is_lossy());
    assert_eq!(ListOptions::decode(&query), ListOptions::decode(&second));
}

/// A `traceparent` that is read is written as version 00, and read as the same again.
pub fn trace_context(data: &[u8]) {
    let Some(context) = TraceContext::parse(data) else { return };
    let written = context.to_string();
    assert_eq!(TraceContext::parse(written.as_bytes()), Some(context));
    assert_eq!(data.get(2..53), written.as_bytes().get(2..53));
    if data.starts_with(b"00") {
        assert_eq!(data, written.as_bytes());
    }
}

/// Any path and query parse, and the parts of a resource never contain a slash.
pub fn request_info(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    for method in [Method::GET, Method::POST, Method::DELETE, Method::HEAD] {
        let info = RequestInfo::parse(&method, path, query);
        assert!(!info.verb_label().is_empty());
        assert_eq!(info, RequestInfo::parse(&method, path, query));
        if let Some(resource) = info.resource.filter(|_| info.plain_path) {
            // A lifted name comes from the query, not from the path.
            let name = if resource.name_lifted { "" } else { &resource.name };
            for word in [&*resource.gvr.resource, &resource.namespace, name, &resource.subresource]
            {
                assert!(!word.contains('/'), "{word}");
            }
        }
    }
}

/// Matching is total, space around a term has no effect, and a comma means both.
pub fn label_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (left, right) = text.split_once('\n').unwrap_or((text, ""));
    let (Some(one), Some(two)) = (LabelSelector::parse(left), LabelSelector::parse(right)) else {
        return;
    };
    let spaced = LabelSelector::parse(&format!(" {left}\t")).expect("space around is nothing");
    let both = LabelSelector::parse(&format!("{left},{right}"));
    for labels in LABELS {
        let value_of =
            |wanted: &str| labels.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.as_bytes());
        let matched = one.matches(value_of);
        assert_eq!(matched, spaced.matches(value_of));
        assert!(matched || !one.is_empty(), "an empty selector matches all");
        if let Some(both) = both.as_ref().filter(|_| !one.is_empty() && !two.is_empty()) {
            assert_eq!(both.matches(value_of), matched && two.matches(value_of));
        }
    }
}

/// Matching is total, and a required value of a selector is required.
pub fn field_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let fields = SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"));
    let Some(selector) = FieldSelector::parse(text, &fields) else { return };
    for (name, namespace, value) in [("", "", ""), ("a", "default", "n1"), ("b", "x", "Running")] {
        let values = vec![value; fields.len()];
        let value_of = |number: usize| values.get(number).copied().unwrap_or_default().as_bytes();
        let matched = selector.matches(name.as_bytes(), namespace.as_bytes(), value_of);
        assert!(matched || !selector.is_empty());
        if matched {
            assert!(selector.required_name().is_none_or(|required| required == name));
            assert!(selector.required_namespace().is_none_or(|required| required == namespace));
            for (index, required) in selector.required_values() {
                assert_eq!(values.get(index).copied(), Some(required));
            }
        }
    }
}

/// Neither a watch nor protobuf is ever indented, and the same header has the same result.
pub fn accept(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [ACCEPT, ACCEPT_ENCODING, USER_AGENT] {
        if let Some(Ok(value)) = lines.next().map(HeaderValue::from_bytes) {
            headers.insert(name, value);
        }
    }
    let query = Query::parse(&String::from_utf8_lossy(lines.next().unwrap_or_default()));
    media_type::accepts_gzip(&headers);
    let error = media_type::error_form(&headers, &query);
    assert_eq!(error, media_type::error_form(&headers, &query));
    for shape in [Shape::BuiltIn, Shape::Custom] {
        for verb in [Verb::Get, Verb::List, Verb::Watch] {
            let form = media_type::negotiate(&headers, &query, shape, verb);
            assert_eq!(form, media_type::negotiate(&headers, &query, shape, verb));
            let plain =
                verb == Verb::Watch || form.is_some_and(|form| form.encoding == Encoding::Protobuf);
            assert!(!plain || form.is_none_or(|form| !form.pretty));
        }
    }
}

/// A parsed token has the same meaning after it was written again, whether the text or its content
/// comes from the fuzzer; and Weir parses its own tokens.
pub fn continue_token(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        read_token(text);
    }
    read_token(&URL_SAFE_NO_PAD.encode(data));
    let Some((number, last)) = data.split_first_chunk() else { return };
    let (number, Ok(last)) = (u64::from_be_bytes(*number), std::str::from_utf8(last)) else {
        return;
    };
    let text = ContinueToken::encode(ResourceVersion(number), last);
    let read = ContinueToken::decode(&text);
    // The upstream's numbers and keys never change.
    let number_ends = number > 0 && number <= i64::MAX.cast_unsigned();
    let from = format!("{last}\0");
    let is_key = from.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    if number_ends && is_key {
        assert_eq!(read, Some(ContinueToken { at: Some(ResourceVersion(number)), from }));
    } else {
        assert_eq!(read, None);
    }
}

fn read_token(text: &str) {
    let Some(token) = ContinueToken::decode(text) else { return };
    let climbs = |segment: &str| matches!(segment, "." | "..");
    assert!(!token.from.starts_with('/') && !token.from.split('/').any(climbs));
    let Some(at) = token.at else { return };
    assert!(at.0 > 0);
    let Some(last) = token.from.strip_suffix('\0') else { return };
    let minted = ContinueToken::encode(at, last);
    if minted == text {
        return;
    }
    // The upstream's store writes tokens without the slash.
    let json = URL_SAFE_NO_PAD.decode(minted).expect("what was minted is base64url");
    let json = String::from_utf8(json).expect("and JSON").replacen("\"/", "\"", 1);
    assert_eq!(URL_SAFE_NO_PAD.encode(json), text);
}

/// A rule extracts from JSON the same fields as a parse of the whole value, and from protobuf the
/// same; a label is found only where it is readable.
pub fn selectable_fields(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (label, json) = text.split_once('\n').unwrap_or((text, ""));
    let custom = SelectableFields::custom(true, &[format!(".{label}"), label.to_owned()]);
    for selectable in
        [custom, SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"))]
    {
        let Some(Field::Value(index)) = selectable.find(label) else { continue };
        let source = selectable.sources().get(index).expect("a source for each value");
        assert_eq!(source.path.join("."), *source.label);
        assert!(selectable.is_readable(index, Representation::Json));
        assert_eq!(
            selectable.is_readable(index, Representation::MetadataJson),
            source.rule == Rule::Empty
        );
    }
    if let (Ok(raw), Ok(value)) =
        (serde_json::from_str::<&RawValue>(json), serde_json::from_str(json))
    {
        for rule in RULES {
            let read = rule.value_of(Some(raw.get()));
            assert_eq!(*read, *expected(rule, &value, raw.get()).as_bytes(), "{rule:?} of {raw}");
            match (rule, &value) {
                (Rule::Text, Value::String(text)) => {
                    assert_eq!(rule.value_of_scalar(Some(Scalar::Text(text.as_bytes()))), read);
                }
                (Rule::Bool, Value::Bool(value)) => {
                    assert_eq!(rule.value_of_scalar(Some(Scalar::Number((*value).into()))), read);
                }
                (Rule::Number, Value::Number(number)) => {
                    let Some(number) = number.as_i64() else { continue };
                    let scalar = Scalar::Number(number.cast_unsigned());
                    assert_eq!(rule.value_of_scalar(Some(scalar)), read);
                }
                _ => {}
            }
        }
    }
}

/// Returns the expected text, by parsing the whole value.
fn expected(rule: Rule, value: &Value, raw: &str) -> String {
    match (rule, value) {
        (Rule::Bool, value) => (*value == Value::Bool(true)).to_string(),
        (Rule::Text | Rule::Printed, Value::String(text)) => text.clone(),
        (Rule::Printed, Value::Bool(_) | Value::Number(_)) => raw.to_owned(),
        (Rule::Number, Value::Number(_)) if !raw.contains(['.', 'e', 'E']) => raw.to_owned(),
        (Rule::Number, _) => "0".to_owned(),
        (Rule::Empty | Rule::Text | Rule::Printed, _) => String::new(),
    }
}

const RULES: [Rule; 5] = [Rule::Bool, Rule::Empty, Rule::Number, Rule::Printed, Rule::Text];

const PARAMETERS: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

const LABELS: [&[(&str, &str)]; 4] = [
    &[],
    &[("a", "b")],
    &[("a", ""), ("n", "7"), ("tier", "web")],
    &[("a", "c"), ("app.kubernetes.io/name", "x"), ("tier", "db")],
];
