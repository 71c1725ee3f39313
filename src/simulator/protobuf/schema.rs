//! The schema of Kubernetes' own types: one table for protobuf in both directions and for the shape
//! of their JSON.
//!
//! A message is a line: its name, then its fields in the order of their declaration in Go, which is
//! also the order in JSON. A field is `name=number:type`; without a type it is a string, `s`. `i`
//! is an integer, `b` a boolean, `y` bytes, `raw` JSON within a message, `ios` an IntOrString, and
//! `map`, `bmap`, `qmap` and `emap` are maps of strings, bytes, quantities and lists of strings.
//! Any other word is a message. `?` before a type marks a pointer, `^` a message whose fields are
//! inlined into the parent in JSON; `*` after a type marks a list. `!` at the end marks a field
//! that JSON has even if it is empty, `-` a message that JSON omits if it is empty.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::core::CORE;
use super::groups::GROUPS;
use super::meta::META;

/// A message of the table.
#[derive(Debug)]
pub(super) struct Message {
    /// The fields, in the order of JSON.
    pub(super) fields: Vec<Field>,
    /// Indices of `fields` by ascending number: the order of the wire.
    pub(super) wire: Vec<usize>,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    /// The name in JSON; `_` for an inlined field.
    pub(super) name: &'static str,
    /// The number on the wire.
    pub(super) number: u64,
    /// The type of its value, or of its elements.
    pub(super) kind: Type,
    /// Whether it is a pointer: absent and empty differ.
    pub(super) pointer: bool,
    /// Whether JSON inlines its fields into the parent.
    pub(super) inline: bool,
    /// Whether it is a list.
    pub(super) repeated: bool,
    /// Whether JSON has it even if it is empty.
    pub(super) always: bool,
}

/// The type of a field, or of an element of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Integer,
    Boolean,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Raw,
    TextMap,
    BytesMap,
    QuantityMap,
    ExtraMap,
    Message(&'static str),
}

impl Type {
    fn parse(word: &'static str) -> Self {
        match word {
            "s" => Self::Text,
            "i" => Self::Integer,
            "b" => Self::Boolean,
            "y" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "ios" => Self::IntOrString,
            "raw" => Self::Raw,
            "map" => Self::TextMap,
            "bmap" => Self::BytesMap,
            "qmap" => Self::QuantityMap,
            "emap" => Self::ExtraMap,
            name => Self::Message(name),
        }
    }

    /// Returns whether Go represents it as a struct, which `omitempty` never omits.
    fn is_struct(self) -> bool {
        matches!(
            self,
            Self::Time
                | Self::MicroTime
                | Self::Quantity
                | Self::IntOrString
                | Self::Raw
                | Self::Message(_)
        )
    }

    pub(super) fn is_map(self) -> bool {
        matches!(self, Self::TextMap | Self::BytesMap | Self::QuantityMap | Self::ExtraMap)
    }
}

pub(super) fn message(name: &str) -> Option<&'static Message> {
    SCHEMA.get(name)
}

impl Message {
    /// Returns whether the message, or one inlined into it, has a field of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| match field.kind {
            Type::Message(inner) if field.inline => message(inner).is_some_and(|m| m.has(name)),
            _ => field.name == name,
        })
    }

    /// Returns whether it is a top-level object, whose JSON has `kind` and `apiVersion`. Protobuf
    /// has them in the envelope.
    pub(super) fn is_object(&self) -> bool {
        let first = self.fields.first();
        first.is_some_and(|field| {
            matches!(field.kind, Type::Message("ObjectMeta" | "ListMeta")) && !field.repeated
        })
    }

    fn parse(line: &'static str) -> Option<(&'static str, Self)> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let fields: Vec<Field> = words.filter_map(Field::parse).collect();
        let mut wire: Vec<usize> = (0..fields.len()).collect();
        wire.sort_by_key(|&index| fields.get(index).map_or(0, |field| field.number));
        Some((name, Self { fields, wire }))
    }
}

impl Field {
    fn parse(word: &'static str) -> Option<Self> {
        let (name, rest) = word.split_once('=')?;
        let (number, kind) = rest.split_once(':').unwrap_or((rest, "s"));
        let (kind, bare) = strip(kind, '-');
        let (kind, always) = strip(kind, '!');
        let (kind, repeated) = strip(kind, '*');
        let stripped = kind.strip_prefix('?');
        let (kind, pointer) = (stripped.unwrap_or(kind), stripped.is_some());
        let stripped = kind.strip_prefix('^');
        let (kind, inline) = (stripped.unwrap_or(kind), stripped.is_some());
        let kind = Type::parse(kind);
        let held = kind.is_struct() && !pointer && !repeated && !bare && !inline;
        let number = number.parse().ok()?;
        Some(Self { name, number, kind, pointer, inline, repeated, always: always || held })
    }
}

fn strip(word: &'static str, suffix: char) -> (&'static str, bool) {
    word.strip_suffix(suffix).map_or((word, false), |rest| (rest, true))
}

static SCHEMA: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    [META, CORE, GROUPS].into_iter().flat_map(str::lines).filter_map(Message::parse).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_defined_once() {
        let lines = [META, CORE, GROUPS].into_iter().flat_map(str::lines);
        let mut names: Vec<&str> =
            lines.clone().filter_map(|line| line.split(' ').next()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for line in lines {
            let (name, message) = Message::parse(line).unwrap();
            assert_eq!(message.fields.len(), line.split(' ').count() - 1, "{name}");
            for field in &message.fields {
                if let Type::Message(inner) = field.kind {
                    assert!(SCHEMA.contains_key(inner), "{name}.{}: {inner}", field.name);
                }
            }
            let mut numbers: Vec<u64> = message.fields.iter().map(|field| field.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), message.fields.len(), "{name}");
        }
    }
}
