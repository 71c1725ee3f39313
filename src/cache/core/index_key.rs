//! The index under which the dispatcher registers a watcher.

use std::sync::Arc;

use crate::api::selector::shard::ShardSelector;
use crate::cache::core::event::Event;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::visible::VisibleObjects;
use crate::codec::object::{Key, Object};

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
    /// Objects in this shard.
    Shard(Arc<ShardSelector>),
    /// Objects that the user may see.
    Visible(Arc<VisibleObjects>),
    /// Any object.
    Unindexed,
    /// Any object that can be read, for a reader within this process.
    Readable,
}

impl IndexKey {
    /// Returns the narrowest key that covers every object that the filter matches. That of a user
    /// who may not see all objects depends on none that is not visible.
    pub(super) fn from_filter(filter: &WatchFilter) -> Self {
        if let Some(visible) = &filter.visible {
            return Self::Visible(Arc::clone(visible));
        }
        match (filter.required_namespace(), filter.required_name()) {
            (Some(namespace), Some(name)) => Self::Object(Key::new(namespace, name)),
            (namespace, name) => {
                if let Some((field, value)) = filter.fields.required_value() {
                    Self::Field(field, value.as_bytes().into())
                } else if let Some(name) = name {
                    Self::Name(name.into())
                } else if let Some(namespace) = namespace {
                    Self::Namespace(namespace.into())
                } else {
                    filter.shard.clone().map_or(Self::Unindexed, Self::Shard)
                }
            }
        }
    }

    /// Whether it is a set of objects that has the event's, before or after it.
    pub(super) fn has_object_of(&self, event: &Event) -> bool {
        match self {
            Self::Shard(shard) => {
                let has = |object: &Arc<Object>| shard.matches(object.shard_hash(shard.field()));
                has(event.object()) || event.previous().is_some_and(has)
            }
            Self::Visible(visible) => visible.has(&event.object().key),
            _ => false,
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
            Self::Visible(visible) => visible.may_have(namespace, name),
            Self::Field(..) | Self::Shard(_) | Self::Unindexed => true,
            Self::Readable => false,
        }
    }
}
