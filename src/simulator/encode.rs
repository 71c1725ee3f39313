//! JSON as Go's encoder writes it: escapes, numbers and indentation (`docs/semantics.md` §3.6).
//!
//! The response of a GET, a watch event and an item of a list contain the same bytes of an object,
//! so an object is encoded once, when it is stored.

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter};

/// Encodes a value compactly, with Go's escapes.
pub(super) fn encode(value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter);
    // Writing to memory does not fail, and all keys are strings.
    if value.serialize(&mut serializer).is_err() {
        out.clear();
    }
    // Copies to the exact size: stored objects would otherwise hold the spare capacity.
    Bytes::copy_from_slice(&out)
}

/// Re-indents compact JSON by two spaces, as Go's `json.Indent` does (`docs/semantics.md` §8.6).
pub(super) fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped, mut opened) = (0_usize, false, false, false);
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for &byte in compact {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        if opened && !matches!(byte, b'}' | b']' | b'\n') {
            newline(&mut out, depth);
            opened = false;
        }
        match byte {
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                depth += 1;
                opened = true;
                out.push(byte);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !opened {
                    newline(&mut out, depth);
                }
                opened = false;
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                newline(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'\n' => {}
            other => out.push(other),
        }
    }
    out
}

/// Returns the value with all its maps sorted by the bytes of the keys.
pub(super) fn sort_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<(String, Value)> =
                map.into_iter().map(|(key, value)| (key, sort_keys(value))).collect();
            pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(pairs.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sort_keys).collect()),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

/// Compact output with Go's differences: HTML characters and line separators are escaped, and
/// floats are printed in Go's form.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let special = |ch: char| matches!(ch, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        for piece in fragment.split_inclusive(special) {
            match piece.chars().next_back() {
                Some(last) if special(last) => {
                    writer.write_all(piece.strip_suffix(last).unwrap_or(piece).as_bytes())?;
                    write!(writer, "\\u{:04x}", u32::from(last))?;
                }
                _ => writer.write_all(piece.as_bytes())?,
            }
        }
        Ok(())
    }

    fn write_f64<W>(&mut self, writer: &mut W, value: f64) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let size = value.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            let text = if text.contains("e-") { text } else { text.replace('e', "e+") };
            return writer.write_all(text.as_bytes());
        }
        if value.fract() == 0.0 {
            return write!(writer, "{value:.0}");
        }
        CompactFormatter.write_f64(writer, value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn escapes_and_numbers_are_those_of_go() {
        let value = json!({"a": "<&>\u{2028}x<<", "b": [1.0, 1.5, 1e21, 1e-7, -0.0, 100000.0, 7]});
        assert_eq!(
            encode(&value),
            r#"{"a":"\u003c\u0026\u003e\u2028x\u003c\u003c","b":[1,1.5,1e+21,1e-7,-0,100000,7]}"#
        );
    }

    #[test]
    fn indents_like_go() {
        let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x,{\"}"}]}"#;
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x,{\\\"}\"\n    }\n  ]\n}";
        assert_eq!(String::from_utf8(indent(compact)).unwrap(), expected);
    }
}
