//! The index under which the dispatcher registers a watcher.

use crate::cache::core::filter::WatchFilter;
use crate::codec::object::Key;

/// An index of the dispatcher and the key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexKey {
    /// One object.
    Object(Key),
    /// Objects with this value of a selectable field, which is given by its number.
    Field(usize, Box<[u8]>),
    /// Objects with this name, in every namespace or cluster-scoped.
    Name(Box<str>),
    /// Objects in this namespace.
    Namespace(Box<str>),
    /// Any object.
    Unindexed,
    /// Any object that can be read, for a reader within this process.
    Readable,
}

impl IndexKey {
    /// Returns the narrowest key that covers every object that the filter matches.
    pub(super) fn from_filter(filter: &WatchFilter) -> Self {
        match (filter.required_namespace(), filter.required_name()) {
            (Some(namespace), Some(name)) => Self::Object(Key::new(namespace, name)),
            (namespace, name) => {
                if let Some((field, value)) = filter.fields.required_value() {
                    Self::Field(field, value.as_bytes().into())
                } else if let Some(name) = name {
                    Self::Name(name.into())
                } else {
                    namespace.map_or(Self::Unindexed, |namespace| Self::Namespace(namespace.into()))
                }
            }
        }
    }

    /// Returns whether a watcher with this key may match an object of which only these names are
    /// known; an empty one is unknown.
    pub(super) fn may_match(&self, (namespace, name): (&str, &str)) -> bool {
        let is_possible = |wanted: &str, actual: &str| wanted.is_empty() || wanted == actual;
        match self {
            Self::Object(key) => {
                is_possible(namespace, key.namespace()) && is_possible(name, key.name())
            }
            Self::Name(wanted) => is_possible(name, wanted),
            Self::Namespace(wanted) => is_possible(namespace, wanted),
            Self::Field(..) | Self::Unindexed => true,
            Self::Readable => false,
        }
    }
}
