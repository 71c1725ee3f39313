//! JSON indented as Go's `json.Indent` does with two spaces (`docs/semantics.md` §8.6), for curl
//! and browsers.

/// Indents compact JSON. The trailing newline of the compact form is left out, as the API server
/// does. Bytes of strings and numbers never change.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    Indenter::default().push(compact, &mut out, usize::MAX);
    out
}

/// Indents compact JSON part by part: between two parts it keeps a few words, and no bytes.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    depth: usize,
    in_string: bool,
    /// Whether the last byte of a string was a backslash that escapes the next one.
    escaped: bool,
    /// Set after `{` or `[`: the line break is written only if something follows, so that empty
    /// ones stay `{}`.
    opened: bool,
    /// Whether the line break before the next `}` or `]` was written.
    closing: bool,
    /// The spaces at the beginning of a line that were not written yet. Deep nesting can make them
    /// far more than the compact form.
    spaces: usize,
}

impl Indenter {
    /// Appends the indented form of the beginning of `compact` to `out`, until that has about
    /// `length_max` bytes. Returns how many bytes were read.
    pub fn push(&mut self, compact: &[u8], out: &mut Vec<u8>, length_max: usize) -> usize {
        let mut read = 0;
        while out.len() < length_max {
            if self.spaces > 0 {
                let spaces = self.spaces.min(length_max - out.len());
                out.resize(out.len() + spaces, b' ');
                self.spaces -= spaces;
                continue;
            }
            let Some(rest) = compact.get(read..).filter(|rest| !rest.is_empty()) else { break };
            read += if self.in_string {
                self.push_string(rest, out, length_max - out.len())
            } else {
                usize::from(self.push_byte(rest, out))
            };
        }
        read
    }

    /// Appends the string's bytes up to and including the next quote or backslash, at most
    /// `length_max`. Returns how many.
    fn push_string(&mut self, rest: &[u8], out: &mut Vec<u8>, length_max: usize) -> usize {
        let rest = rest.get(..length_max).unwrap_or(rest);
        if std::mem::take(&mut self.escaped) {
            out.extend(rest.first());
            return 1;
        }
        let special = memchr::memchr2(b'"', b'\\', rest);
        let part = special.and_then(|at| rest.get(..=at)).unwrap_or(rest);
        out.extend_from_slice(part);
        if special.is_some() {
            self.escaped = part.last() == Some(&b'\\');
            self.in_string = self.escaped;
        }
        part.len()
    }

    /// Appends the next byte outside of strings, or the line break before it. Returns whether the
    /// byte was appended, or is left out.
    fn push_byte(&mut self, rest: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(&byte) = rest.first() else { return false };
        match byte {
            // The newline at the end.
            b' ' | b'\t' | b'\r' | b'\n' => return true,
            b'}' | b']' if self.opened => self.depth = self.depth.saturating_sub(1),
            b'}' | b']' if !self.closing => {
                self.depth = self.depth.saturating_sub(1);
                self.closing = true;
                self.new_line(out);
                return false;
            }
            b'}' | b']' => self.closing = false,
            _ if self.opened => {
                self.opened = false;
                self.new_line(out);
                return false;
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            _ => {}
        }
        out.push(byte);
        match byte {
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            _ => {}
        }
        self.in_string = byte == b'"';
        self.opened = matches!(byte, b'{' | b'[');
        true
    }

    fn new_line(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
        self.spaces = self.depth.saturating_mul(2);
    }
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

        /// The parts of the input and of the output may end anywhere.
        #[test]
        fn parts_are_indented_as_the_whole(
            text in r#"[\[\]{},:" a-c\\]{0,60}"#,
            cut in 0_usize..60,
            length_max in 1_usize..9,
        ) {
            let (mut indenter, mut output) = (Indenter::default(), Vec::new());
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            for mut part in [first, second] {
                loop {
                    let mut out = Vec::new();
                    let read = indenter.push(part, &mut out, length_max);
                    part = &part[read..];
                    prop_assert!(out.len() <= length_max + 1);
                    output.extend_from_slice(&out);
                    if out.is_empty() {
                        break;
                    }
                }
                prop_assert!(part.is_empty());
            }
            prop_assert_eq!(output, indent(text.as_bytes()));
        }
    }
}
