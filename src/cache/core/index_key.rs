//! The index under which the dispatcher registers a watcher.

use crate::cache::core::filter::WatchFilter;
use crate::codec::object::Key;

/// An index of the dispatcher and the key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexKey {
    /// One object.
    Object(Key),
    /// Objects with this value of a selectable field, which is given by its number.
    Field(usize, Box<str>),
    /// Objects with this name, in every namespace or cluster-scoped.
    Name(Box<str>),
    /// Objects in this namespace.
    Namespace(Box<str>),
    /// Any object.
    Unindexed,
}

impl IndexKey {
    /// Returns the narrowest key that covers every object that the filter matches.
    pub(super) fn from_filter(filter: &WatchFilter) -> Self {
        match (filter.required_namespace(), filter.required_name()) {
            (Some(namespace), Some(name)) => Self::Object(Key::new(namespace, name)),
            (namespace, name) => {
                if let Some((field, value)) = filter.fields.required_value() {
                    Self::Field(field, value.into())
                } else if let Some(name) = name {
                    Self::Name(name.into())
                } else {
                    namespace.map_or(Self::Unindexed, |namespace| Self::Namespace(namespace.into()))
                }
            }
        }
    }
}
