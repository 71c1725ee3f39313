//! Writes strings in JSON with the same bytes as Go's encoder: `<`, `>`, `&`, U+2028 and U+2029 are
//! escaped too, so that the text is safe in HTML and JavaScript.
//!
//! Headers are bytes and may contain invalid UTF-8: each invalid byte becomes the escape of U+FFFD,
//! as in Go.

/// Appends a string.
pub fn push_string(out: &mut Vec<u8>, text: &[u8]) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        fn any_bytes_become_valid_json(bytes in any::<Vec<u8>>()) {
            let read: String = serde_json::from_str(&json(&bytes)).unwrap();
            let valid = |text: &str| text.chars().filter(|&c| c != '\u{fffd}').collect::<String>();
            prop_assert_eq!(valid(&read), valid(&String::from_utf8_lossy(&bytes)));
        }
    }
}
