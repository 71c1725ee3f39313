//! The attributes of an object that selectors match: its labels and the values of its selectable
//! fields (kube-apiserver's `AttrFunc`).
//!
//! A cache holds attributes with each object's bytes. They are many short strings, each of which
//! would cost an allocation and two words. So all attributes of an object are in one allocation,
//! each string after its length: first the number of fields, then the fields in the order of
//! [`SelectableFields`](weir_api::selectable::SelectableFields), then the labels as pairs, sorted
//! by key. A look-up scans the strings before the one it needs; for a few dozen bytes this is as
//! fast as any other way. The number of labels is unbounded, though, and clients choose it. So for
//! many labels the position of each key is stored too, and a look-up is a binary search.
//!
//! The strings are bytes: in protobuf an API server writes a field as a client sent it, which need
//! not be UTF-8 (`docs/semantics.md` §5.3). A selector is text, so no such value equals one of its.

use std::borrow::Cow;

use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

/// The labels and selectable fields of an object. `==` compares all of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attrs {
    bytes: Box<[u8]>,
    /// The position of each label's key (of its length prefix), if there are more than
    /// [`LABELS_SCANNED_MAX`] labels.
    keys: Box<[u32]>,
}

impl Attrs {
    /// Creates the attributes from `fields` and from `labels`, which must be sorted by key, each
    /// key once.
    pub fn new<'a>(
        fields: &[Cow<'_, [u8]>],
        labels: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Self {
        let size = |text: &[u8]| encoded_len_varint(text.len() as u64) + text.len();
        let of_fields: usize = fields.iter().map(|field| size(field)).sum();
        let of_labels: usize = labels.clone().map(|(key, value)| size(key) + size(value)).sum();
        if of_fields + of_labels == 0 {
            return Self::default();
        }
        let count = fields.len() as u64;
        let mut bytes = Vec::with_capacity(encoded_len_varint(count) + of_fields + of_labels);
        encode_varint(count, &mut bytes);
        let push = |text: &[u8], bytes: &mut Vec<u8>| {
            encode_varint(text.len() as u64, bytes);
            bytes.extend_from_slice(text);
        };
        fields.iter().for_each(|field| push(field, &mut bytes));
        let many = labels.clone().nth(LABELS_SCANNED_MAX).is_some();
        let mut keys = Vec::new();
        labels.for_each(|(key, value)| {
            if many {
                keys.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
            push(key, &mut bytes);
            push(value, &mut bytes);
        });
        Self { bytes: bytes.into(), keys: keys.into() }
    }

    /// Returns the value of the selectable field at this index; empty if there is none.
    pub fn field(&self, number: usize) -> &[u8] {
        self.fields().nth(number).unwrap_or_default()
    }

    /// Returns the values of the selectable fields.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let (count, strings) = self.strings();
        strings.take(count)
    }

    /// Returns the value of a label; `None` if the object has no such label.
    pub fn label(&self, key: &str) -> Option<&[u8]> {
        if !self.keys.is_empty() {
            let at =
                self.keys.binary_search_by(|at| self.at(*at).next().cmp(&Some(key.as_bytes())));
            return self.at(*self.keys.get(at.ok()?)?).nth(1);
        }
        let mut labels = self.labels();
        labels.find_map(|(label, value)| (label == key.as_bytes()).then_some(value))
    }

    /// Returns the labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, mut strings) = self.strings();
        for _ in 0..count {
            strings.next();
        }
        std::iter::from_fn(move || Some((strings.next()?, strings.next()?)))
    }

    /// Returns their size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.keys)
    }

    /// Whether there are no fields and no labels.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn at(&self, start: u32) -> Strings<'_> {
        Strings(self.bytes.get(start as usize..).unwrap_or_default())
    }

    /// Returns the number of fields, and all strings.
    fn strings(&self) -> (usize, Strings<'_>) {
        let mut strings = Strings(&self.bytes);
        (strings.number().unwrap_or_default(), strings)
    }
}

weir_api::opaque!(Attrs);

/// An iterator over the strings from a position on.
struct Strings<'a>(&'a [u8]);

impl Strings<'_> {
    fn number(&mut self) -> Option<usize> {
        usize::try_from(decode_varint(&mut self.0).ok()?).ok()
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}

/// More labels than objects of controllers have.
const LABELS_SCANNED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Any bytes, mostly text.
    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => prop::string::string_regex(&format!("\\PC{{0,{most}}}")).unwrap().prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..most),
        ]
    }

    proptest! {
        #[test]
        fn all_fields_and_labels_are_found(
            fields in prop::collection::vec(bytes(300), 0..12),
            labels in prop::collection::btree_map(bytes(9), bytes(200), 0..40),
            other in "\\PC{0,2}",
        ) {
            let cows: Vec<_> = fields.iter().map(|field| Cow::Borrowed(&**field)).collect();
            let pairs = labels.iter().map(|(key, value)| (&**key, &**value));
            let attrs = Attrs::new(&cows, pairs);
            prop_assert_eq!(&attrs.fields().collect::<Vec<_>>(), &fields);
            for (number, field) in fields.iter().enumerate() {
                prop_assert_eq!(attrs.field(number), field);
            }
            prop_assert_eq!(attrs.field(fields.len()), b"");
            let kept: BTreeMap<_, _> = attrs.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(&kept, &labels);
            let keys = labels.keys().filter_map(|key| std::str::from_utf8(key).ok());
            for key in keys.chain([&*other]) {
                prop_assert_eq!(attrs.label(key), labels.get(key.as_bytes()).map(Vec::as_slice));
            }
        }
    }
}
