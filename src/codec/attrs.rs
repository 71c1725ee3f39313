//! The attributes of an object that selectors match: its labels and the values of its selectable
//! fields (kube-apiserver's `AttrFunc`).
//!
//! A cache holds attributes with each object's bytes. They are many short strings, each of which
//! would cost an allocation and two words. So all attributes of an object are in one string of
//! bytes, each after its length: the number of fields, the fields in the order of
//! [`SelectableFields`](weir_api::selectable::SelectableFields), then the labels as pairs, sorted
//! by key. A look-up scans the strings before the one it needs; for a few dozen bytes this is as
//! fast as any other way. The number of labels is unbounded, though, and clients choose it. So for
//! many labels the position of each key is stored too, before all strings, and a look-up is a
//! binary search.
//!
//! The strings are bytes: in protobuf an API server writes a field as a client sent it, which need
//! not be UTF-8 (`docs/semantics.md` §5.3). A selector is text, so no such value equals one of its.

use std::borrow::Cow;

use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

/// The labels and selectable fields of an object, as [`encode`] wrote them. `==` compares all of
/// them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Attrs<'a>(&'a [u8]);

/// Encodes the attributes from `fields` and from `labels`, which must be sorted by key, each key
/// once.
pub fn encode<'a>(
    fields: &[Cow<'_, [u8]>],
    labels: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Vec<u8> {
    let size = |text: &[u8]| encoded_len_varint(text.len() as u64) + text.len();
    let of_fields: usize = fields.iter().map(|field| size(field)).sum();
    let pair_size = |(key, value): (&[u8], &[u8])| size(key) + size(value);
    let of_labels: usize = labels.clone().map(pair_size).sum();
    if of_fields + of_labels == 0 {
        return Vec::new();
    }
    let count = labels.clone().count();
    let positions = if count > LABELS_SCANNED_MAX { count } else { 0 };
    let size_max = 2 * VARINT_BYTES_MAX + positions * POSITION_BYTES + of_fields + of_labels;
    let mut bytes = Vec::with_capacity(size_max);
    encode_varint(positions as u64, &mut bytes);
    let mut at = encoded_len_varint(fields.len() as u64) + of_fields;
    for pair in labels.clone().take(positions) {
        bytes.extend_from_slice(&u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
        at += pair_size(pair);
    }
    encode_varint(fields.len() as u64, &mut bytes);
    let strings = fields.iter().map(|field| &**field);
    for text in strings.chain(labels.flat_map(|(key, value)| [key, value])) {
        encode_varint(text.len() as u64, &mut bytes);
        bytes.extend_from_slice(text);
    }
    bytes
}

impl<'a> Attrs<'a> {
    /// Takes encoded attributes.
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Returns the encoded attributes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the value of the selectable field at this index; empty if there is none.
    pub fn field(self, number: usize) -> &'a [u8] {
        self.fields().nth(number).unwrap_or_default()
    }

    /// Returns the values of the selectable fields.
    pub fn fields(self) -> impl Iterator<Item = &'a [u8]> {
        let (_, mut strings) = self.parts();
        let count = strings.number().unwrap_or_default();
        strings.take(count)
    }

    /// Returns the value of a label; `None` if the object has no such label.
    pub fn label(self, key: &str) -> Option<&'a [u8]> {
        let (positions, Strings(strings)) = self.parts();
        if positions.is_empty() {
            return self
                .labels()
                .find_map(|(label, value)| (label == key.as_bytes()).then_some(value));
        }
        let from = |at: &[u8; POSITION_BYTES]| {
            Strings(strings.get(u32::from_le_bytes(*at) as usize..).unwrap_or_default())
        };
        let found = positions.binary_search_by(|at| from(at).next().cmp(&Some(key.as_bytes())));
        from(positions.get(found.ok()?)?).nth(1)
    }

    /// Returns the labels, sorted by key.
    pub fn labels(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (_, mut strings) = self.parts();
        for _ in 0..strings.number().unwrap_or_default() {
            strings.next();
        }
        std::iter::from_fn(move || Some((strings.next()?, strings.next()?)))
    }

    /// Returns the positions of the labels' keys, if there are many, from the begin of what follows
    /// them: the number of fields, and all strings.
    fn parts(self) -> (&'a [[u8; POSITION_BYTES]], Strings<'a>) {
        let mut strings = Strings(self.0);
        let bytes = strings.number().unwrap_or_default().saturating_mul(POSITION_BYTES);
        let (positions, strings) = (strings.0.get(..bytes), strings.0.get(bytes..));
        (positions.unwrap_or_default().as_chunks().0, Strings(strings.unwrap_or_default()))
    }
}

weir_api::opaque!(Attrs<'_>);

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
        let string = self.0.get(..length)?;
        self.0 = self.0.get(length..)?;
        Some(string)
    }
}

/// More labels than objects of controllers have.
const LABELS_SCANNED_MAX: usize = 16;
const POSITION_BYTES: usize = size_of::<u32>();
/// The longest encoded number.
const VARINT_BYTES_MAX: usize = 10;

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
            let encoded = encode(&cows, pairs);
            let attrs = Attrs::new(&encoded);
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
