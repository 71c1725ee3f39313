//! Finds the fields of a type by deserializing it: serde's derive names each field and asks for
//! its type. So no second list of fields exists that could be forgotten.
//!
//! It knows what the structs of the file consist of: texts, integers, booleans, lists, options and
//! structs. An enum or a map would be an error, which the tests would show.

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// The type of a value in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Shape {
    /// A text, a path included.
    Text,
    Integer,
    Boolean,
    List(Box<Self>),
    /// The fields of a struct, in its order.
    Fields(Vec<(&'static str, Self)>),
}

/// Returns the shape of a type.
pub(super) fn shape_of<'de, T: Deserialize<'de>>() -> Shape {
    let mut shape = Shape::Text;
    // The shape is complete even if the type refuses the made-up value.
    drop(T::deserialize(Tracer { shape: &mut shape }));
    shape
}

/// Gives a made-up value for whatever is asked for, and notes what that was.
struct Tracer<'a> {
    shape: &'a mut Shape,
}

/// Notes an integer, and gives zero.
macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.shape = Shape::Integer;
            visitor.visit_u64(0)
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
    deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Text;
        visitor.visit_str("")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.shape = Shape::Boolean;
        visitor.visit_bool(false)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut item = Shape::Text;
        let value = visitor.visit_seq(OneItem { shape: Some(&mut item) });
        *self.shape = Shape::List(Box::new(item));
        value
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = Vec::new();
        let value = visitor.visit_map(EachField { names: names.iter(), fields: &mut fields });
        *self.shape = Shape::Fields(fields);
        value
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct map enum identifier ignored_any
    }
}

/// A list of one item.
struct OneItem<'a> {
    shape: Option<&'a mut Shape>,
}

impl<'de> SeqAccess<'de> for OneItem<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.shape.take().map(|shape| seed.deserialize(Tracer { shape })).transpose()
    }
}

/// A struct with all of its fields.
struct EachField<'a> {
    names: std::slice::Iter<'static, &'static str>,
    fields: &'a mut Vec<(&'static str, Shape)>,
}

impl<'de> MapAccess<'de> for EachField<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.fields.push((name, Shape::Text));
        seed.deserialize((*name).into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut shape = Shape::Text;
        let value = seed.deserialize(Tracer { shape: &mut shape });
        if let Some((_, of_field)) = self.fields.last_mut() {
            *of_field = shape;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its fields are looked at")]
    struct Outer {
        some_text: Option<String>,
        #[serde(rename = "aPath")]
        path: PathBuf,
        #[serde(default)]
        inner: Vec<Inner>,
        is_on: bool,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        count: Option<usize>,
        difference: i32,
    }

    #[test]
    fn the_fields_of_a_struct_are_found() {
        let inner = vec![("count", Shape::Integer), ("difference", Shape::Integer)];
        let fields = vec![
            ("someText", Shape::Text),
            ("aPath", Shape::Text),
            ("inner", Shape::List(Box::new(Shape::Fields(inner)))),
            ("isOn", Shape::Boolean),
        ];
        assert_eq!(shape_of::<Outer>(), Shape::Fields(fields));
    }
}
