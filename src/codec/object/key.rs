//! The key of an object in a store: its namespace and name.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// `namespace/name`, or `name` for a cluster-scoped object. Lists are in the byte order of their
/// keys (`docs/semantics.md` §3.1: `-` and `.` sort before `/`, so this is not the order of the
/// tuple). A clone shares the allocation.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Joins namespace and name; an empty namespace means none.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::with_joined(namespace, name, |joined| Self(joined.into()))
    }

    /// Calls `read` with the joined form of a key that is not kept, which takes no allocation.
    pub fn with_joined<T>(namespace: &str, name: &str, read: impl FnOnce(&str) -> T) -> T {
        if namespace.is_empty() {
            return read(name);
        }
        let mut joined = SmallVec::<[u8; JOINED_BYTES]>::new();
        joined.extend_from_slice(namespace.as_bytes());
        joined.push(b'/');
        joined.extend_from_slice(name.as_bytes());
        // The joined bytes are valid UTF-8, as both parts are.
        read(std::str::from_utf8(&joined).unwrap_or_default())
    }

    /// Returns the shared joined form.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// Returns the joined form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Enough for a namespace of 63 bytes and a name of usual length; the longest name has 253.
const JOINED_BYTES: usize = 256;
