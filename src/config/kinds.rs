//! The kinds of values: how each is read from the file, checked, printed, and described in the
//! schema.

use serde_json::{Map, Value};

use crate::config::file::{Located, Node};
use crate::config::reader::Reader;

/// The form of a value in the file.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Text,
    Integer,
    Boolean,
    /// A text with a unit, or 0.
    Duration,
    DurationOrNever,
    /// A text such as 512Mi, or an integer.
    Bytes,
    Words(&'static [&'static str]),
    List(Box<Self>),
    Fields(Vec<Field>),
}

impl Shape {
    /// The name of the type, after "must be".
    fn name(&self) -> &'static str {
        match self {
            Self::Text | Self::Words(_) => "a text; put it into quotation marks",
            Self::Duration | Self::DurationOrNever => "a duration such as 30s",
            Self::Bytes => "a size such as 512Mi",
            Self::Integer => "an integer, not below zero",
            Self::Boolean => "true or false",
            Self::List(_) => "a list",
            Self::Fields(_) => "a section with fields",
        }
    }
}

/// A kind of value of the type `T`.
pub(super) trait Kind<T: Clone> {
    /// Its shape; `None` for what is no setting.
    fn shape(&self) -> Option<Shape>;

    /// Returns what is printed; null for nothing.
    fn write(&self, value: &T) -> Value;

    /// Reads a text, a number or a boolean.
    fn parse(&self, _scalar: &Value) -> Result<T, String> {
        Err(self.shape().map_or_else(String::new, |shape| wrong_type(&shape)))
    }

    /// Returns the value in the file; without it, a problem was added.
    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<T> {
        let result = match node.located() {
            Located::Scalar(scalar) => self.parse(scalar),
            _ => Err(self.shape().map_or_else(String::new, |shape| wrong_type(&shape))),
        };
        result.map_err(|message| reader.add(node.place(), message)).ok()
    }

    /// Replaces a value by that of the file.
    fn read(&self, value: &mut T, node: &Node, reader: &mut Reader<'_>) {
        if let Some(new) = self.value(node, reader) {
            *value = new;
        }
    }

    fn take_live(&self, value: &mut T, new: &T, is_live: bool) {
        if is_live {
            value.clone_from(new);
        }
    }

    fn is_required(&self) -> bool {
        false
    }
}

/// A struct of settings.
pub(super) trait Section: Clone + Default {
    /// Returns the settings, in order.
    fn fields() -> Vec<Field>;

    /// Replaces a field by the file's value.
    fn read(&mut self, name: &str, node: &Node, reader: &mut Reader<'_>);

    /// Returns the settings by their names, without those that have no value.
    fn write(&self) -> Map<String, Value>;

    /// Takes over what may change at run time.
    fn take_live(&mut self, new: &Self);
}

/// A setting.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) is_live: bool,
    pub(super) is_required: bool,
    pub(super) shape: Shape,
    /// The default; null for none.
    pub(super) default: Value,
}

impl Field {
    /// Describes a field; `None` for one that is no setting.
    pub(super) fn new<T: Clone>(
        name: String,
        about: &str,
        is_live: bool,
        kind: &impl Kind<T>,
        default: &T,
    ) -> Option<Self> {
        let (shape, is_required) = (kind.shape()?, kind.is_required());
        let default = kind.write(default);
        Some(Self { name, about: about.to_owned(), is_live, is_required, shape, default })
    }
}

/// Reads a section: each field that the file has. Those that do not exist, and those that are
/// missing, are problems.
pub(super) fn read_section<T: Section>(section: &mut T, node: &Node, reader: &mut Reader<'_>) {
    let Located::Fields(entries) = node.located() else {
        return reader.add(node.place(), "must be a section with fields");
    };
    let fields = T::fields();
    for (key, name, value) in entries {
        if fields.iter().any(|field| field.name == *name) {
            if !matches!(value.located(), Located::Nothing) {
                reader.inside(name, |reader| section.read(name, value, reader));
            }
        } else {
            let names: Vec<_> = fields.iter().map(|field| &*field.name).collect();
            reader.unknown(key, name, &names);
        }
    }
    for field in fields.iter().filter(|field| field.is_required) {
        if !entries.iter().any(|(_, name, _)| *name == field.name) {
            reader.inside(&field.name, |reader| reader.add(node.place(), "is missing"));
        }
    }
}

/// Returns a member of a list as it is printed: without the defaults.
pub(super) fn without_defaults<T: Section>(section: &T) -> Value {
    let mut written = section.write();
    for field in T::fields().iter().filter(|field| !field.is_required) {
        if written.get(&field.name) == Some(&field.default) {
            written.shift_remove(&field.name);
        }
    }
    Value::Object(written)
}

pub(super) fn wrong_type(shape: &Shape) -> String {
    format!("must be {}", shape.name())
}

/// A list.
pub(super) struct List<K>(pub(super) K);

impl<T: Clone, K: Kind<T>> Kind<Vec<T>> for List<K> {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::List(Box::new(self.0.shape()?)))
    }

    /// An item with a problem is left out.
    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<Vec<T>> {
        let Located::List(nodes) = node.located() else {
            reader.add(node.place(), "must be a list");
            return None;
        };
        let mut items = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            reader.inside(&format!("[{index}]"), |reader| {
                items.extend(self.0.value(node, reader));
            });
        }
        Some(items)
    }

    fn write(&self, value: &Vec<T>) -> Value {
        value.iter().map(|item| self.0.write(item)).collect()
    }
}

/// A value that may be absent.
pub(super) struct Maybe<K>(pub(super) K);

impl<T: Clone, K: Kind<T>> Kind<Option<T>> for Maybe<K> {
    fn shape(&self) -> Option<Shape> {
        self.0.shape()
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<Option<T>> {
        self.0.value(node, reader).map(Some)
    }

    fn write(&self, value: &Option<T>) -> Value {
        value.as_ref().map_or(Value::Null, |value| self.0.write(value))
    }
}

/// A value that may not be absent.
pub(super) struct Required<K>(pub(super) K);

impl<T: Clone, K: Kind<T>> Kind<T> for Required<K> {
    fn shape(&self) -> Option<Shape> {
        self.0.shape()
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<T> {
        self.0.value(node, reader)
    }

    fn write(&self, value: &T) -> Value {
        self.0.write(value)
    }

    fn is_required(&self) -> bool {
        true
    }
}

/// A section within a section.
pub(super) struct Part;

impl<T: Section> Kind<T> for Part {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Fields(T::fields()))
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<T> {
        let mut section = T::default();
        let before = reader.count();
        read_section(&mut section, node, reader);
        (reader.count() == before).then_some(section)
    }

    fn read(&self, value: &mut T, node: &Node, reader: &mut Reader<'_>) {
        read_section(value, node, reader);
    }

    fn write(&self, value: &T) -> Value {
        Value::Object(value.write())
    }

    fn take_live(&self, value: &mut T, new: &T, _is_live: bool) {
        value.take_live(new);
    }
}

/// A section that is a member of a list, or may be absent: what it leaves out is not printed.
pub(super) struct Member;

impl<T: Section> Kind<T> for Member {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Fields(T::fields()))
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<T> {
        Part.value(node, reader)
    }

    fn write(&self, value: &T) -> Value {
        without_defaults(value)
    }
}

/// Values that no file can set: those that follow from settings, flags and the memory limit.
pub(super) struct Derived;

impl<T: Clone> Kind<T> for Derived {
    fn shape(&self) -> Option<Shape> {
        None
    }

    fn value(&self, _node: &Node, _reader: &mut Reader<'_>) -> Option<T> {
        None
    }

    fn write(&self, _value: &T) -> Value {
        Value::Null
    }
}
