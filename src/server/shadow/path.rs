//! Where in a body two answers differ: the JSON path, or the numbers of the protobuf fields, at an
//! offset. Names of fields are the schema's; keys of maps may be content, and are not shown.
//!
//! Both finders accept any bytes, and take time in proportion to the offset.

use crate::codec::protobuf::wire::{Fields, Value};
use crate::codec::protobuf::{MAGIC, is_protobuf};

pub(crate) fn path_at(body: &[u8], offset: usize) -> String {
    if is_protobuf(body) { protobuf_path(body, offset) } else { json_path(body, offset) }
}

enum Level {
    Object {
        /// The range of the key of the present member.
        key: Option<(usize, usize)>,
        expects_key: bool,
    },
    Array(usize),
}

fn json_path(body: &[u8], offset: usize) -> String {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while at < offset {
        let Some(byte) = body.get(at) else { break };
        match byte {
            b'{' if levels.len() < DEPTH_MAX => {
                levels.push(Level::Object { key: None, expects_key: true });
            }
            b'[' if levels.len() < DEPTH_MAX => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Array(index)) => *index += 1,
                Some(Level::Object { key, expects_key }) => (*key, *expects_key) = (None, true),
                None => {}
            },
            b'"' => {
                let end = string_end(body, at + 1);
                if let Some(Level::Object { key, expects_key: expects_key @ true }) =
                    levels.last_mut()
                    && end < offset
                {
                    (*key, *expects_key) = (Some((at + 1, end)), false);
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    path_text(body, &levels)
}

/// Returns the place of the quote that ends a string, or the end of the body.
fn string_end(body: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    body.len()
}

fn path_text(body: &[u8], levels: &[Level]) -> String {
    let (mut path, mut is_map) = (String::new(), false);
    for level in levels {
        match level {
            Level::Array(index) => {
                path.push_str(&format!("[{index}]"));
                is_map = false;
            }
            Level::Object { key: None, .. } => {}
            Level::Object { key: Some((start, end)), .. } => {
                let key = body.get(*start..*end).unwrap_or_default();
                path.push('.');
                match std::str::from_utf8(key) {
                    Ok(key) if !is_map && is_field_name(key) => {
                        path.push_str(key);
                        is_map = MAPS.contains(&key);
                    }
                    _ => path.push('*'),
                }
            }
        }
    }
    if path.is_empty() { "$".to_owned() } else { path }
}

/// Whether a key may be a field of a schema: keys of maps mostly have a dot, a dash or a slash.
fn is_field_name(key: &str) -> bool {
    (1..=FIELD_BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn protobuf_path(body: &[u8], offset: usize) -> String {
    let mut path = String::new();
    let (mut message, mut base) = (body.get(MAGIC.len()..).unwrap_or_default(), MAGIC.len());
    for _ in 0..DEPTH_MAX {
        let Some(field) = field_at(message, offset.saturating_sub(base)) else { break };
        path.push_str(&format!("{}{}", if path.is_empty() { "" } else { "." }, field.number));
        let Value::Bytes(inner) = field.value else { break };
        let is_within = offset >= base + field.value_start;
        if !is_within || inner.is_empty() || Fields::new(inner).any(|field| field.is_err()) {
            break;
        }
        base += field.value_start;
        message = inner;
    }
    if path.is_empty() { "$".to_owned() } else { path }
}

/// Returns the last field that begins at or before an offset.
fn field_at(message: &[u8], offset: usize) -> Option<crate::codec::protobuf::wire::Field<'_>> {
    let fields = Fields::new(message).map_while(Result::ok);
    fields.take_while(|field| field.start <= offset).last()
}

/// The fields of Kubernetes' objects whose keys are content.
const MAPS: [&str; 10] = [
    "annotations",
    "binaryData",
    "data",
    "labels",
    "matchLabels",
    "nodeSelector",
    "parameters",
    "selector",
    "stringData",
    "value",
];

/// Deeper levels of an object are not shown.
const DEPTH_MAX: usize = 64;
/// Longer than the names of Kubernetes' fields.
const FIELD_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_names_the_fields_of_the_schema() {
        let body = br#"{"kind":"PodList","items":[{"a":"x\"{"},{"spec":{"nodeName":"n-1"}}]}"#;
        let at = |text: &str| memchr::memmem::find(body, text.as_bytes()).unwrap() + 1;
        assert_eq!(json_path(body, 0), "$");
        assert_eq!(json_path(body, at("PodList")), ".kind");
        assert_eq!(json_path(body, at("x\\")), ".items[0].a");
        assert_eq!(json_path(body, at("n-1")), ".items[1].spec.nodeName");
        assert_eq!(json_path(body, body.len()), "$");
    }

    #[test]
    fn keys_of_maps_are_not_shown() {
        let body = br#"{"data":{"password":"c2VjcmV0"},"metadata":{"annotations":{"a/b":"v"}}}"#;
        let at = |text: &str| memchr::memmem::find(body, text.as_bytes()).unwrap() + 1;
        assert_eq!(json_path(body, at("c2Vj")), ".data.*");
        assert_eq!(json_path(body, at("\"v")), ".metadata.annotations.*");
        let odd = br#"{"metadata":{"token-of.me":"x"}}"#;
        assert_eq!(json_path(odd, 28), ".metadata.*");
    }

    #[test]
    fn a_protobuf_path_has_the_numbers_of_the_fields() {
        // Unknown{2: Pod{1: ObjectMeta{1: "name", 6: "7"}}}
        let meta = [&[0x0a, 4][..], b"name", &[0x32, 1], b"7"].concat();
        let pod = [&[0x0a, u8::try_from(meta.len()).unwrap()][..], &meta].concat();
        let body =
            [MAGIC, &[0x12, u8::try_from(pod.len()).unwrap()], &pod, &[0x1a, 0, 0x22, 0]].concat();
        let seven = body.iter().position(|byte| *byte == b'7').unwrap();
        assert_eq!(protobuf_path(&body, seven), "2.1.6");
        assert_eq!(protobuf_path(&body, body.len() - 1), "4");
        assert_eq!(path_at(&body, 4), "2");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_path(body in prop::collection::vec(any::<u8>(), 0..200), offset in 0..250_usize) {
            prop_assert!(!path_at(&body, offset).is_empty());
            let with_magic = [MAGIC, &body].concat();
            prop_assert!(!path_at(&with_magic, offset).is_empty());
        }

        /// The path of a leaf's first byte is the way to that leaf.
        #[test]
        fn a_leaf_is_found(keys in prop::collection::vec("x[a-z]{1,5}", 1..6), before in 0..4_usize) {
            let mut value = serde_json::json!(7171);
            for key in keys.iter().rev() {
                let mut items = vec![serde_json::json!({"other": [1, "]"]}); before];
                items.push(serde_json::json!({key: value}));
                value = items.into();
            }
            let body = value.to_string().into_bytes();
            let offset = memchr::memmem::find(&body, b"7171").unwrap();
            let expected: String = keys.iter().map(|key| format!("[{before}].{key}")).collect();
            prop_assert_eq!(json_path(&body, offset), expected);
        }
    }
}
