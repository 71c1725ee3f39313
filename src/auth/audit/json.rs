//! Writes JSON into a buffer with the same bytes as Go's encoder.
//!
//! Headers are bytes and may contain invalid UTF-8: each invalid byte becomes the escape of U+FFFD,
//! as in Go.

/// Appends a string. Escapes `"`, `\` and control characters, and also `<`, `>`, `&`, U+2028 and
/// U+2029.
pub(super) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut rest = text;
    while let Some(end) = rest.iter().position(|&byte| is_special(byte)) {
        let (plain, special) = rest.split_at(end);
        out.extend_from_slice(plain);
        // Up to the next plain byte, so that no character is split.
        let end = special.iter().position(|&byte| !is_special(byte)).unwrap_or(special.len());
        let (special, after) = special.split_at(end);
        push_special(out, special);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Returns whether a byte may need an escape. All bytes beyond ASCII are checked in detail.
fn is_special(byte: u8) -> bool {
    matches!(byte, 0..0x20 | b'"' | b'\\' | b'<' | b'>' | b'&' | 0x80..)
}

fn push_special(out: &mut Vec<u8>, special: &[u8]) {
    for chunk in special.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.extend_from_slice(br#"\""#),
                '\\' => out.extend_from_slice(br"\\"),
                '\u{8}' => out.extend_from_slice(br"\b"),
                '\u{c}' => out.extend_from_slice(br"\f"),
                '\n' => out.extend_from_slice(br"\n"),
                '\r' => out.extend_from_slice(br"\r"),
                '\t' => out.extend_from_slice(br"\t"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
                }
                other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(br"\ufffd"));
    }
}

/// Writes the fields of an object in the order of the calls. Empty values are left out, as with
/// Go's `omitempty`.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    pub(super) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Writes the key of a field; the caller writes its value. The key must need no escapes;
    /// [`Self::escaped_key`] takes others.
    pub(super) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a key that may need escapes.
    pub(super) fn escaped_key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        push_string(self.out, key.as_bytes());
        self.out.push(b':');
        self.out
    }

    /// Writes a field with a string, unless it is empty.
    pub(super) fn string(&mut self, key: &str, value: &[u8]) {
        if !value.is_empty() {
            push_string(self.key(key), value);
        }
    }

    /// Writes a field with a list of strings, unless it is empty.
    pub(super) fn strings(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            push_strings(self.key(key), values);
        }
    }

    /// Ends the object.
    pub(super) fn close(self) {
        self.out.push(b'}');
    }

    fn comma(&mut self) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
    }
}

/// Appends an array of strings.
pub(super) fn push_strings(out: &mut Vec<u8>, values: &[String]) {
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(out, value.as_bytes());
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::status;

    fn json(text: &[u8]) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn invalid_utf8_is_replaced_byte_by_byte_as_in_go() {
        assert_eq!(json(b"a\xffb"), r#""a\ufffdb""#);
        // The first two bytes of a character of three.
        assert_eq!(json(b"\xe2\x82"), r#""\ufffd\ufffd""#);
        assert_eq!(json(b"\xe2\x82<\xc3\xa9"), "\"\\ufffd\\ufffd\\u003c\u{e9}\"");
        assert_eq!(json("\u{fffd}".as_bytes()), "\"\u{fffd}\"");
    }

    proptest! {
        #[test]
        fn strings_are_escaped_as_in_a_status(text in any::<String>()) {
            let mut expected = String::new();
            status::push_string(&mut expected, &text);
            prop_assert_eq!(json(text.as_bytes()), expected);
        }

        #[test]
        fn any_bytes_become_valid_json(bytes in any::<Vec<u8>>()) {
            let read: String = serde_json::from_str(&json(&bytes)).unwrap();
            let valid = |text: &str| text.chars().filter(|&c| c != '\u{fffd}').collect::<String>();
            prop_assert_eq!(valid(&read), valid(&String::from_utf8_lossy(&bytes)));
        }
    }
}
