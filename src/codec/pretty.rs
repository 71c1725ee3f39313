//! JSON indented as Go's `json.Indent` does with two spaces (`docs/semantics.md` §8.6), for curl
//! and browsers.

/// Indents compact JSON. The trailing newline of the compact form is left out, as the API server
/// does. Bytes of strings and numbers never change.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let compact = compact.trim_ascii_end();
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    // Set after `{` or `[`: the line break is written only if something follows, so that empty ones
    // stay `{}`.
    let mut opened = false;
    for &byte in compact {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        if opened && !matches!(byte, b'}' | b']') {
            new_line(&mut out, depth);
        }
        match byte {
            b'{' | b'[' => {
                depth += 1;
                out.push(byte);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !opened {
                    new_line(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
        in_string = byte == b'"';
        opened = matches!(byte, b'{' | b'[');
    }
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn indents_as_go_does() {
        let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x,y:{\"\\"}],"e":-1.5e3,"f":null}
"#;
        let pretty = r#"{
  "a": {},
  "b": [],
  "c": [
    1,
    {
      "d": "x,y:{\"\\"
    }
  ],
  "e": -1.5e3,
  "f": null
}"#;
        assert_eq!(String::from_utf8(indent(compact)).unwrap(), pretty);
    }

    proptest! {
        /// serde_json's pretty form is Go's with the same two spaces, except for characters that Go
        /// escapes.
        #[test]
        fn agrees_with_serde_json(keys in prop::collection::vec("[ -~\u{e9}]{0,6}", 0..6), depth in 0usize..4) {
            let mut value = serde_json::json!(keys);
            for _ in 0..depth {
                value = serde_json::json!({"k": value, "empty": {}, "list": [1, value]});
            }
            let compact = serde_json::to_vec(&value).unwrap();
            prop_assert_eq!(indent(&compact), serde_json::to_vec_pretty(&value).unwrap());
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            indent(&bytes);
        }
    }
}
