//! The index under which the dispatcher registers a watcher.

use crate::cache::core::filter::WatchFilter;
use crate::codec::object::Key;

/// The index in which a watcher stands, and under what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexKey {
    /// One object.
    Object(Key),
    /// Objects with a value of one of the kind's selectable fields.
    Field(usize, Box<str>),
    /// Objects of a name, in every namespace (or cluster-scoped).
    Name(Box<str>),
    /// The objects of a namespace.
    Namespace(Box<str>),
    /// Any object.
    Unindexed,
}

impl IndexKey {
    /// The narrowest place that misses nothing of what the filter matches.
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
