//! The key of an object in a store: its namespace and name.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// `namespace/name`, or `name` for a cluster-scoped object. Its byte order is the order of every list
/// (semantics.md §3.1: `-` and `.` sort before `/`, so this is not the order of the tuple). A clone shares it, as the
/// store's maps do.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Joins the two; an empty namespace stands for none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self(name.into())
        } else {
            // On the stack, so that the key is the only allocation.
            let mut joined = SmallVec::<[u8; JOINED_BYTES]>::new();
            joined.extend_from_slice(namespace.as_bytes());
            joined.push(b'/');
            joined.extend_from_slice(name.as_bytes());
            // What is joined of strings is one.
            Self(std::str::from_utf8(&joined).unwrap_or_default().into())
        }
    }

    /// The joined form, shared.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// The joined form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A namespace of up to 63 bytes and a name of the usual length; the longest has 253.
const JOINED_BYTES: usize = 256;
