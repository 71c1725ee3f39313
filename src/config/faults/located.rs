//! A YAML file as a tree of values with their places.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

/// A value with its place.
#[derive(Debug)]
pub(super) struct Node(Spanned<Located>);

/// A value.
#[derive(Debug)]
pub(super) enum Located {
    /// No value, as after `field:`.
    Nothing,
    Scalar(Value),
    List(Vec<Node>),
    /// The key with its place, its name, and the value.
    Fields(Vec<(Node, String, Node)>),
}

impl Node {
    pub(super) fn located(&self) -> &Located {
        &self.0.value
    }

    /// Line and column, counted from 1.
    pub(super) fn place(&self) -> Option<(u64, u64)> {
        let location = self.0.referenced;
        (location.line() > 0).then(|| (location.line(), location.column()))
    }

    /// Returns the place of a field such as `server.listeners[0].listen`, or of the nearest that
    /// is above it.
    pub(super) fn place_of(&self, path: &str) -> Option<(u64, u64)> {
        let mut node = self;
        let mut place = None;
        let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        for step in steps {
            let next = match node.located() {
                Located::Fields(fields) => {
                    fields.iter().find(|(_, name, _)| name == step).map(|(_, _, value)| value)
                }
                Located::List(items) => {
                    step.parse::<usize>().ok().and_then(|index| items.get(index))
                }
                Located::Nothing | Located::Scalar(_) => None,
            };
            let Some(next) = next else { break };
            place = next.place();
            node = next;
        }
        place
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

impl<'de> Visitor<'de> for AnyValue {
    type Value = Located;

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

    fn visit_bool<E: Error>(self, value: bool) -> Result<Located, E> {
        Ok(Located::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Located, E> {
        Ok(Located::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Located, E> {
        Ok(Located::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Located, E> {
        Ok(Located::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Located, E> {
        Ok(Located::Scalar(value.into()))
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
