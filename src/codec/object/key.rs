//! The key of an object in a store: its namespace and name.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

/// `namespace/name`, or `name` for a cluster-scoped object. Lists are in the byte order of their
/// keys (`docs/semantics.md` §3.1: `-` and `.` sort before `/`, so this is not the order of the
/// tuple). A clone shares the allocation.
///
/// The key of an object is the begin of the object's record, so that it takes no allocation of its
/// own, and each of its clones keeps the record (`docs/decisions/upstream-bytes.md`).
#[derive(Clone)]
pub struct Key {
    /// The offset of the key's end in four bytes, the key, and in an object its attributes and its
    /// body.
    record: Arc<[u8]>,
}

impl Key {
    /// Joins namespace and name; an empty namespace means none.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::with_rest((namespace, name), [])
    }

    /// Joins namespace and name, and takes the rest of an object's record.
    pub(super) fn with_rest<const N: usize>(
        (namespace, name): (&str, &str),
        rest: [&[u8]; N],
    ) -> Self {
        let separator = if namespace.is_empty() { "" } else { "/" };
        let key = [namespace, separator, name].map(str::as_bytes);
        let end = END_BYTES + key.iter().map(|part| part.len()).sum::<usize>();
        let rest_bytes: usize = rest.iter().map(|part| part.len()).sum();
        let mut record = Vec::with_capacity(end + rest_bytes);
        // Names are far shorter than 4 GiB.
        record.extend_from_slice(&u32::try_from(end).unwrap_or(u32::MAX).to_le_bytes());
        key.into_iter().chain(rest).for_each(|part| record.extend_from_slice(part));
        Self { record: record.into() }
    }

    /// Calls `read` with the joined form of a key that is not kept, which takes no allocation.
    pub fn with_joined<T>(namespace: &str, name: &str, read: impl FnOnce(&[u8]) -> T) -> T {
        if namespace.is_empty() {
            return read(name.as_bytes());
        }
        let mut joined = SmallVec::<[u8; JOINED_BYTES]>::new();
        joined.extend_from_slice(namespace.as_bytes());
        joined.push(b'/');
        joined.extend_from_slice(name.as_bytes());
        read(&joined)
    }

    /// Returns the key for a tree, which keeps some keys after their objects: a copy if the record
    /// is large.
    pub fn for_tree(&self) -> Self {
        if self.record.len() <= TREE_RECORD_BYTES_MAX {
            return self.clone();
        }
        Self { record: self.record.get(..self.end()).unwrap_or_default().into() }
    }

    /// Returns the record that begins with the key.
    pub(super) fn record(&self) -> &Arc<[u8]> {
        &self.record
    }

    /// Returns the offset of what follows the key in its record.
    pub(super) fn end(&self) -> usize {
        let [a, b, c, d, ..] = *self.record else { return 0 };
        u32::from_le_bytes([a, b, c, d]) as usize
    }

    /// Returns the bytes of the joined form.
    pub fn as_bytes(&self) -> &[u8] {
        self.record.get(END_BYTES..self.end()).unwrap_or_default()
    }

    /// Returns the joined form.
    pub fn as_str(&self) -> &str {
        text(self.as_bytes())
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        text(self.names().0)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        text(self.names().1)
    }

    /// Returns the bytes of the namespace and of the name.
    pub fn names(&self) -> (&[u8], &[u8]) {
        let key = self.as_bytes();
        let Some(separator) = key.iter().position(|byte| *byte == b'/') else { return (&[], key) };
        let name = key.get(separator + 1..).unwrap_or_default();
        (key.get(..separator).unwrap_or_default(), name)
    }
}

/// Returns a part of a key as text, which all of a key is.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The size of what precedes a key in its record.
const END_BYTES: usize = size_of::<u32>();
/// A tree keeps one key in 32 at the most after its object.
const TREE_RECORD_BYTES_MAX: usize = 4 << 10;
/// Enough for a namespace of 63 bytes and a name of usual length; the longest name has 253.
const JOINED_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Keys compare as the joined names do, whatever follows them in their records.
        #[test]
        fn keys_are_in_the_order_of_joined_names(
            names in prop::array::uniform2(("[a-c.-]{0,3}", "[a-c.-]{1,3}")),
            rests in prop::array::uniform2(prop::collection::vec(any::<u8>(), 0..9)),
        ) {
            let [one, other] = [0, 1].map(|index| {
                let (namespace, name) = &names[index];
                (Key::with_rest((namespace, name), [&rests[index]]), namespace, name)
            });
            for (key, namespace, name) in [&one, &other] {
                let joined = if namespace.is_empty() { (*name).clone() } else { format!("{namespace}/{name}") };
                prop_assert_eq!(key.as_str(), &joined);
                prop_assert_eq!((key.namespace(), key.name()), (&***namespace, &***name));
                prop_assert_eq!(key, &Key::new(namespace, name));
                Key::with_joined(namespace, name, |bytes| assert_eq!(bytes, joined.as_bytes()));
            }
            prop_assert_eq!(one.0.cmp(&other.0), one.0.as_str().cmp(other.0.as_str()));
            prop_assert_eq!(one.0 == other.0, one.0.as_str() == other.0.as_str());
        }
    }

    #[test]
    fn a_tree_does_not_keep_a_large_record() {
        let large = Key::with_rest(("ns", "name"), [&[0; TREE_RECORD_BYTES_MAX]]);
        assert_eq!(large.for_tree(), large);
        assert_eq!(large.for_tree().record.len(), END_BYTES + "ns/name".len());
        let small = Key::with_rest(("ns", "name"), [b"body"]);
        assert!(Arc::ptr_eq(&small.for_tree().record, &small.record));
    }
}
