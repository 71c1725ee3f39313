//! Statuses in YAML, byte for byte as the API server writes them (`docs/semantics.md` §8.5).
//!
//! The API server turns its JSON into YAML with Go's yaml.v2: keys in the order of their letters,
//! strings plain where they read back as strings, else in quotes, folded after 80 columns. A Status
//! has only texts, numbers and two levels, so this module writes no other YAML.
//!
//! [`Style::of`] follows `stringv` of yaml.v2's `encode.go`, and the analysis of its `emitterc.go`.

mod resolve;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::api::status::Status;

/// Encodes a Status as the API server does.
pub fn encode_status(status: &Status) -> Bytes {
    let mut yaml = Writer::default();
    yaml.plain("apiVersion", "v1");
    yaml.plain("code", status.code.as_str());
    let seconds = status.retry_after_seconds.filter(|seconds| *seconds > 0);
    if status.details.is_some() || seconds.is_some() {
        let details = status.details.clone().unwrap_or_default();
        let seconds = seconds.map(|seconds| seconds.to_string());
        let texts = [&details.group, &details.kind, &details.name];
        if seconds.is_none() && texts.iter().all(|text| text.is_empty()) {
            yaml.plain("details", "{}");
        } else {
            yaml.begin("details");
            yaml.text("group", &details.group);
            yaml.text("kind", &details.kind);
            yaml.text("name", &details.name);
            if let Some(seconds) = &seconds {
                yaml.plain("retryAfterSeconds", seconds);
            }
            yaml.end();
        }
    }
    yaml.plain("kind", "Status");
    yaml.text("message", &status.message);
    yaml.plain("metadata", "{}");
    yaml.text("reason", status.reason);
    yaml.plain("status", "Failure");
    Bytes::from(yaml.out)
}

/// Writes the keys of block mappings and their values.
#[derive(Default)]
struct Writer {
    out: String,
    /// The column of the keys.
    indent: usize,
    /// The number of characters of the current line.
    column: usize,
}

impl Writer {
    /// Writes a key whose value is a mapping.
    fn begin(&mut self, key: &str) {
        self.key(key);
        self.end_line();
        self.indent += INDENT;
    }

    /// Ends the mapping that [`Self::begin`] began.
    fn end(&mut self) {
        self.indent -= INDENT;
    }

    /// Writes a value as it is.
    fn plain(&mut self, key: &str, value: &str) {
        self.key(key);
        self.put(" ");
        self.put(value);
        self.end_line();
    }

    /// Writes a text, unless it is empty: Go omits empty fields.
    fn text(&mut self, key: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        self.key(key);
        self.put(" ");
        match Style::of(text) {
            Style::Plain => self.folded(text, "", |out, character| out.push(character)),
            Style::SingleQuoted => self.folded(text, "'", |out, character| match character {
                '\'' => out.push_str("''"),
                other => out.push(other),
            }),
            Style::DoubleQuoted => self.double_quoted(text),
            Style::Literal => return self.literal(text),
        }
        self.end_line();
    }

    fn key(&mut self, key: &str) {
        self.spaces(self.indent);
        self.put(key);
        self.put(":");
    }

    /// Writes a text of one line. A space beyond column 80 becomes a line break, unless it is
    /// beside another, or, in quotes, the first or the last character.
    fn folded(&mut self, text: &str, quote: &str, push: impl Fn(&mut String, char)) {
        self.put(quote);
        let mut after_space = false;
        let mut characters = text.chars().peekable();
        let mut is_first = true;
        while let Some(character) = characters.next() {
            if character == ' ' {
                let next = characters.peek();
                let inside = quote.is_empty() || (!is_first && next.is_some());
                if inside && !after_space && self.column > WIDTH && next != Some(&' ') {
                    self.break_line();
                } else {
                    self.put(" ");
                }
            } else {
                let before = self.out.len();
                push(&mut self.out, character);
                self.column += self.out.get(before..).map_or(0, |added| added.chars().count());
            }
            after_space = character == ' ';
            is_first = false;
        }
        self.put(quote);
    }

    fn double_quoted(&mut self, text: &str) {
        self.put("\"");
        let mut after_space = false;
        let mut characters = text.chars().peekable();
        let mut is_first = true;
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            match character {
                ' ' if !after_space && self.column > WIDTH && !is_first && next.is_some() => {
                    self.break_line();
                    if next == Some(' ') {
                        self.put("\\");
                    }
                }
                '"' | '\\' => {
                    self.put("\\");
                    self.put_char(character);
                }
                character if is_printable(character) && !is_break(character) => {
                    self.put_char(character);
                }
                character => self.put(&escape(character)),
            }
            after_space = character == ' ';
            is_first = false;
        }
        self.put("\"");
    }

    /// Writes a text of several lines as a block.
    fn literal(&mut self, text: &str) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        let is_last_empty = text == "\n" || text.ends_with("\n\n");
        if is_last_empty {
            self.put("+");
        } else if !text.ends_with('\n') {
            self.put("-");
        }
        self.end_line();
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if !line.is_empty() {
                self.spaces(self.indent + INDENT);
                self.put(line);
            }
            self.end_line();
        }
    }

    /// Goes on in the next line, which is indented below the key.
    fn break_line(&mut self) {
        self.end_line();
        self.spaces(self.indent + INDENT);
    }

    fn spaces(&mut self, count: usize) {
        self.out.extend(std::iter::repeat_n(' ', count));
        self.column += count;
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }

    fn end_line(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }
}

/// The style in which yaml.v2 writes a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

impl Style {
    fn of(text: &str) -> Self {
        let special = text.chars().any(|character| !is_printable(character));
        let pairs = || text.chars().zip(text.chars().skip(1));
        let space_break = pairs().any(|(one, next)| one == ' ' && is_break(next));
        let break_space = pairs().any(|(one, next)| is_break(one) && next == ' ');
        if text.contains('\n') {
            let is_block = !special && !space_break && !text.ends_with(' ');
            return if is_block { Self::Literal } else { Self::DoubleQuoted };
        }
        if !resolve::is_text(text) || special || space_break || break_space {
            return Self::DoubleQuoted;
        }
        let at_edge = text.starts_with(' ') || text.ends_with(' ');
        if at_edge || text.contains(is_break) || indicates(text) {
            Self::SingleQuoted
        } else {
            Self::Plain
        }
    }
}

/// Whether a plain text would be read as something else than a text.
fn indicates(text: &str) -> bool {
    let is_blank = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    let bytes = text.as_bytes();
    let starts = match bytes.first() {
        Some(
            b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`',
        ) => true,
        Some(b'?' | b':' | b'-') => is_blank(bytes.get(1)),
        _ => false,
    };
    let pairs = bytes.iter().zip(bytes.iter().skip(1).map(Some).chain([None]));
    let colon = pairs.skip(1).any(|(byte, next)| *byte == b':' && is_blank(next));
    let comment = bytes.windows(2).any(|pair| matches!(pair, [b' ' | b'\t', b'#']));
    starts || colon || comment || text.starts_with("---") || text.starts_with("...")
}

/// Whether yaml.v2 writes a character unescaped. It reads no surrogates, and no others exist in a
/// `str`.
fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && character != '\u{feff}'
}

/// Whether a character ends a line in YAML.
fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns the escape of a character in double quotes.
fn escape(character: char) -> String {
    let name = match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '\u{85}' => 'N',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => {
            return match u32::from(other) {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code @ ..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{name}")
}

/// The indentation of a level.
const INDENT: usize = 2;
/// The column after which a line is folded at the next space.
const WIDTH: usize = 80;
