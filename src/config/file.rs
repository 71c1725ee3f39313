//! The YAML file as it stands: a tree of values, each with its line and column, so that every
//! problem can be reported with its place. [`resolve`](super::resolve) makes a configuration of it.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

/// The `apiVersion` that this build reads.
pub const API_VERSION: &str = "weir.dev/v1alpha1";

/// The `kind` that this build reads.
pub const KIND: &str = "WeirConfiguration";

/// A configuration file.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Its fields, without `apiVersion` and `kind`.
    pub(super) root: Node,
}

impl ConfigFile {
    /// Returns a file that sets nothing.
    pub fn empty() -> Self {
        Self { root: Node::fields(Vec::new()) }
    }

    /// Reads the text of a file.
    pub fn read_text(path: &Path) -> Result<String, FileError> {
        let name = path.display().to_string();
        let cause = |error: std::io::Error| FileError::Read { file: name.clone(), cause: error };
        let file = File::open(path).map_err(cause)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cause)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { file: name });
        }
        Ok(text)
    }

    /// Parses the text of a file. `file` is its name in error messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        // `off` is a word of many settings, and a boolean in YAML 1.1 only.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut root: Node = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| FileError::syntax(file, &error))?;
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let text = root.get(field).and_then(Node::text).unwrap_or_default();
            if text != expected {
                let (file, actual) = (file.to_owned(), text.to_owned());
                return Err(FileError::Type { file, field, expected, actual });
            }
        }
        if let Located::Fields(entries) = &mut root.0.value {
            entries.retain(|(_, name, _)| name != "apiVersion" && name != "kind");
        }
        Ok(Self { root })
    }
}

/// Why a file is not a configuration.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The file has more than [`FILE_BYTES_MAX`] bytes.
    #[error("{file} has more than the {FILE_BYTES_MAX} bytes allowed for a configuration")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// Another `apiVersion` or `kind`.
    #[error("{file}: {field} must be {expected:?}, not {actual:?}")]
    Type {
        /// The file.
        file: String,
        /// The field.
        field: &'static str,
        /// The value that this build reads.
        expected: &'static str,
        /// The value in the file; empty if there is none.
        actual: String,
    },
    /// The text is not YAML.
    #[error("{file}:{line}:{column}: {cause}")]
    Syntax {
        /// The file.
        file: String,
        /// Counted from 1.
        line: u64,
        /// Counted from 1.
        column: u64,
        /// The parser's message.
        cause: String,
    },
}

impl FileError {
    /// The parser's message on one line, without its drawing of the location.
    fn syntax(file: &str, error: &serde_saphyr::Error) -> Self {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        let text = error.without_snippet().to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join("; ");
        let message = text.rfind(" at line ").and_then(|place| text.get(..place));
        let cause = message.unwrap_or(&text).to_owned();
        let (line, column) = (location.line(), location.column());
        Self::Syntax { file: file.to_owned(), line, column, cause }
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node(Spanned<Located>);

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Located {
    /// No value, as after `field:`.
    Nothing,
    Scalar(Value),
    List(Vec<Node>),
    /// The key with its place, its name, and the value.
    Fields(Vec<(Node, String, Node)>),
}

impl Node {
    fn fields(entries: Vec<(Self, String, Self)>) -> Self {
        Self(Spanned::new(Located::Fields(entries), Location::UNKNOWN, Location::UNKNOWN))
    }

    pub(super) fn located(&self) -> &Located {
        &self.0.value
    }

    /// Line and column, counted from 1.
    pub(super) fn place(&self) -> Option<(u64, u64)> {
        let location = self.0.referenced;
        (location.line() > 0).then(|| (location.line(), location.column()))
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self.located() {
            Located::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns a field such as `server.listeners[0].listen`, if it has a value.
    pub(super) fn get(&self, path: &str) -> Option<&Self> {
        let (node, is_whole) = self.nearest(path);
        (is_whole && !matches!(node.located(), Located::Nothing)).then_some(node)
    }

    /// Returns the place of a field, or of the nearest above it.
    pub(super) fn place_of(&self, path: &str) -> Option<(u64, u64)> {
        self.nearest(path).0.place()
    }

    /// Follows a path as far as it leads, and returns whether that is to its end.
    fn nearest(&self, path: &str) -> (&Self, bool) {
        let mut node = self;
        for step in path.split(['.', '[']).map(|step| step.trim_end_matches(']')) {
            let next = match node.located() {
                Located::Fields(fields) => {
                    fields.iter().find(|(_, name, _)| name == step).map(|(_, _, value)| value)
                }
                Located::List(items) => {
                    step.parse::<usize>().ok().and_then(|index| items.get(index))
                }
                Located::Nothing | Located::Scalar(_) => None,
            };
            let Some(next) = next else { return (node, false) };
            node = next;
        }
        (node, true)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

/// Takes each kind of scalar.
macro_rules! scalars {
    ($($method:ident: $type:ty),+) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<Located, E> {
            Ok(Located::Scalar(value.into()))
        })+
    };
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Located;

    scalars! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Located, E> {
        Ok(Located::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<Located, E> {
        Ok(Located::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Located, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Located::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Located, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Node, Node>()? {
            let name = match key.located() {
                Located::Scalar(Value::String(name)) => name.clone(),
                Located::Scalar(other) => other.to_string(),
                _ => String::new(),
            };
            fields.push((key, name, value));
        }
        Ok(Located::Fields(fields))
    }
}

/// A configuration has a few kilobytes; a larger file was given by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;
