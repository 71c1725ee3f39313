//! Replaces names by words in the files of a bundle: of users, user agents, namespaces, objects,
//! addresses and paths.
//!
//! It reads all files twice. First it collects names where a field, a label or a URL shows that
//! they are names ([`names`]). Then it replaces them in every text of every file ([`replace`]),
//! since a message or an evidence repeats them in the middle of a sentence.
//!
//! A word is the kind of the name with a keyed hash of it, `user-1f09ab3c`: the same name has the
//! same word in all files, and in all bundles of one key. Without the key nobody can find out by
//! guesses which name it was.
//!
//! Invariant: field names, metric names and what Weir itself says of a request (verbs, reasons,
//! resources) stay, so that a bundle can be read.

mod common;
mod fields;
mod format;
mod names;
mod replace;

use aws_lc_rs::hmac;
use serde_json::Value;

use self::fields::{is_fixed, is_vocabulary, kind_of};
pub(super) use self::format::Format;
use self::names::{NameKind, Names, canonical};
use self::replace::Replacer;
use crate::cli::operator::exposition::{labels_of, unescaped};

/// Replaces names in files.
#[derive(Debug)]
pub(super) struct Redactor {
    key: hmac::Key,
    names: Names,
}

impl Redactor {
    /// Creates one. Words are compared between bundles of the same key.
    pub(super) fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), names: Names::default() }
    }

    /// Collects the names of a file. Call this for all files before [`Self::replacer`].
    pub(super) fn collect(&mut self, format: Format, text: &str) {
        match format {
            Format::Json => match serde_json::from_str(text) {
                Ok(document) => self.collect_value(&document),
                Err(_) => self.names.add_text(text),
            },
            Format::JsonLines => {
                for line in text.lines() {
                    self.collect(Format::Json, line);
                }
            }
            Format::Metrics => {
                for (label, value) in text.lines().flat_map(labels_of) {
                    self.collect_field(label, &unescaped(value));
                }
            }
            Format::Text => {
                for line in text.lines() {
                    if let Some((name, value)) = line.split_once('=') {
                        self.collect_field(name, value);
                    }
                    self.names.add_text(line);
                }
            }
        }
    }

    /// Returns a file with words in place of names. `replacer` is that of all names.
    pub(super) fn redact(&self, replacer: &Replacer, format: Format, text: &str) -> String {
        match format {
            Format::Json => match serde_json::from_str(text) {
                Ok(mut document) => {
                    self.redact_value(replacer, format, None, &mut document);
                    format!("{document:#}\n")
                }
                Err(_) => replacer.replace(text),
            },
            Format::JsonLines => {
                let line = |line: &str| match serde_json::from_str(line) {
                    Ok(mut document) => {
                        self.redact_value(replacer, format, None, &mut document);
                        format!("{document}\n")
                    }
                    Err(_) => replacer.replace(line) + "\n",
                };
                text.lines().map(line).collect()
            }
            Format::Metrics => {
                text.lines().map(|line| self.redact_metric(replacer, line) + "\n").collect()
            }
            Format::Text => {
                let line = |line: &str| match line.split_once('=') {
                    Some((name, value)) if kind_of(name).is_some() => {
                        format!("{name}={}\n", self.field(replacer, format, name, value))
                    }
                    _ => replacer.replace(line) + "\n",
                };
                text.lines().map(line).collect()
            }
        }
    }

    /// Returns the replacer of the names collected so far; one is enough for all files.
    pub(super) fn replacer(&self) -> Replacer {
        Replacer::new(self.names.iter().map(|(name, kind)| (name, self.word(name, kind))))
    }

    fn word(&self, name: &str, kind: NameKind) -> String {
        let tag = hmac::sign(&self.key, name.as_bytes());
        let hash: String = tag.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{hash}", kind.as_str())
    }

    fn collect_value(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let has_user = fields.contains_key("user") || fields.contains_key("userAgent");
                for (field, value) in fields {
                    // A client is its user and its agent, which have fields of their own.
                    if is_fixed(field) || (field == "client" && has_user) {
                        continue;
                    }
                    self.collect_in(field, value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect_value(item)),
            Value::String(text) => self.names.add_text(text),
            _ => {}
        }
    }

    /// Collects from the value of a field. All texts below a field of names are names.
    fn collect_in(&mut self, field: &str, value: &Value) {
        match value {
            Value::String(text) => self.collect_field(field, text),
            Value::Array(items) => items.iter().for_each(|item| self.collect_in(field, item)),
            Value::Object(fields) if kind_of(field) == Some(NameKind::User) => {
                for (_, value) in fields.iter().filter(|(name, _)| !is_fixed(name)) {
                    self.collect_in(field, value);
                }
            }
            _ => self.collect_value(value),
        }
    }

    fn collect_field(&mut self, field: &str, text: &str) {
        if let Some(kind) = kind_of(field) {
            self.names.add_value(kind, text);
        }
        self.names.add_text(text);
    }

    fn redact_value(
        &self,
        replacer: &Replacer,
        format: Format,
        field: Option<&str>,
        value: &mut Value,
    ) {
        match value {
            Value::String(text) => {
                *text = self.field(replacer, format, field.unwrap_or_default(), text);
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.redact_value(replacer, format, field, item));
            }
            Value::Object(fields) => {
                let outer = field.filter(|field| kind_of(field) == Some(NameKind::User));
                for (name, value) in fields.iter_mut().filter(|(name, _)| !is_fixed(name)) {
                    self.redact_value(replacer, format, outer.or(Some(name)), value);
                }
            }
            _ => {}
        }
    }

    /// Returns the value of a field. A name that is also an ordinary word is replaced only where it
    /// is all of a field of names.
    fn field(&self, replacer: &Replacer, format: Format, field: &str, text: &str) -> String {
        if is_vocabulary(format, field) {
            return text.to_owned();
        }
        let kind = kind_of(field).and_then(|_| self.names.get(canonical(text)));
        match kind {
            Some(kind) => self.word(canonical(text), kind),
            None => replacer.replace(text),
        }
    }

    /// Redacts the values of labels, and leaves all else of the line.
    fn redact_metric(&self, replacer: &Replacer, line: &str) -> String {
        let mut redacted = String::with_capacity(line.len());
        let mut rest = line;
        for (label, value) in labels_of(line) {
            let Some((before, after)) = rest.split_once(&format!("{label}=\"{value}\"")) else {
                continue;
            };
            let word = self.field(replacer, Format::Metrics, label, &unescaped(value));
            redacted.push_str(&format!("{before}{label}=\"{}\"", escaped(&word)));
            rest = after;
        }
        redacted + rest
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
